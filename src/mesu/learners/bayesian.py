"""A posterior that learns a stream one example at a time, with no boundaries: compiled where it can be."""

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
import torch

from mesu.engine import PosteriorEngine, why_not
from mesu.engine.supports import warn_fallback
from mesu.learners.state import check_moves, device_of, restore, tensors_of
from mesu.optim import PosteriorOptimizer
from mesu.posterior.bayesian import Bayesian
from mesu.prediction import predict, summarise


class BayesianLearner:
    """A `Bayesian` network and the rule that moves it.

    Perceptrons on the CPU learn in the compiled engine, anything else on the torch path (and a warning says so, once):
    `mesu.engine.why_not` gives the reason.

    Args:
        net: The posterior.
        optimizer: `MESU`, `FOOVB`, ... on that posterior.
        samples: Monte Carlo samples of each training step.
        batch: Examples an update.
        engine: False for the torch path in any case; None for the engine where it can run, and a warning where it cannot.

    Example:
        >>> net = mesu.Bayesian(nn.Linear(4, 3), seed=0)
        >>> learner = mesu.BayesianLearner(net, mesu.MESU(net, memory=1000))
        >>> learner.learn(np.ones((5, 4), dtype=np.float32), np.array([0, 1, 2, 1, 0]))
        >>> learner.predict(np.ones((2, 4), dtype=np.float32), samples=10).probs.shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        net: Bayesian,
        optimizer: PosteriorOptimizer,
        samples: int = 10,
        batch: int = 1,
        engine: bool | None = None,
    ) -> None:
        for name, value in (("samples", samples), ("batch", batch)):
            if not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} must be a whole number, 1 or more, got {value!r}")
        check_moves(net, optimizer)
        self.net, self.optimizer, self.samples, self.batch = net, optimizer, samples, batch
        reason = "it was told not to" if engine is False else why_not(net, optimizer)
        self.engine = PosteriorEngine(net, optimizer, samples, batch) if reason is None else None
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
            self.net.nll(examples, labels, samples=self.samples, **inputs).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def boundary(self, x: np.ndarray, y: np.ndarray, **inputs: Any) -> None:
        """Nothing: forgetting needs no boundary."""

    def predict(self, x: np.ndarray, samples: int = 100, **inputs: Any) -> Any:
        """The average over drawn networks."""
        if self.engine is not None:
            return summarise(self.net, torch.from_numpy(self.engine.draw(x, samples)))
        return predict(self.net, torch.from_numpy(x).to(device_of(self.net)), samples=samples, **inputs)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything that a later update depends on, copied: `restore` goes on from it bit for bit."""
        return tensors_of(self.net, self.optimizer)

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Become what the learner was that gave these `tensors`."""
        restore(self.net, self.optimizer, tensors)
