"""A plain network under a weight rule (SGD, EWC, SI, ...), one example at a time, told of boundaries where it asks."""

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from mesu.engine import WeightEngine, why_not
from mesu.engine.stream import warn_fallback
from mesu.learners.state import restore, tensors_of
from mesu.optim import EWC, SI, WeightOptimizer
from mesu.prediction import Prediction, predict

FISHER_CHUNK = 512  # examples whose gradients are held at once


class WeightLearner:
    """A deterministic network and the rule that moves it.

    Args:
        net: The network.
        optimizer: A weight rule on its parameters; `EWC` and `SI` consolidate at boundaries.
        batch: Examples an update; their losses are summed.
    """

    def __init__(self, net: nn.Module, optimizer: WeightOptimizer, batch: int = 1) -> None:
        self.net, self.optimizer, self.batch = net, optimizer, batch
        reason = why_not(net, optimizer)
        self.engine = WeightEngine(net, optimizer, batch) if reason is None else None
        if reason is not None:
            warn_fallback(net, reason)

    def learn(self, x: np.ndarray, y: np.ndarray) -> None:
        """One update for each `batch` examples, in order."""
        if self.engine is not None:
            self.engine.learn(x, y)
            return
        for examples, labels in zip(
            torch.from_numpy(x).split(self.batch), torch.from_numpy(y).split(self.batch), strict=True
        ):
            F.cross_entropy(self.net(examples), labels, reduction="sum").backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def boundary(self, x: np.ndarray, y: np.ndarray) -> None:
        """Consolidate what the task's examples were worth, if the rule does."""
        if self.engine is not None:
            self.engine.boundary(x, y)
        elif isinstance(self.optimizer, EWC):
            self.optimizer.consolidate(fisher_diagonal(self.net, torch.from_numpy(x), torch.from_numpy(y)))
        elif isinstance(self.optimizer, SI):
            self.optimizer.consolidate()

    def predict(self, x: np.ndarray, samples: int) -> Prediction:
        """One answer: a deterministic network has aleatoric uncertainty only."""
        return predict(self.net, torch.from_numpy(x), samples=1)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything that a later update depends on, copied: `restore` goes on from it bit for bit."""
        return tensors_of(self.net, self.optimizer)

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Become what the learner was that gave these `tensors`."""
        restore(self.net, self.optimizer, tensors)


def fisher_diagonal(net: nn.Module, x: Tensor, y: Tensor) -> list[Tensor]:
    """For each parameter, the mean over examples of the squared gradient of one example's loss at its true label."""
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def loss(weights, example, label):
        return F.cross_entropy(functional_call(net, weights, (example[None],)), label[None])

    per_example = vmap(grad(loss), in_dims=(None, 0, 0))
    total = {name: torch.zeros_like(p) for name, p in parameters.items()}
    for part, labels in zip(x.split(FISHER_CHUNK), y.split(FISHER_CHUNK), strict=True):
        for name, g in per_example(parameters, part, labels).items():
            total[name] += g.square().sum(0)
    return [total[name] / len(x) for name in parameters]
