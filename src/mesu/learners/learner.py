"""The contract between experiments and what they train."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from torch import Tensor


class Learner(Protocol):
    """Anything that learns a stream chunk by chunk. The chunking changes nothing: examples are learned in order.

    Further inputs of the network, such as which of its heads to use, are passed on by name (`**inputs`).
    """

    def learn(self, x: np.ndarray, y: np.ndarray, **inputs: Any) -> None:
        """Learn a chunk of the stream, one example after the other."""
        ...

    def boundary(self, x: np.ndarray, y: np.ndarray, **inputs: Any) -> None:
        """A task ended, and these were its examples. Learners that need no boundaries do nothing."""
        ...

    def predict(self, x: np.ndarray, samples: int, **inputs: Any) -> Any:
        """A `Prediction` (or, for regression, a `RegressionPrediction`), without learning anything."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a later update depends on, copied."""
        ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Return to the state in which these `tensors` were saved, bit for bit."""
        ...
