"""Streams: data sets turned into sequences of tasks. The stream knows its boundaries; learners may not be told."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mesu.lab.data.dataset import Dataset
from mesu.lab.registry import streams


@dataclass(frozen=True)
class Task:
    """One stretch of a stream: examples to learn in order, and examples to test. Arrays are copied when they are read."""

    index: int
    dataset: Dataset
    order: np.ndarray | None = None  # of the features; None leaves them as they are
    train: np.ndarray | None = None  # which examples are learned; None is all, in the data set's order
    test: np.ndarray | None = None  # which are tested
    first_class: int = 0  # the label that becomes 0
    head: int = 0  # which head of the network answers, where each task has its own

    @property
    def x_train(self) -> np.ndarray:
        """Inputs to learn."""
        return self._inputs(_some(self.dataset.x_train, self.train))

    @property
    def y_train(self) -> np.ndarray:
        """Their labels."""
        return _some(self.dataset.y_train, self.train) - self.first_class

    @property
    def x_test(self) -> np.ndarray:
        """Inputs to test."""
        return self._inputs(_some(self.dataset.x_test, self.test))

    @property
    def y_test(self) -> np.ndarray:
        """Their labels."""
        return _some(self.dataset.y_test, self.test) - self.first_class

    def _inputs(self, x: np.ndarray) -> np.ndarray:
        return x if self.order is None else np.take(x, self.order, axis=1)


def _some(values: np.ndarray, which: np.ndarray | None) -> np.ndarray:
    return values if which is None else values[which]


def _trained(task: Task) -> np.ndarray:
    """Which examples of its data set a task learns."""
    return np.arange(len(task.dataset.y_train)) if task.train is None else task.train


class Stream(Sequence[Task]):
    """A sequence of tasks, each made when it is asked for."""

    def __init__(self, tasks: int) -> None:
        if tasks < 1:
            raise ValueError(f"tasks must be 1 or more, got {tasks!r}")
        self.tasks = tasks

    def __len__(self) -> int:
        return self.tasks

    def __getitem__(self, index):  # type: ignore[override]
        if not 0 <= index < self.tasks:
            raise IndexError(f"task {index} of a stream of {self.tasks}")
        return self._task(index)

    def _task(self, index: int) -> Task:
        raise NotImplementedError


@streams.register("permuted")
class Permuted(Stream):
    """The same data again and again, the pixels shuffled in a new way for each task (the first as well).

    Args:
        dataset: What to permute.
        tasks: How many permutations.
        seed: Each seed has its own permutations; task 3 is the same however many tasks there are.

    Example:
        >>> from mesu.lab.data import digits
        >>> stream = Permuted(digits(), tasks=3, seed=0)
        >>> len(stream), stream[1].x_train.shape
        (3, (1437, 64))
    """

    def __init__(self, dataset: Dataset, tasks: int, seed: int) -> None:
        super().__init__(tasks)
        self.dataset, self.seed = dataset, seed

    def unseen(self) -> Task:
        """The data under a permutation that is no task of the stream: out of distribution, yet the same pixels."""
        return self._task(self.tasks)

    def _task(self, index: int) -> Task:
        order = np.random.default_rng([self.seed, index]).permutation(self.dataset.features)
        return Task(index, self.dataset, order)


@streams.register("stationary")
class Stationary(Stream):
    """One data set, unchanged, for many epochs: nothing has to be forgotten, and there is time to become overconfident.

    Example:
        >>> from mesu.lab.data import digits
        >>> len(Stationary(digits(), epochs=1000))
        1000
    """

    def __init__(self, dataset: Dataset, epochs: int) -> None:
        super().__init__(epochs)
        self.dataset = dataset

    def _task(self, index: int) -> Task:
        return Task(index, self.dataset)


@streams.register("domains")
class Domains(Stream):
    """The same classes in ever new surroundings: one data set after the other, one set of outputs (domain-incremental).

    Args:
        datasets: One for each task; they must agree in features and classes.
    """

    def __init__(self, datasets: Sequence[Dataset]) -> None:
        super().__init__(len(datasets))
        shapes = {(d.x_train.shape[1:], d.classes) for d in datasets}
        if len(shapes) > 1:
            raise ValueError(f"domains must have the same features and classes, got {sorted(map(str, shapes))}")
        self.datasets = tuple(datasets)

    def _task(self, index: int) -> Task:
        return Task(index, self.datasets[index])


@streams.register("multi-head")
class MultiHead(Stream):
    """Groups of classes one after the other, each answered by outputs of its own (`Task.head`), labels from 0 in each.

    Args:
        dataset: Its classes are taken in order.
        classes: Classes of a task; must divide the number of classes.

    Example:
        >>> from mesu.lab.data import digits
        >>> task = MultiHead(digits(), classes=2)[3]
        >>> task.head, sorted(set(task.y_train.tolist()))
        (3, [0, 1])
    """

    def __init__(self, dataset: Dataset, classes: int) -> None:
        if classes < 1 or dataset.classes % classes:
            raise ValueError(f"{dataset.classes} classes cannot be cut into tasks of {classes!r}")
        super().__init__(dataset.classes // classes)
        self.dataset, self.classes = dataset, classes

    def _task(self, index: int) -> Task:
        first = index * self.classes

        def members(labels: np.ndarray) -> np.ndarray:
            return np.flatnonzero((labels >= first) & (labels < first + self.classes))

        data = self.dataset
        return Task(index, data, None, members(data.y_train), members(data.y_test), first_class=first, head=index)


@streams.register("first-examples")
class FirstExamples(Stream):
    """Another stream with less to learn: only the first examples of each task. Test sets stay whole.

    Args:
        stream: What to shorten.
        examples: How many of each task; None is all.
        first_task: How many of the first task, if that is to be another number.

    Example:
        >>> from mesu.lab.data import digits
        >>> [len(task.y_train) for task in FirstExamples(MultiHead(digits(), classes=5), examples=100, first_task=200)]
        [200, 100]
    """

    def __init__(self, stream: Stream, examples: int | None, first_task: int | None = None) -> None:
        for name, value in (("examples", examples), ("first_task", first_task)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value!r}")
        super().__init__(len(stream))
        self.stream, self.examples = stream, examples
        self.first_task = examples if first_task is None else first_task

    def _task(self, index: int) -> Task:
        task = self.stream[index]
        return replace(task, train=_trained(task)[: self.examples if index else self.first_task])


@streams.register("in-turn")
class InTurn(Stream):
    """Streams one after the other, every task with a head of its own.

    Example:
        >>> from mesu.lab.data import digits
        >>> stream = InTurn([MultiHead(digits(), classes=10), MultiHead(digits(), classes=5)])
        >>> [(task.index, task.head) for task in stream]
        [(0, 0), (1, 1), (2, 2)]
    """

    def __init__(self, streams: Sequence[Stream]) -> None:
        super().__init__(sum(map(len, streams)))
        self.streams = tuple(streams)

    def _task(self, index: int) -> Task:
        before = 0
        for stream in self.streams:
            if index < before + len(stream):
                return replace(stream[index - before], index=index, head=index)
            before += len(stream)
        raise IndexError(index)


@streams.register("splits")
class Splits(Stream):
    """Another stream cut up: its tasks' first slices one after the other, then their second slices, and so on.

    A task of this stream keeps the whole test set and the head of the task it is a slice of; `source` says which that was.

    Args:
        stream: What is cut.
        splits: Slices of each task, contiguous; one leaves the stream as it is.

    Example:
        >>> from mesu.lab.data import digits
        >>> stream = Splits(MultiHead(digits(), classes=5), splits=4)
        >>> len(stream), [stream.source(i) for i in range(4)]
        (8, [0, 1, 0, 1])
    """

    def __init__(self, stream: Stream, splits: int) -> None:
        if splits < 1:
            raise ValueError(f"splits must be 1 or more, got {splits!r}")
        super().__init__(len(stream) * splits)
        self.stream, self.splits = stream, splits

    def source(self, index: int) -> int:
        """The task of the uncut stream that a task is a slice of."""
        return index % len(self.stream)

    def _task(self, index: int) -> Task:
        whole, piece = self.stream[self.source(index)], index // len(self.stream)
        own = np.array_split(_trained(whole), self.splits)[piece]
        return Task(index, whole.dataset, whole.order, own, whole.test, whole.first_class, whole.head)
