"""A posterior that learns a stream one example at a time, with no boundaries."""

import numpy as np
import torch

from mesu.optim import PosteriorOptimizer
from mesu.posterior import Bayesian
from mesu.prediction import Prediction, predict


class BayesianLearner:
    """A `Bayesian` network and the rule that moves it.

    Args:
        net: The posterior.
        optimizer: `MESU`, `FOOVB`, ... on that posterior.
        samples: Monte Carlo samples of each training step.
    """

    def __init__(self, net: Bayesian, optimizer: PosteriorOptimizer, samples: int = 10) -> None:
        self.net, self.optimizer, self.samples = net, optimizer, samples

    def learn(self, x: np.ndarray, y: np.ndarray) -> None:
        """One update for each example, in order."""
        for example, label in zip(torch.from_numpy(x).split(1), torch.from_numpy(y).split(1), strict=True):
            self.net.nll(example, label, samples=self.samples).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def boundary(self, x: np.ndarray, y: np.ndarray) -> None:
        """Nothing: forgetting needs no boundary."""

    def predict(self, x: np.ndarray, samples: int) -> Prediction:
        """The average over drawn networks."""
        return predict(self.net, torch.from_numpy(x), samples=samples)
