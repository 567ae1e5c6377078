"""Vanishing uncertainty (Fig. 4): MNIST for 1,000 epochs. Networks that never forget grow sure of all they see, clothes too.

The outliers are digits with their pixels shuffled, as the paper's text says, and clothes, as its caption does. AUROC is by
ranks, and once more by a few thresholds: the paper's numbers come out only so.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import log
from typing import Any, ClassVar

import numpy as np
import torch

from mesu import measures
from mesu.lab.data import fashion_mnist, mnist
from mesu.lab.experiments.permuted import shared as permuted
from mesu.lab.experiments.trial import LearnerTrial
from mesu.lab.streams import Permuted, Stationary
from mesu.lab.table import Row
from mesu.learners import BayesianLearner

THRESHOLDS = np.linspace(0, log(10), 20)  # of `coarse_auroc`: equally spaced over all that an entropy can be


@dataclass(frozen=True)
class Vanishing:
    """Settings of `mesu run vanishing`: the paper's table, and the published run where the two differ."""

    epochs: int = 1_000  # times that the 60,000 examples are shown, in file order
    epochs_per_stage: int = 10  # epochs between two tests
    seeds: int = 5  # runs, each with its own first weights and noise
    learners: tuple[str, ...] = ("mesu", "foo-vb", "ewc-stream", "sgd")  # who takes part
    hidden: int = 50  # hidden units of the one layer
    samples: int = 10  # Monte Carlo samples of a training step
    test_samples: int = 10  # Monte Carlo samples of a prediction
    memory: tuple[float, ...] = (180_000, 1e15)  # N of MESU, in updates: three epochs, and for ever
    prior_std: float = 0.06  # prior of MESU
    max_step: float | None = 0.1  # trust region of MESU and FOO-VB: the published run clips gradients to 0.1 / sigma
    update: str = "paper"  # MESU's step: exact or paper
    init_scale: float = 1.0  # start of MESU and FOO-VB: what the paper's first sigma, 2/sqrt(fan_in), is multiplied by
    estimator: str = "local"  # how MESU and FOO-VB draw: local, or weights as the paper does
    sgd_lr: float = 0.002  # learning rate of SGD
    ewc_online_lr: float = 0.002  # learning rate of EWC Online
    ewc_online_strength: float = 2.0  # its lambda
    ewc_online_decay: float = 0.2  # its gamma
    ewc_stream_lr: float = 0.002  # learning rate of EWC Stream
    ewc_stream_strength: float = 5.0  # its lambda
    ewc_stream_decay: float = 0.2  # its gamma
    si_lr: float = 0.002  # learning rate of SI
    si_strength: float = 1e-4  # its c

    name = "vanishing"
    stage_name = "stages"
    scales: ClassVar[dict[str, dict[str, Any]]] = {
        "smoke": {"epochs": 2, "epochs_per_stage": 1, "seeds": 1},
        "small": {"epochs": 50, "epochs_per_stage": 5, "seeds": 1},
        "paper": {},
    }

    @property
    def contestants(self) -> tuple[str, ...]:
        """The learners, MESU once for each memory."""
        return permuted.contestants(self)

    @property
    def stages(self) -> int:
        """One for every few epochs."""
        return self.epochs // self.epochs_per_stage

    def check(self) -> None:
        """Refuse settings that cannot run, before anything is started."""
        if self.epochs_per_stage < 1 or self.epochs < 1 or self.epochs % self.epochs_per_stage:
            raise ValueError(
                f"epochs must be a multiple of epochs_per_stage, got {self.epochs!r} and {self.epochs_per_stage!r}"
            )
        permuted.check(self, mnist())
        fashion_mnist()

    def trial(self, contestant: str, seed: int) -> "VanishingTrial":
        """One learner with one seed."""
        return VanishingTrial(self, contestant, seed)


class VanishingTrial(LearnerTrial):
    """One learner on the same data for many epochs; a stage is a few of them."""

    def __init__(self, settings: Vanishing, contestant: str, seed: int) -> None:
        torch.set_num_threads(1)  # learners and seeds run side by side: more threads only wait for each other
        self.settings, self.stream = settings, Stationary(mnist(), settings.epochs)
        self.shuffled = Permuted(mnist(), 1, seed)[0].x_test
        self.model = permuted.make_learner(settings, mnist(), contestant, seed)
        self.row = partial(Row, settings.name, contestant, seed)

    def stage(self, index: int) -> Iterator[Row]:
        """Learn some epochs, then measure accuracy, the telling of outliers, and the mean sigma."""
        settings = self.settings
        first = index * settings.epochs_per_stage
        task = self.stream[first]
        for epoch in range(first, first + settings.epochs_per_stage):
            task = self.stream[epoch]
            self.model.learn(task.x_train, task.y_train)
        row = partial(self.row, (first + settings.epochs_per_stage) * len(task.y_train), index, None)
        inside = self.model.predict(task.x_test, settings.test_samples)
        yield row("accuracy", measures.accuracy(inside.probs.numpy(), task.y_test))
        shuffled, clothes = (
            self.model.predict(x, settings.test_samples) for x in (self.shuffled, fashion_mnist().x_test)
        )
        kind = "epistemic" if isinstance(self.model, BayesianLearner) else "aleatoric"
        here, there, elsewhere = (getattr(each, kind).numpy() for each in (inside, shuffled, clothes))
        yield row("ood_auroc", measures.auroc(here, there))
        yield row("coarse_auroc", measures.auroc_by_thresholds(here, there, THRESHOLDS))
        yield row("fashion_auroc", measures.auroc(here, elsewhere))
        yield row("uncertainty_inside", float(here.mean()))
        yield row("uncertainty_outside", float(there.mean()))
        if isinstance(self.model, BayesianLearner):
            # of each layer first, as in the paper: else the first layer's weights would be nearly all of them
            yield row("layer_std", float(np.mean([pair.std.detach().mean() for pair in self.model.net.pairs()])))
