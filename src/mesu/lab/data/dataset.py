"""A data set in memory, ready to learn from: standardised as the paper does for digits, or divided by 255 for photographs."""

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Dataset:
    """Examples of float32, one in each row, of any shape; labels as whole numbers from 0."""

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int

    @property
    def features(self) -> int:
        """Numbers in one example."""
        return math.prod(self.x_train.shape[1:])

    @classmethod
    def standardised(cls, name: str, x_train, y_train, x_test, y_test) -> "Dataset":
        """Flatten and standardise raw arrays with the mean and standard deviation of all training values."""
        mean, std = float(np.mean(x_train)), float(np.std(x_train))
        x_train, x_test = (
            ((x.reshape(len(x), -1) - mean) / std).astype(np.float32) for x in (np.asarray(x_train), np.asarray(x_test))
        )
        return cls._labelled(name, x_train, y_train, x_test, y_test)

    @classmethod
    def photographs(cls, name: str, x_train, y_train, x_test, y_test) -> "Dataset":
        """Colour images of bytes, [N, height, width, 3], as torch has them: [N, 3, height, width], from 0 to 1."""
        x_train, x_test = (
            np.divide(np.ascontiguousarray(x.transpose(0, 3, 1, 2)), np.float32(255), dtype=np.float32)
            for x in (x_train, x_test)
        )
        return cls._labelled(name, x_train, y_train, x_test, y_test)

    @classmethod
    def _labelled(cls, name: str, x_train, y_train, x_test, y_test) -> "Dataset":
        y_train, y_test = (np.asarray(y, dtype=np.int64) for y in (y_train, y_test))
        return cls(name, x_train, y_train, x_test, y_test, int(max(y_train.max(), y_test.max())) + 1)
