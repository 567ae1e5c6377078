"""A plain network under a weight rule (SGD, EWC, SI, ...), one example at a time, told of boundaries where it asks."""

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from mesu.engine import WeightEngine, why_not
from mesu.engine.supports import warn_fallback
from mesu.learners.state import check_moves, device_of, restore, tensors_of
from mesu.optim import WeightOptimizer
from mesu.prediction import Prediction, predict

FISHER_NUMBERS = 2**25  # how much of the gradients of single examples is held at once: an eighth of a gigabyte


class WeightLearner:
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
        if not isinstance(batch, Integral) or batch < 1:
            raise ValueError(f"batch must be a whole number, 1 or more, got {batch!r}")
        check_moves(net, optimizer)
        self.net, self.optimizer, self.batch = net, optimizer, batch
        reason = "it was told not to" if engine is False else why_not(net, optimizer)
        self.engine = WeightEngine(net, optimizer, batch) if reason is None else None  # type: ignore[arg-type]
        if reason is not None and engine is None:
            warn_fallback(net, reason)

    def learn(self, x: np.ndarray, y: np.ndarray, **inputs: Any) -> None:
        """One update for each `batch` examples, in order."""
        if self.engine is not None:
            self.engine.learn(x, y, **inputs)
            return
        for examples, labels in zip(
            torch.from_numpy(x).split(self.batch), torch.from_numpy(y).split(self.batch), strict=True
        ):
            examples, labels = examples.to(device_of(self.net)), labels.to(device_of(self.net))
            F.cross_entropy(self.net(examples, **inputs), labels, reduction="sum").backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def boundary(self, x: np.ndarray, y: np.ndarray, **inputs: Any) -> None:
        """Consolidate what the task's examples were worth, if the rule does."""
        if self.engine is not None:
            self.engine.boundary(x, y, **inputs)
        elif isinstance(self.optimizer, WeightOptimizer):
            task = torch.from_numpy(x), torch.from_numpy(y)
            self.optimizer.boundary(lambda: fisher_diagonal(self.net, *task, **inputs))

    def predict(self, x: np.ndarray, samples: int = 1, **inputs: Any) -> Prediction:
        """One answer: a deterministic network has aleatoric uncertainty only."""
        return predict(self.net, torch.from_numpy(x).to(device_of(self.net)), samples=1, **inputs)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything that a later update depends on, copied: `restore` goes on from it bit for bit."""
        return tensors_of(self.net, self.optimizer)

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Become what the learner was that gave these `tensors`."""
        restore(self.net, self.optimizer, tensors)


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
