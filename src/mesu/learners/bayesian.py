"""A posterior that learns a stream one example at a time, with no boundaries: compiled where it can be."""

from typing import Any

import numpy as np
import torch

from mesu.engine import PosteriorEngine
from mesu.engine.supports import warn_fallback
from mesu.learners.chunks import ChunkLearner
from mesu.learners.replaying import checked_replay
from mesu.learners.state import check_moves, device_of
from mesu.optim import PosteriorOptimizer
from mesu.posterior.bayesian import AT_MEAN, Bayesian
from mesu.prediction import predict
from mesu.replay import DRAWS, Replay, epistemic
from mesu.rules.checks import whole


class BayesianLearner(ChunkLearner):
    """A `Bayesian` network and the rule that moves it.

    Perceptrons on the CPU learn in the compiled engine, anything else on the torch path (and a warning says so, once):
    `mesu.engine.why_not` gives the reason.

    Args:
        net: The posterior.
        optimizer: `MESU`, `FOOVB`, ... on that posterior.
        samples: Monte Carlo samples of each training step; 10 by default. The estimator ``"linear"`` draws none in the engine,
            and takes this many drawn labels for its curvature on the torch path, 1 by default.
        batch: Examples an update.
        engine: False for the torch path in any case; None for the engine where it can run, and a warning where it cannot.
        replay: Rows to keep and to learn again among the new ones; sigma and the memory count each row once.

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
        samples: int | None = None,
        batch: int = 1,
        engine: bool | None = None,
        replay: Replay | None = None,
    ) -> None:
        if samples is None:
            samples = 1 if net.estimator in AT_MEAN else 10
        self.samples, self.batch = samples, batch = whole("samples", samples), whole("batch", batch)
        check_moves(net, optimizer)
        self.net, self.optimizer = net, optimizer
        self.replay = checked_replay(net, optimizer, replay)
        reason = "it was told not to" if engine is False else self.why_not()
        self.engine = PosteriorEngine(net, optimizer, samples, batch) if reason is None else None
        if reason is not None and engine is None:
            warn_fallback(net, reason)

    @property
    def likelihood(self) -> Any:
        """What the network's outputs mean."""
        return self.net.likelihood

    def cost(self, x: torch.Tensor, y: torch.Tensor, **inputs: Any) -> torch.Tensor:
        """Equation 11, by draws or at the means."""
        return self.net.nll(x, y, samples=self.samples, **inputs)

    def check_targets(self, y: torch.Tensor) -> None:
        """Check targets with the posterior's likelihood."""
        self.net.likelihood.check(y)

    def score(self, replay: Replay) -> None:
        """Tell the buffer how epistemic its rows are."""
        replay.score(lambda rows: epistemic(self.predict(rows, DRAWS)))

    def boundary(self, x: np.ndarray, y: np.ndarray, **inputs: Any) -> None:
        """Do nothing: forgetting needs no boundary."""

    def predict(self, x: np.ndarray, samples: int = 100, **inputs: Any) -> Any:
        """The average over drawn networks."""
        engine = self.compiled() if samples != 0 else None  # 0 is the closed form, which is torch's
        if engine is not None:
            return self.net.likelihood.summarise(torch.from_numpy(engine.draw(x, samples)))
        return predict(self.net, torch.from_numpy(x).to(device_of(self.net)), samples=samples, **inputs)
