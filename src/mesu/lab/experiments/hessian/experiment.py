"""Sigma against curvature (Supplementary Note 1): each learner's estimate of a weight's importance, and the true Hessian.

MNIST, batches of 32. After 1,000 to 1,000,000 updates the estimates for the 500 weights of the last layer are compared with
the diagonal of the true Hessian of the loss, summed over a batch:

    MESU    (1/sigma^2 - 1/sigma_prior^2) / N      (the limit of Proposition 5)
    FOO-VB  1 / (t sigma^2)                        (eq. for N = infinity)
    EWC     the Fisher diagonal                    SI   path / (moved^2 + xi)

The published SI began a new path at each comparison, so SI has a second correlation, of the path since the last one
(`pearson_restarted`).

Sigma estimates the Hessian averaged over the posterior, H_D = E[d2 L / d w2] (the lemma behind Proposition 5), so that is
the truth here; the Hessian at the mean weights is given too. A deterministic network has only the Hessian at its weights.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from mesu import optim
from mesu.lab.data import mnist
from mesu.lab.entry import Entry
from mesu.lab.experiments import checks
from mesu.lab.experiments.learners import Choice, make_learner, perceptron
from mesu.lab.experiments.trial import LearnerTrial
from mesu.lab.table import Row
from mesu.learners import BayesianLearner
from mesu.learners.plain import fisher_diagonal

PARTS = 10  # of the data: networks drawn from the posterior take turns on them, as the average is over both
START = 2.0  # the last layer's first sigma, times sqrt(hidden units), in the start called "mnist"


@dataclass(frozen=True)
class Hessian:
    """Settings of `mesu run hessian`: the published run's."""

    steps: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)  # updates after which the estimates are compared
    steps_per_stage: int = 10_000  # updates between two checkpoints
    seeds: int = 3  # runs, each with its own first weights and noise
    learners: tuple[str, ...] = ("mesu", "foo-vb", "ewc", "si")  # whose estimates
    batch: int = 32  # examples an update; their losses are summed
    hidden: int = 50  # hidden units of the one layer
    samples: int = 20  # Monte Carlo samples of a training step
    truth_samples: int = 100  # networks drawn from the posterior whose Hessians are averaged
    memory: float = 100_000  # N of MESU, in updates
    prior_std: float = 1.0  # prior of MESU
    max_step: float | None = 0.05  # trust region of MESU and FOO-VB, in units of sigma
    update: str = "paper"  # MESU's step: exact or paper
    estimator: str = "local"  # how MESU and FOO-VB draw: local, or weights as the paper does
    lr: float = 0.0001  # learning rate of the networks that EWC and SI judge
    si_damping: float = 0.1  # xi of SI

    name = "hessian"
    stage_name = "stages"
    scales: ClassVar[dict[str, dict[str, Any]]] = {
        "smoke": {"steps": (100,), "steps_per_stage": 100, "truth_samples": 10, "seeds": 1},
        "small": {"steps": (1_000, 10_000, 100_000), "seeds": 1},
        "paper": {},
    }

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The learners."""
        return tuple(Entry(name, cost=self.samples if name in ("mesu", "foo-vb") else 1) for name in self.learners)

    @property
    def ends(self) -> tuple[int, ...]:
        """Updates made at the end of each stage."""
        regular = range(self.steps_per_stage, max(self.steps) + 1, self.steps_per_stage)
        return tuple(sorted({*self.steps, *regular}))

    @property
    def stages(self) -> int:
        """One for each comparison and each checkpoint."""
        return len(self.ends)

    def check(self) -> None:
        """Refuse settings that cannot run, before anything is started."""
        checks.at_least_one(self, "seeds", "batch", "hidden", "samples", "truth_samples", "steps_per_stage")
        if not self.steps or min(self.steps) < 1:
            raise ValueError(f"steps must be one or more numbers of updates, got {self.steps!r}")
        if len(mnist().y_train) % self.batch:
            raise ValueError(f"batch must divide the {len(mnist().y_train):,} examples, got {self.batch!r}")
        for entry in self.entries:
            checks.can_be_made(entry, choices(self))

    def trial(self, entry: Entry, seed: int) -> "HessianTrial":
        """One learner with one seed."""
        return HessianTrial(self, entry, seed)


class HessianTrial(LearnerTrial):
    """One learner on MNIST, epoch after epoch; a stage is some thousand updates."""

    def __init__(self, settings: Hessian, entry: Entry, seed: int) -> None:
        self.settings, self.learner, self.seed = settings, entry.learner, seed
        network = partial(perceptron, mnist().features, settings.hidden, mnist().classes)
        self.model: Any = make_learner(
            entry.learner, choices(settings), network, seed, settings.samples, settings.batch
        )
        self.row = partial(Row, settings.name, entry.label, seed)
        self.path_before = torch.zeros(mnist().classes, settings.hidden)  # SI's path at the last comparison

    def tensors(self) -> dict[str, torch.Tensor]:
        """The learner's tensors, and SI's path at the last comparison."""
        return {**super().tensors(), "path_before": self.path_before.clone()}

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore the learner and the path."""
        super().restore({name: value for name, value in tensors.items() if name != "path_before"})
        self.path_before = tensors["path_before"].clone()

    def stage(self, index: int) -> Iterator[Row]:
        """Go on to the stage's end; if estimates are asked for there, compare them with the true Hessian."""
        ends, batch, data = self.settings.ends, self.settings.batch, mnist()
        at, end = (ends[index - 1] if index else 0) * batch, ends[index] * batch
        while at < end:
            first = at % len(data.y_train)
            count = min(end - at, len(data.y_train) - first)
            self.model.learn(data.x_train[first : first + count], data.y_train[first : first + count])
            at += count
        if ends[index] in self.settings.steps:
            yield from self.compare(ends[index], index)

    def compare(self, step: int, index: int) -> Iterator[Row]:
        """The estimate and the truth of every weight, and how well they agree."""
        row = partial(self.row, step, index)
        estimate = self.estimate(step)
        truths = {"hessian": self.truth(step)}
        if isinstance(self.model, BayesianLearner):
            truths["hessian_at_mean"] = true_diagonal(*self.weights(), mnist().x_train) * self.settings.batch
        for name, values in {"estimate": estimate, **truths}.items():
            for weight, value in enumerate(values.ravel()):
                yield row(None, name, float(value), weight)
        for truth, ending in zip(truths.values(), ("", "_at_mean"), strict=False):
            for name, value in agreement(estimate, truth, self.resolution(step)).items():
                yield row(None, f"{name}{ending}_{step}", value)
        if self.learner == "si":
            path, moved = self.path_and_way()
            since = importance(path - self.path_before, moved, self.settings.si_damping)
            self.path_before = path.clone()
            yield row(None, f"pearson_restarted_{step}", agreement(since, truths["hessian"])["pearson"])

    def truth(self, step: int) -> np.ndarray:
        """The Hessian's diagonal for a batch, averaged over networks drawn from the posterior."""
        first, last = self.weights()
        x, batch = mnist().x_train, self.settings.batch
        if not isinstance(self.model, BayesianLearner):
            return true_diagonal(first, last, x) * batch
        rng = np.random.default_rng([self.seed, step])
        stds = [pair.std.detach().double().numpy() for pair in self.model.net.pairs()]
        parts, draws = np.array_split(x, PARTS), self.settings.truth_samples
        total = np.zeros_like(last)
        for draw in range(draws):
            hidden, output = (
                mean + std * rng.standard_normal(mean.shape) for mean, std in zip((first, last), stds, strict=True)
            )
            total += true_diagonal(hidden, output, parts[draw % PARTS])
        return total * (batch / draws)

    def resolution(self, step: int) -> float:
        """The smallest Hessian that a learner can estimate: below it, the start or the prior outweighs the evidence."""
        if self.learner == "mesu":
            return self.settings.prior_std**-2 / self.settings.memory
        if self.learner == "foo-vb":
            return self.settings.hidden / START**2 / step
        return 0.0

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        """The (mean) weights of both layers."""
        net = self.model.net.module if isinstance(self.model, BayesianLearner) else self.model.net
        first, last = (p.detach().numpy().astype(np.float64) for name, p in net.named_parameters() if "std" not in name)
        return first, last

    def estimate(self, step: int) -> np.ndarray:
        """The learner's own estimate of the curvature of the last layer's weights."""
        if isinstance(self.model, BayesianLearner):
            precision = list(self.model.net.pairs())[-1].std.detach().double().numpy() ** -2
            if self.learner == "foo-vb":
                return precision / step
            return (precision - self.settings.prior_std**-2) / self.settings.memory
        if self.learner == "ewc":
            data = mnist()
            fisher = fisher_diagonal(self.model.net, torch.from_numpy(data.x_train), torch.from_numpy(data.y_train))
            return fisher[-1].double().numpy() * self.settings.batch
        return importance(*self.path_and_way(), self.settings.si_damping)

    def path_and_way(self) -> tuple[torch.Tensor, torch.Tensor]:
        """SI's path integral of the last layer's weights, and how far they have come."""
        last = list(self.model.net.parameters())[-1]
        state = self.model.optimizer.state[last]
        return state["path"].detach(), last.detach() - state["anchor"]


def importance(path: torch.Tensor, moved: torch.Tensor, damping: float) -> np.ndarray:
    """SI's importance of weights: what their movement has contributed, by the square of how far they have come."""
    return (path / (moved * moved + damping)).clamp(min=0).double().numpy()


def choices(settings: Hessian) -> dict[str, Choice]:
    """The learners; EWC and SI estimate from networks that plain gradient descent trains."""
    s = settings
    posterior = {"estimator": s.estimator, "init": "mnist"}
    mesu: dict[str, Any] = {"prior_std": s.prior_std, "update": s.update, "max_step": s.max_step}
    # without strength, the penalty never acts and the path is that of gradient descent
    descent = Choice(lambda weights: optim.SI(weights, s.lr, 0.0, s.si_damping))
    return {
        "mesu": Choice(lambda net: optim.MESU(net, s.memory, **mesu), posterior),
        "foo-vb": Choice(lambda net: optim.FOOVB(net, max_step=s.max_step), posterior),
        "ewc": descent,
        "si": descent,
    }


def true_diagonal(first: np.ndarray, last: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The Hessian's diagonal of the mean loss in the last layer's weights: mean over examples of p_k (1 - p_k) h_j^2."""
    total = np.zeros_like(last)
    for part in np.array_split(x, max(1, len(x) // 5_000)):
        h = np.maximum(part @ first.T, 0)
        logits = h @ last.T
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        total += (p * (1 - p)).T @ (h * h)
    return total / len(x)


def agreement(estimate: np.ndarray, truth: np.ndarray, resolution: float = 0.0) -> dict[str, float]:
    """Pearson's correlation over all weights; the slope of the logarithms over those whose Hessian is above `resolution`."""
    estimate, truth = estimate.ravel(), truth.ravel()
    told = (estimate > 0) & (truth > resolution)
    share = {"resolved": float(told.mean())}
    if estimate.std() == 0 or truth.std() == 0:
        return {"pearson": float("nan"), "slope": float("nan")} | share
    slope = np.polyfit(np.log(truth[told]), np.log(estimate[told]), 1)[0] if told.sum() > 1 else float("nan")
    return {"pearson": float(np.corrcoef(estimate, truth)[0, 1]), "slope": float(slope)} | share
