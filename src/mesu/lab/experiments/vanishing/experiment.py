"""Vanishing uncertainty (Fig. 4): MNIST for 1,000 epochs. Networks that never forget become certain even of clothes.

The outliers are digits with shuffled pixels, as in the paper's text, and clothes, as in its caption. AUROC is computed from
ranks, and a second time as published: from 1,000 thresholds, up to the largest doubt of an outlier. Both are also given for
the aleatoric part of a posterior's doubt, which is all the doubt that a plain network has.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from mesu import measures
from mesu.lab.data import fashion_mnist, mnist
from mesu.lab.entry import Entry
from mesu.lab.experiments.learners import uncertainty
from mesu.lab.experiments.permuted.shared import SixLearners
from mesu.lab.experiments.trial import LearnerTrial
from mesu.lab.streams import Permuted, Stationary
from mesu.lab.table import Row
from mesu.learners import BayesianLearner

THRESHOLDS = 1_000  # of the published AUROC


@dataclass(frozen=True)
class Vanishing(SixLearners):
    """Settings of `mesu run vanishing`: the paper's table, and the published run where the two differ."""

    epochs: int = 1_000  # times that the 60,000 examples are shown, in file order
    epochs_per_stage: int = 10  # epochs between two tests
    learners: tuple[str, ...] = ("mesu", "foo-vb", "ewc-stream", "sgd")  # who takes part
    memory: tuple[float, ...] = (180_000, 1e15)  # N of MESU, in updates: three epochs, and for ever
    prior_std: float = 0.06  # prior of MESU
    max_step: float | None = 0.1  # trust region of MESU and FOO-VB: the published run clips gradients to 0.1 / sigma

    name: ClassVar[str] = "vanishing"
    stage_name: ClassVar[str] = "stages"
    scales: ClassVar[dict[str, dict[str, Any]]] = {
        "smoke": {"epochs": 2, "epochs_per_stage": 1, "seeds": 1},
        "small": {"epochs": 50, "epochs_per_stage": 5, "seeds": 1},
        "paper": {},
    }

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
        self.check_learners()
        mnist()
        fashion_mnist()

    def trial(self, entry: Entry, seed: int) -> "VanishingTrial":
        """One learner with one seed."""
        return VanishingTrial(self, entry, seed)


class VanishingTrial(LearnerTrial):
    """One learner on the same data for many epochs; a stage is a few of them."""

    def __init__(self, settings: Vanishing, entry: Entry, seed: int) -> None:
        self.settings, self.stream = settings, Stationary(mnist(), settings.epochs)
        self.shuffled = Permuted(mnist(), 1, seed)[0].x_test
        self.model: Any = settings.learner(entry, mnist(), seed)
        self.row = partial(Row, settings.name, entry.label, seed)

    def stage(self, index: int) -> Iterator[Row]:
        """Learn some epochs, then measure accuracy, AUROC on outliers, and the mean sigma."""
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
        here, there, elsewhere = (uncertainty(self.model, each) for each in (inside, shuffled, clothes))
        yield row("ood_auroc", measures.auroc(here, there))
        yield row("published_auroc", published_auroc(here, there))
        yield row("fashion_auroc", measures.auroc(here, elsewhere))
        yield row("uncertainty_inside", float(here.mean()))
        yield row("uncertainty_outside", float(there.mean()))
        if isinstance(self.model, BayesianLearner):
            aleatoric = inside.aleatoric.numpy(), shuffled.aleatoric.numpy()
            yield row("aleatoric_auroc", measures.auroc(*aleatoric))
            yield row("published_aleatoric_auroc", published_auroc(*aleatoric))
            # of each layer first, as in the paper: else the first layer's weights would be nearly all of them
            yield row("layer_std", float(np.mean([pair.std.detach().mean() for pair in self.model.net.pairs()])))


def published_auroc(inside: np.ndarray, outside: np.ndarray) -> float:
    """AUROC by the formula of the published numbers: 1,000 thresholds, from 0 to the largest doubt among the outliers."""
    return measures.auroc_by_thresholds(inside, outside, np.linspace(0, outside.max(), THRESHOLDS))
