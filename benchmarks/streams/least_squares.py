"""Recursive least squares: the exact posterior of a linear model, covariances included, which forgets nothing."""

import numpy as np
from benchmarks.streams.adapters import Running


class LeastSquares:
    """A line, its columns and targets standardised as they come."""

    takes_dicts = False

    def __init__(self, columns: int) -> None:
        self.inputs, self.targets = Running(), Running()
        self.weights, self.covariance = np.zeros(columns + 1), np.eye(columns + 1)

    def predict(self, x: np.ndarray) -> float:
        """The number that is expected; 0 before the first row."""
        return self.targets.back(self.weights @ self._scaled(x)) if self.targets.rows else 0.0

    def learn(self, x: np.ndarray, y: float) -> None:
        """Learn a row."""
        self.inputs.follow(x[0])
        self.targets.follow(y)
        z = self._scaled(x)
        gain = self.covariance @ z / (1 + z @ self.covariance @ z)
        self.weights = self.weights + gain * (self.targets.scaled(y) - self.weights @ z)
        self.covariance = self.covariance - np.outer(gain, z @ self.covariance)

    def _scaled(self, x: np.ndarray) -> np.ndarray:
        return np.append(self.inputs.scaled(x[0]), 1.0)
