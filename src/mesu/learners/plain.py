"""A deterministic network under a weight rule (SGD, EWC, SI, ...); EWC and SI are told of boundaries."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from mesu.engine import WeightEngine, why_not
from mesu.engine.supports import warn_fallback, why_not_likelihood
from mesu.learners.chunks import ChunkLearner
from mesu.learners.replaying import checked_replay
from mesu.learners.state import check_moves, device_of
from mesu.optim import WeightOptimizer
from mesu.posterior.likelihood import Categorical, Likelihood, named
from mesu.prediction import predict
from mesu.replay import Replay
from mesu.rules.checks import whole

FISHER_NUMBERS = 2**25  # how much of the gradients of single examples is held at once: an eighth of a gigabyte


class WeightLearner(ChunkLearner):
    """A deterministic network and the rule that moves it.

    Args:
        net: The network.
        optimizer: A weight rule on its parameters; `EWC` and `SI` consolidate at boundaries.
        batch: Examples an update; their losses are summed.
        engine: False for the torch path in any case; None for the engine where it can run, and a warning where it cannot.
        likelihood: What the outputs mean, by name or as an object, as for `Bayesian`.
        mean: Descend the mean of a batch's losses instead of their sum. A penalty such as EWC's is then `batch` times as strong
            beside them.
        replay: Rows to keep and to learn again among the new ones, as they are drawn.
    """

    def __init__(
        self,
        net: nn.Module,
        optimizer: torch.optim.Optimizer,
        batch: int = 1,
        engine: bool | None = None,
        likelihood: str | Likelihood = "categorical",
        mean: bool = False,
        replay: Replay | None = None,
    ) -> None:
        self.batch, self.likelihood, self.mean = whole("batch", batch), named(likelihood), mean
        check_moves(net, optimizer)
        self.net, self.optimizer = net, optimizer
        self.replay = checked_replay(net, optimizer, replay)
        reason = "it was told not to" if engine is False else self.why_not()
        self.engine = WeightEngine(net, optimizer, batch) if reason is None else None  # type: ignore[arg-type]
        if reason is not None and engine is None:
            warn_fallback(net, reason)

    def why_not(self) -> str | None:
        """Why the engine cannot learn this; None if it can."""
        reason = why_not(self.net, self.optimizer) or why_not_likelihood(self.likelihood)
        if reason is None and not isinstance(self.likelihood, Categorical):
            reason = f"its likelihood is {type(self.likelihood).__name__}, and compiled weight rules learn classes only"
        if reason is None and self.mean and self.batch > 1:
            reason = "it descends the mean of a batch's losses, and compiled weight rules their sum"
        return reason

    def cost(self, x: Tensor, y: Tensor, **inputs: Any) -> Tensor:
        """The likelihood's cost, summed over the batch, or its mean."""
        self.check_targets(y)
        total = self.likelihood.nll(self.net(x, **inputs)[None], y)
        return total / len(y) if self.mean else total

    def check_targets(self, y: Tensor) -> None:
        """Check targets with the likelihood."""
        self.likelihood.check(y)

    def boundary(self, x: np.ndarray, y: np.ndarray, **inputs: Any) -> None:
        """A task ended: consolidate, if the rule does."""
        engine = self.compiled()
        if engine is not None:
            engine.boundary(x, y, **inputs)
        elif isinstance(self.optimizer, WeightOptimizer):
            task = torch.from_numpy(x), torch.from_numpy(y)
            self.optimizer.boundary(lambda: fisher_diagonal(self.net, *task, self.likelihood, **inputs))

    def predict(self, x: np.ndarray, samples: int = 1, **inputs: Any) -> Any:
        """One output a row: a deterministic network has aleatoric uncertainty only."""
        x_there = torch.from_numpy(x).to(device_of(self.net))
        return predict(self.net, x_there, samples=1, likelihood=self.likelihood, **inputs)


def fisher_diagonal(
    net: nn.Module, x: Tensor, y: Tensor, likelihood: Likelihood | None = None, **inputs: Any
) -> list[Tensor]:
    """For each parameter, the mean over examples of the squared gradient of one example's loss at its true label.

    The network's mode is left alone: in training mode, dropout is drawn anew for every example. The result is zero for
    parameters that the loss does not reach, such as the heads of other tasks.
    """
    if likelihood is not None and (not isinstance(likelihood, Categorical) or why_not_likelihood(likelihood)):
        return _fisher_one_by_one(net, x, y, likelihood, inputs)
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def loss(weights, example, label):
        return F.cross_entropy(functional_call(net, weights, (example[None],), inputs), label[None])

    per_example = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")
    total = {name: torch.zeros_like(p) for name, p in parameters.items()}
    chunk = max(1, FISHER_NUMBERS // sum(p.numel() for p in parameters.values()))
    x, y = x.to(device_of(net)), y.to(device_of(net))
    for part, labels in zip(x.split(chunk), y.split(chunk), strict=True):
        for name, g in per_example(parameters, part, labels).items():
            total[name] += g.square().sum(0)
    return [total[name] / len(x) for name in parameters]


def _fisher_one_by_one(net: nn.Module, x: Tensor, y: Tensor, likelihood: Likelihood, inputs: Any) -> list[Tensor]:
    """The same for any likelihood, whose checks may look at values, which `vmap` does not allow."""
    parameters = list(net.parameters())
    total = [torch.zeros_like(p) for p in parameters]
    for example, target in zip(x.to(device_of(net)).split(1), y.to(device_of(net)).split(1), strict=True):
        cost = likelihood.nll(net(example, **inputs)[None], target)
        gradients = torch.autograd.grad(cost, [p for p in parameters if p.requires_grad], allow_unused=True)
        learning = [sum_ for sum_, p in zip(total, parameters, strict=True) if p.requires_grad]
        for sum_, g in zip(learning, gradients, strict=True):
            if g is not None:
                sum_ += g.square()
    return [sum_ / len(x) for sum_ in total]
