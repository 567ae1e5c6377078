"""What the permuted experiments share: one learner on one permuted stream, measured after every task."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from mesu import measures, optim
from mesu.lab.data import Dataset
from mesu.lab.experiments.trial import LearnerTrial
from mesu.lab.streams import Permuted
from mesu.lab.table import Row
from mesu.learners import BayesianLearner, Learner, WeightLearner
from mesu.posterior.bayesian import Bayesian

WINDOW = 5  # tasks that are tested after every task: the paper's "last five"


class PermutedTrial(LearnerTrial):
    """One learner with one seed on a permuted stream; a stage is a task.

    Args:
        settings: The experiment's settings.
        stream: The tasks.
        outliers: Inputs that should be told from the newest task's.
        contestant: The learner, as `contestants` names it.
        seed: Decides the first weights and the noise.
    """

    def __init__(self, settings: Any, stream: Permuted, outliers: np.ndarray, contestant: str, seed: int) -> None:
        torch.set_num_threads(1)  # learners and seeds run side by side: more threads only wait for each other
        self.settings, self.stream, self.outliers = settings, stream, outliers
        self.model = make_learner(settings, stream.dataset, contestant, seed)
        self.row = partial(Row, settings.name, contestant, seed)

    def stage(self, index: int) -> Iterator[Row]:
        """Learn one task, then test the last five, the newest's uncertainty, and now and then all tasks so far."""
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
        # a deterministic network has no epistemic uncertainty: aleatoric is all that it can offer
        kind = "epistemic" if isinstance(self.model, BayesianLearner) else "aleatoric"
        novel = self.model.predict(self.outliers, settings.test_samples)
        auroc = measures.auroc(getattr(inside, kind).numpy(), getattr(novel, kind).numpy())
        yield row(None, "ood_auroc", auroc)
        if isinstance(self.model, BayesianLearner):
            yield row(None, "mean_std", mean_std(self.model))


def mean_std(model: BayesianLearner) -> float:
    """The mean sigma of all weights."""
    return float(torch.cat([pair.std.detach().ravel() for pair in model.net.pairs()]).mean())


def tested(index: int, tasks: int, every: int) -> range:
    """Which tasks are tested after task `index`: all so far at the end and after each `every` tasks, else the last five."""
    everything = index == tasks - 1 or (index + 1) % every == 0
    return range(0 if everything else max(0, index + 1 - WINDOW), index + 1)


def contestants(settings: Any) -> tuple[str, ...]:
    """The learners, MESU once for each memory: plain `mesu` if there is one, else `mesu-300000`, `mesu-inf`, ..."""
    names: list[str] = []
    for learner in settings.learners:
        several = learner == "mesu" and len(settings.memory) > 1
        names += [f"mesu-{memory:.15g}" for memory in settings.memory] if several else [learner]
    return tuple(names)


def make_learner(settings: Any, dataset: Dataset, contestant: str, seed: int) -> Learner:
    """A fresh learner by name."""
    torch.manual_seed(seed)
    # no biases, as in the paper; torch's own start is the paper's U(+-1/sqrt(fan_in)) for deterministic networks
    net = nn.Sequential(
        nn.Linear(dataset.features, settings.hidden, bias=False),
        nn.ReLU(),
        nn.Linear(settings.hidden, dataset.classes, bias=False),
    )
    name, _, memory = contestant.partition("-") if contestant.startswith("mesu-") else (contestant, "", "")
    if name in ("mesu", "foo-vb"):
        posterior = Bayesian(net, estimator=settings.estimator, init="mnist", init_scale=settings.init_scale, seed=seed)
        if name == "mesu":
            window = float(memory or settings.memory[0])
            opt = optim.MESU(
                posterior, window, prior_std=settings.prior_std, update=settings.update, max_step=settings.max_step
            )
        else:
            opt = optim.FOOVB(posterior, max_step=settings.max_step)
        return BayesianLearner(posterior, opt, settings.samples)
    weights = list(net.parameters())
    rules = {
        "sgd": lambda s: optim.SGD(weights, s.sgd_lr),
        "ewc-online": lambda s: optim.EWCOnline(weights, s.ewc_online_lr, s.ewc_online_strength, s.ewc_online_decay),
        "ewc-stream": lambda s: optim.EWCStream(weights, s.ewc_stream_lr, s.ewc_stream_strength, s.ewc_stream_decay),
        "si": lambda s: optim.SI(weights, s.si_lr, s.si_strength),
    }
    if name not in rules:
        raise ValueError(f"there is no learner {name!r}: choose from mesu, foo-vb, {', '.join(rules)}")
    return WeightLearner(net, rules[name](settings))


def check(settings: Any, dataset: Dataset) -> None:
    """Refuse settings that cannot run, before anything is started: builds every learner once."""
    for name in ("tasks", "seeds", "epochs", "samples", "test_samples", "hidden", "all_tasks_every"):
        if getattr(settings, name, 1) < 1:
            raise ValueError(f"{name} must be 1 or more, got {getattr(settings, name)!r}")
    for name in ("learners", "memory"):
        values = getattr(settings, name)
        if not values or len(set(values)) < len(values):
            raise ValueError(f"{name} must be one or more, all different, got {','.join(map(str, values))!r}")
    for contestant in contestants(settings):
        make_learner(settings, dataset, contestant, seed=0)
