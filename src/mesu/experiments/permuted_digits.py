"""Permuted digits: the paper's Fig. 3 in a minute, on data that ships with scikit-learn.

A small network meets the 8 x 8 digits again and again, each time with the pixels shuffled in a new way, one example at
a time. Networks that forget nothing fill up and stop learning; networks that forget everything lose the last tasks.

The defaults are each learner's best on the last five of 30 tasks among the values tried, on seeds that the runs do not use
for MESU (memory 12,000 to 30,000, prior_std .1 to 1) and on seeds 0 and 1 for the others: SGD's rate of .002 to .02; EWC
Online's rate of .005 to .02 and lambda of 2 to 20; EWC Stream's rate of .005, .01 and lambda of 1 to 20; SI's rate of .005, .01
and c of .001 to .03. FOO-VB has nothing to choose.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from mesu import measures, optim
from mesu.data import digits
from mesu.experiments.table import Row
from mesu.learners import BayesianLearner, Learner, WeightLearner
from mesu.posterior import Bayesian
from mesu.streams import Permuted


@dataclass(frozen=True)
class PermutedDigits:
    """Settings of `mesu run permuted-digits`."""

    tasks: int = 30  # permutations, learned one after the other
    seeds: int = 3  # runs, each with its own permutations and first weights
    learners: tuple[str, ...] = ("mesu", "ewc-online", "si", "foo-vb", "ewc-stream", "sgd")  # who takes part
    epochs: int = 5  # times that each task's 1,437 examples are shown
    hidden: int = 50  # hidden units of the one layer, as in the paper
    samples: int = 10  # Monte Carlo samples of a training step
    test_samples: int = 10  # Monte Carlo samples of a prediction
    memory: float = 30_000  # N of MESU, in updates: about four tasks
    prior_std: float = 0.4  # prior of MESU
    update: str = "exact"  # MESU's step: exact or paper
    estimator: str = "local"  # how MESU and FOO-VB draw: local or weights
    sgd_lr: float = 0.002  # learning rate of SGD
    ewc_online_lr: float = 0.005  # learning rate of EWC Online
    ewc_online_strength: float = 5.0  # its lambda
    ewc_online_decay: float = 0.2  # its gamma
    ewc_stream_lr: float = 0.005  # learning rate of EWC Stream
    ewc_stream_strength: float = 1.0  # its lambda
    ewc_stream_decay: float = 0.2  # its gamma
    si_lr: float = 0.005  # learning rate of SI
    si_strength: float = 0.001  # its c

    name = "permuted-digits"

    def check(self) -> None:
        """Refuse settings that cannot run, before anything is started: builds every learner once."""
        if self.seeds < 1:
            raise ValueError(f"seeds must be 1 or more, got {self.seeds!r}")
        for name in ("epochs", "samples", "test_samples", "hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)!r}")
        if not self.learners or len(set(self.learners)) < len(self.learners):
            raise ValueError(f"learners must be different names, got {','.join(self.learners)!r}")
        stream = Permuted(digits(), self.tasks, seed=0)
        for learner in self.learners:
            self.learner(learner, stream.dataset.features, stream.dataset.classes, seed=0)

    def rows(self, learner: str, seed: int, task_done: Callable[[], None] = lambda: None) -> Iterator[Row]:
        """Train one learner with one seed and measure it after every task.

        Args:
            learner: A name from `self.learners`.
            seed: Decides the permutations, the first weights and the noise.
            task_done: Called after each task, for progress.
        """
        torch.set_num_threads(1)  # one example at a time: more threads only wait for each other
        stream = Permuted(digits(), self.tasks, seed)
        model = self.learner(learner, stream.dataset.features, stream.dataset.classes, seed)
        row = partial(Row, self.name, learner, seed)
        outside = stream.unseen()
        for task in stream:
            for _ in range(self.epochs):
                model.learn(task.x_train, task.y_train)
            model.boundary(task.x_train, task.y_train)
            step = (task.index + 1) * self.epochs * len(task.x_train)
            for old in range(task.index + 1):
                test = stream[old]
                probs = model.predict(test.x_test, self.test_samples).probs.numpy()
                yield row(step, task.index, old, "accuracy", measures.accuracy(probs, test.y_test))
            inside = model.predict(task.x_test, self.test_samples)
            error = measures.calibration_error(inside.probs.numpy(), task.y_test)
            yield row(step, task.index, None, "calibration_error", error)
            # a deterministic network has no epistemic uncertainty: aleatoric is all that it can offer
            kind = "epistemic" if isinstance(model, BayesianLearner) else "aleatoric"
            novel = model.predict(outside.x_test, self.test_samples)
            auroc = measures.auroc(getattr(inside, kind).numpy(), getattr(novel, kind).numpy())
            yield row(step, task.index, None, "ood_auroc", auroc)
            task_done()

    def learner(self, name: str, features: int, classes: int, seed: int) -> Learner:
        """A fresh learner by name."""
        torch.manual_seed(seed)
        # no biases, as in the paper; torch's own start is the paper's U(+-1/sqrt(fan_in)) for deterministic networks
        net = nn.Sequential(
            nn.Linear(features, self.hidden, bias=False), nn.ReLU(), nn.Linear(self.hidden, classes, bias=False)
        )
        if name in ("mesu", "foo-vb"):
            posterior = Bayesian(net, estimator=self.estimator, init="mnist", seed=seed)
            if name == "mesu":
                opt = optim.MESU(posterior, self.memory, prior_std=self.prior_std, update=self.update)
            else:
                opt = optim.FOOVB(posterior)
            return BayesianLearner(posterior, opt, self.samples)
        weights = list(net.parameters())
        rules = {
            "sgd": lambda: optim.SGD(weights, self.sgd_lr),
            "ewc-online": lambda: optim.EWCOnline(
                weights, self.ewc_online_lr, self.ewc_online_strength, self.ewc_online_decay
            ),
            "ewc-stream": lambda: optim.EWCStream(
                weights, self.ewc_stream_lr, self.ewc_stream_strength, self.ewc_stream_decay
            ),
            "si": lambda: optim.SI(weights, self.si_lr, self.si_strength),
        }
        if name not in rules:
            raise ValueError(f"there is no learner {name!r}: choose from mesu, foo-vb, {', '.join(rules)}")
        return WeightLearner(net, rules[name]())
