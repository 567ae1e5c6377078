"""What the permuted experiments and `vanishing` share: settings, the six learners, a trial on a permuted stream.

Every learner can be had with replay, by the name `mesu-replay`, `ewc-online-replay`, ...; so can Adam, `adam-replay`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from mesu import measures, optim
from mesu.lab.data import Dataset
from mesu.lab.entry import Entry
from mesu.lab.experiments import checks
from mesu.lab.experiments.learners import Choice, make_learner, perceptron, uncertainty
from mesu.lab.experiments.trial import LearnerTrial
from mesu.lab.streams import Permuted
from mesu.lab.table import Row
from mesu.learners import BayesianLearner, Learner

WINDOW = 5  # tasks that are tested after every task: the paper's "last five"
REPLAY = "-replay"  # goes behind a learner's name
DRAWN = ("mesu", "foo-vb")  # learners that draw networks, so that an update takes many times as long


@dataclass(frozen=True)
class SixLearners:
    """Settings of an experiment with one hidden layer and the paper's six learners: the paper's table for Permuted MNIST."""

    seeds: int = 5  # runs, each with its own stream, first weights and noise
    learners: tuple[str, ...] = ("mesu", "ewc-online", "si", "foo-vb", "ewc-stream", "sgd")  # who takes part
    hidden: int = 50  # hidden units of the one layer
    samples: int = 10  # Monte Carlo samples of a training step
    test_samples: int = 10  # Monte Carlo samples of a prediction
    memory: tuple[float, ...] = (300_000,)  # N of MESU, in updates; several are run side by side
    prior_std: float | Literal["auto"] = 1.0  # prior of MESU; auto is the library's default
    max_step: float | Literal["auto"] | None = None  # trust region of MESU and FOO-VB, in units of sigma; None is off
    update: str = "paper"  # MESU's step: exact or paper
    init_scale: float | None = (
        1.0  # start of MESU and FOO-VB: what the first sigma is multiplied by; None is the library's
    )
    estimator: str = (
        "local"  # how MESU and FOO-VB draw: local, weights as the paper does; linear (MESU only) draws nothing
    )
    sgd_lr: float = 0.002  # learning rate of SGD
    ewc_online_lr: float = 0.002  # learning rate of EWC Online
    ewc_online_strength: float = 2.0  # its lambda
    ewc_online_decay: float = 0.2  # its gamma
    ewc_stream_lr: float = 0.002  # learning rate of EWC Stream
    ewc_stream_strength: float = 5.0  # its lambda
    ewc_stream_decay: float = 0.2  # its gamma
    si_lr: float = 0.002  # learning rate of SI in the published run; the paper's table says 0.005
    si_strength: float = 1e-4  # its c in the published run; the paper's table says 1e-9
    adam_lr: float = 0.001  # learning rate of Adam, which takes part with replay only
    replay: int = 500  # rows that learners with replay keep

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The learners; MESU once for each memory, if there are several."""
        entries: list[Entry] = []
        for learner in self.learners:
            plain = learner.removesuffix(REPLAY)
            cost = self.samples if plain in DRAWN and posterior(self, plain)["estimator"] != "linear" else 1
            cost *= 5 if learner.endswith(REPLAY) else 1  # each row is learned five times
            if learner == "mesu" and len(self.memory) > 1:
                entries += [Entry(learner, "memory", memory, cost) for memory in self.memory]
            else:
                entries.append(Entry(learner, cost=cost))
        return tuple(entries)

    def check_learners(self) -> None:
        """Refuse settings that no learner can be made with."""
        checks.at_least_one(self, "seeds", "samples", "test_samples", "hidden")
        checks.all_different(self, "learners", "memory")
        for entry in self.entries:
            checks.can_be_made(entry, choices(self, entry))

    def learner(self, entry: Entry, dataset: Dataset, seed: int) -> Learner:
        """A fresh learner for a data set."""
        return make_learner(
            entry.learner,
            choices(self, entry),
            partial(perceptron, dataset.features, self.hidden, dataset.classes),
            seed,
            self.samples,
        )


def choices(settings: SixLearners, entry: Entry) -> dict[str, Choice]:
    """The six learners, and each of them and Adam with replay."""
    s = settings
    memory = entry.get("memory", s.memory[0])
    mesu: dict[str, Any] = {"memory": memory, "prior_std": s.prior_std, "update": s.update, "max_step": s.max_step}
    foo_vb_step = None if s.max_step == "auto" else s.max_step
    online = s.ewc_online_lr, s.ewc_online_strength, s.ewc_online_decay
    stream = s.ewc_stream_lr, s.ewc_stream_strength, s.ewc_stream_decay
    six = {
        "mesu": Choice(lambda net: optim.MESU(net, **mesu), posterior(s, "mesu")),
        "foo-vb": Choice(lambda net: optim.FOOVB(net, max_step=foo_vb_step), posterior(s, "foo-vb")),
        "sgd": Choice(lambda weights: optim.SGD(weights, s.sgd_lr)),
        "ewc-online": Choice(lambda weights: optim.EWCOnline(weights, *online)),
        "ewc-stream": Choice(lambda weights: optim.EWCStream(weights, *stream)),
        "si": Choice(lambda weights: optim.SI(weights, s.si_lr, s.si_strength)),
    }
    adam = Choice(lambda weights: torch.optim.Adam(weights, s.adam_lr), engine=False)
    replayed = {name + REPLAY: choice._replace(replay=s.replay) for name, choice in {**six, "adam": adam}.items()}
    return {**six, **replayed}


def posterior(settings: SixLearners, learner: str) -> dict[str, Any]:
    """What `Bayesian` is given: the paper's start, or the library's where nothing is drawn. FOO-VB always draws."""
    if settings.estimator == "linear" and learner == "mesu":
        return {"estimator": "linear", "init_scale": settings.init_scale}
    estimator = "local" if settings.estimator == "linear" else settings.estimator
    return {"estimator": estimator, "init": "mnist", "init_scale": settings.init_scale}


@dataclass(frozen=True)
class PermutedSettings(SixLearners):
    """Settings that both permuted experiments have."""

    tasks: int = 200  # permutations, learned one after the other
    epochs: int = 1  # times that each task's examples are shown
    all_tasks_every: int = 10  # tasks between tests on all tasks so far; the last five are tested after each

    name: ClassVar[str]
    stage_name: ClassVar[str] = "tasks"

    def data(self) -> tuple[Dataset, np.ndarray | None]:
        """What is permuted, and the outliers; None for the same data in an order that is never learned."""
        raise NotImplementedError

    @property
    def stages(self) -> int:
        """One a task."""
        return self.tasks

    def check(self) -> None:
        """Refuse settings that cannot run, before anything is started."""
        self.data()
        checks.at_least_one(self, "tasks", "epochs", "all_tasks_every")
        self.check_learners()

    def trial(self, entry: Entry, seed: int) -> "PermutedTrial":
        """One learner with one seed."""
        dataset, outliers = self.data()
        stream = Permuted(dataset, self.tasks, seed)
        return PermutedTrial(self, stream, stream.unseen().x_test if outliers is None else outliers, entry, seed)


class PermutedTrial(LearnerTrial):
    """One learner with one seed on a permuted stream; a stage is a task.

    Args:
        settings: The experiment's settings.
        stream: The tasks.
        outliers: Inputs that should be told from the newest task's.
        entry: The learner.
        seed: Decides the first weights and the noise.
    """

    def __init__(
        self, settings: PermutedSettings, stream: Permuted, outliers: np.ndarray, entry: Entry, seed: int
    ) -> None:
        self.settings, self.stream, self.outliers = settings, stream, outliers
        self.model: Any = settings.learner(entry, stream.dataset, seed)
        self.row = partial(Row, settings.name, entry.label, seed)

    def stage(self, index: int) -> Iterator[Row]:
        """Learn one task, then test the last five, the uncertainty on the newest and, every few tasks, all tasks so far."""
        settings, task = self.settings, self.stream[index]
        x, y = task.x_train, task.y_train
        for _ in range(settings.epochs):
            self.model.learn(x, y)
        self.model.boundary(x, y)
        row = partial(self.row, (index + 1) * settings.epochs * len(x), index)
        inside = self.model.predict(task.x_test, settings.test_samples)
        for old in tested(index, settings.tasks, settings.all_tasks_every):
            test = task if old == index else self.stream[old]
            prediction = inside if old == index else self.model.predict(test.x_test, settings.test_samples)
            yield row(old, "accuracy", measures.accuracy(prediction.probs.numpy(), test.y_test))
        error = measures.calibration_error(inside.probs.numpy(), task.y_test)
        yield row(None, "calibration_error", error)
        novel = self.model.predict(self.outliers, settings.test_samples)
        yield row(None, "ood_auroc", measures.auroc(uncertainty(self.model, inside), uncertainty(self.model, novel)))
        if isinstance(self.model, BayesianLearner):
            yield row(None, "mean_std", mean_std(self.model))


def mean_std(model: BayesianLearner) -> float:
    """The mean sigma of all weights."""
    return float(torch.cat([pair.std.detach().ravel() for pair in model.net.pairs()]).mean())


def tested(index: int, tasks: int, every: int) -> range:
    """Which tasks are tested after task `index`: all so far at the end and after each `every` tasks, else the last five."""
    everything = index == tasks - 1 or (index + 1) % every == 0
    return range(0 if everything else max(0, index + 1 - WINDOW), index + 1)
