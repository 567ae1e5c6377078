"""A deterministic network under a weight rule (SGD, EWC, SI, ...); EWC and SI are told of boundaries."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from mesu.engine import WeightEngine, why_not
from mesu.engine.run import warn_fallback
from mesu.learners.chunks import ChunkLearner, whole
from mesu.learners.state import check_moves, device_of
from mesu.optim import EWC, SI
from mesu.posterior.likelihood import Categorical
from mesu.prediction import Prediction, predict

FISHER_NUMBERS = 2**25  # how much of the gradients of single examples is held at once: an eighth of a gigabyte


class WeightLearner(ChunkLearner):
    """A deterministic network and the rule that moves it.

    Args:
        net: The network.
        optimizer: A weight rule on its parameters; `EWC` and `SI` consolidate at boundaries.
        batch: Examples an update; their losses are summed.
        engine: False for the torch path in any case; None for the engine where it can run, and a warning where it cannot.
    """

    def __init__(
        self, net: nn.Module, optimizer: torch.optim.Optimizer, batch: int = 1, engine: bool | None = None
    ) -> None:
        self.batch = whole("batch", batch)
        check_moves(net, optimizer)
        self.net, self.optimizer = net, optimizer
        reason = "it was told not to" if engine is False else why_not(net, optimizer)
        self.engine = WeightEngine(net, optimizer, batch) if reason is None else None  # type: ignore[arg-type]
        if reason is not None and engine is None:
            warn_fallback(net, reason)

    def cost(self, x: Tensor, y: Tensor, **inputs: Any) -> Tensor:
        """Cross-entropy, summed over the batch."""
        return Categorical().nll(self.net(x, **inputs)[None], y)

    def boundary(self, x: np.ndarray, y: np.ndarray, **inputs: Any) -> None:
        """A task ended: consolidate, if the rule does."""
        if self.engine is not None:
            self.engine.boundary(x, y, **inputs)
        elif isinstance(self.optimizer, EWC):
            self.optimizer.consolidate(fisher_diagonal(self.net, torch.from_numpy(x), torch.from_numpy(y), **inputs))
        elif isinstance(self.optimizer, SI):
            self.optimizer.consolidate()

    def predict(self, x: np.ndarray, samples: int = 1, **inputs: Any) -> Prediction:
        """One answer: a deterministic network has aleatoric uncertainty only."""
        return predict(self.net, torch.from_numpy(x).to(device_of(self.net)), samples=1, **inputs)


def fisher_diagonal(net: nn.Module, x: Tensor, y: Tensor, **inputs: Any) -> list[Tensor]:
    """For each parameter, the mean over examples of the squared gradient of one example's loss at its true label.

    The network is as it is: in training, every example meets a dropout of its own. Parameters that the loss does not reach,
    such as other tasks' heads, have none.
    """
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
