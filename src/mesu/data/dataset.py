"""A data set in memory, standardised as the paper does: minus the global mean, over the global standard deviation."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Dataset:
    """Examples as rows of float32, labels as whole numbers from 0."""

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int

    @property
    def features(self) -> int:
        """Numbers in one example."""
        return self.x_train.shape[1]

    @classmethod
    def standardised(cls, name: str, x_train, y_train, x_test, y_test) -> "Dataset":
        """Flatten and standardise raw arrays with the mean and standard deviation of all training values."""
        mean, std = float(np.mean(x_train)), float(np.std(x_train))
        x_train, x_test = (
            ((x.reshape(len(x), -1) - mean) / std).astype(np.float32) for x in (np.asarray(x_train), np.asarray(x_test))
        )
        y_train, y_test = (np.asarray(y, dtype=np.int64) for y in (y_train, y_test))
        return cls(name, x_train, y_train, x_test, y_test, int(max(y_train.max(), y_test.max())) + 1)
