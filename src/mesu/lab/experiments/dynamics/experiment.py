"""Sigma over time (Proposition 5): single weights of a linear regression with known curvature, for several memories.

With curvature H of one update's loss, prior sigma_p and gamma = lr_std / 2, the paper derives

    sigma(t) = sigma_0 e^(gamma t/N) / sqrt(1 + N sigma_0^2 (H + 1/(N sigma_p^2)) (e^(2 gamma t/N) - 1))

which for N = infinity is sigma_0 / sqrt(1 + 2 gamma t sigma_0^2 H). Here the inputs have different scales, so that each weight
has its own H = E[x^2] / noise^2, and sigma is recorded while the network learns one example at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, ClassVar

import numpy as np
from torch import nn

from mesu import optim
from mesu.lab.entry import Entry
from mesu.lab.experiments import checks
from mesu.lab.experiments.learners import Choice, make_learner
from mesu.lab.experiments.trial import LearnerTrial
from mesu.lab.table import Row
from mesu.posterior.likelihood import GaussianNoise
from mesu.rules import dynamics


@dataclass(frozen=True)
class Dynamics:
    """Settings of `mesu run dynamics`."""

    steps: int = 300_000  # updates, one example each
    stages: int = 40  # times at which sigma is looked at, in equal ratios
    seeds: int = 5  # runs, each with its own examples and noise
    memory: tuple[float, ...] = (1_000, 10_000, 100_000, inf)  # N, in updates
    scales_of_inputs: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0)  # standard deviations; curvature goes with the square
    noise_std: float = 1.0  # of the targets
    first_std: float = 0.05  # sigma_0; small enough for the paper's step never to overshoot
    prior_std: float = 0.5  # sigma_p
    lr_std: float = 1.0  # gamma is half of it
    samples: int = 10  # Monte Carlo samples of a training step
    update: str = "paper"  # MESU's step: exact or paper

    name = "dynamics"
    stage_name = "stages"
    scales: ClassVar[dict[str, dict[str, Any]]] = {
        "smoke": {"steps": 3_000, "stages": 10, "seeds": 1, "memory": (1_000, inf)},
        "small": {},
        "paper": {"steps": 1_000_000},
    }

    @property
    def entries(self) -> tuple[Entry, ...]:
        """One a memory."""
        return tuple(Entry("mesu", "memory", memory) for memory in self.memory)

    @property
    def ends(self) -> np.ndarray:
        """Updates made at the end of each stage: from 10 on, in equal ratios."""
        return np.unique(np.geomspace(min(10, self.steps), self.steps, self.stages).round().astype(int))

    def check(self) -> None:
        """Refuse settings that cannot run, before anything is started."""
        if self.seeds < 1 or self.samples < 1 or self.stages < 1 or len(self.ends) != self.stages:
            raise ValueError(
                f"steps must be enough for the stages, and seeds, samples and stages 1 or more: got steps={self.steps!r}, "
                f"stages={self.stages!r}, seeds={self.seeds!r}, samples={self.samples!r}"
            )
        checks.all_different(self, "memory")
        for entry in self.entries:
            checks.can_be_made(entry, choices(self, entry))

    def trial(self, entry: Entry, seed: int) -> "DynamicsTrial":
        """One memory with one seed."""
        return DynamicsTrial(self, entry, seed)


def choices(settings: Dynamics, entry: Entry) -> dict[str, Choice]:
    """MESU with the entry's memory, from one sigma for all weights."""
    memory = entry.get("memory", settings.memory[0])
    posterior = {"likelihood": GaussianNoise(settings.noise_std), "init_std": settings.first_std}
    rates: dict[str, Any] = {"lr_std": settings.lr_std, "update": settings.update, "max_step": None}
    return {"mesu": Choice(lambda net: optim.MESU(net, memory, prior_std=settings.prior_std, **rates), posterior)}


class DynamicsTrial(LearnerTrial):
    """A linear regression that learns one example at a time; a stage ends where sigma is looked at."""

    def __init__(self, settings: Dynamics, entry: Entry, seed: int) -> None:
        self.settings, self.seed, self.memory = settings, seed, entry.get("memory", settings.memory[0])
        network = partial(nn.Linear, len(settings.scales_of_inputs), 1, bias=False)
        self.model: Any = make_learner(entry.learner, choices(settings, entry), network, seed, settings.samples)
        self.row = partial(Row, settings.name, entry.label, seed)

    def stage(self, index: int) -> Iterator[Row]:
        """Learn up to the stage's end; give each weight's sigma and what Proposition 5 says."""
        settings = self.settings
        begin, end = (int(settings.ends[index - 1]) if index else 0), int(settings.ends[index])
        rng = np.random.default_rng([self.seed, index])
        scales = np.array(settings.scales_of_inputs)
        x = rng.normal(size=(end - begin, len(scales))) * scales
        truth = np.random.default_rng(self.seed).normal(size=len(scales))
        y = x @ truth + settings.noise_std * rng.normal(size=end - begin)
        self.model.learn(x.astype(np.float32), y[:, None].astype(np.float32))
        std = next(iter(self.model.net.pairs())).std.detach().double().numpy().ravel()
        expected = dynamics.sigma_after(
            end,
            settings.first_std,
            scales**2 / settings.noise_std**2,
            self.memory,
            settings.prior_std,
            settings.lr_std,
        )
        row = partial(self.row, end, index)
        for weight, (ours, theirs) in enumerate(zip(std, expected, strict=True)):
            yield row(None, "std", float(ours), weight)
            yield row(None, "proposition_5", float(theirs), weight)
        yield row(None, "deviation", float(np.abs(std / expected - 1).mean()))
