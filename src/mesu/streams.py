"""Streams: data sets turned into sequences of tasks. The stream knows its boundaries; learners may not be told."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mesu.data import Dataset


@dataclass(frozen=True)
class Task:
    """One stretch of a stream: examples to learn in order, and examples to test; made when they are asked for."""

    index: int
    dataset: Dataset
    order: np.ndarray  # of the features

    @property
    def x_train(self) -> np.ndarray:
        """Inputs to learn."""
        return np.take(self.dataset.x_train, self.order, axis=1)

    @property
    def y_train(self) -> np.ndarray:
        """Their labels."""
        return self.dataset.y_train

    @property
    def x_test(self) -> np.ndarray:
        """Inputs to test."""
        return np.take(self.dataset.x_test, self.order, axis=1)

    @property
    def y_test(self) -> np.ndarray:
        """Their labels."""
        return self.dataset.y_test


class Permuted(Sequence[Task]):
    """The same data again and again, the pixels shuffled in a new way for each task (the first as well).

    Args:
        dataset: What to permute.
        tasks: How many permutations.
        seed: Each seed has its own permutations; task 3 is the same however many tasks there are.

    Example:
        >>> from mesu.data import digits
        >>> stream = Permuted(digits(), tasks=3, seed=0)
        >>> len(stream), stream[1].x_train.shape
        (3, (1437, 64))
    """

    def __init__(self, dataset: Dataset, tasks: int, seed: int) -> None:
        if tasks < 1:
            raise ValueError(f"tasks must be 1 or more, got {tasks!r}")
        self.dataset, self.tasks, self.seed = dataset, tasks, seed

    def __len__(self) -> int:
        return self.tasks

    def __getitem__(self, index):  # type: ignore[override]
        if not 0 <= index < self.tasks:
            raise IndexError(f"task {index} of a stream of {self.tasks}")
        return self._task(index)

    def unseen(self) -> Task:
        """The data under a permutation that is no task of the stream: out of distribution, yet the same pixels."""
        return self._task(self.tasks)

    def _task(self, index: int) -> Task:
        order = np.random.default_rng([self.seed, index]).permutation(self.dataset.features)
        return Task(index, self.dataset, order)
