"""The contract of streams, as checks that anybody can run on a stream of their own: `check_stream`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

PARTS = ("x_train", "y_train", "x_test", "y_test")


def check_stream(make: Callable[[int, int], Sequence[Any]], classes: int, tasks: int = 5) -> None:
    """Check that a stream of tasks to classify keeps the contract of `mesu.streams.Stream`.

    The same seed gives the same tasks; a task does not depend on how many there are; a task asked for twice is the same;
    inputs are finite float32, one label a row, labels whole numbers below `classes`; there is no task beyond the last.

    Args:
        make: Makes the stream from a number of tasks and a seed. A stream with a fixed number of tasks, or without a seed, may
            ignore them.
        classes: How many classes a task has.
        tasks: How many tasks to ask for.

    Raises:
        AssertionError: naming what does not hold.

    Example:
        >>> from mesu.lab.data import digits
        >>> from mesu.lab.stream_contract import check_stream
        >>> from mesu.streams import Permuted
        >>> check_stream(lambda tasks, seed: Permuted(digits(), tasks, seed), classes=10)
    """
    stream, again, shorter = make(tasks, 3), make(tasks, 3), make(max(1, tasks - 1), 3)
    _require(len(stream) >= 1, f"a stream must have a task, got {len(stream)}")
    for index in range(len(stream)):
        task = stream[index]
        _check_task(task, index, classes)
        _require(_same(task, stream[index]), f"task {index} must be the same when it is asked for twice")
        _require(_same(task, again[index]), f"task {index} must be the same for the same seed")
        if index < len(shorter):
            _require(_same(task, shorter[index]), f"task {index} must not depend on how many tasks there are")
    _require(len(list(stream)) == len(stream), "iterating must give as many tasks as the stream is long")
    try:
        stream[len(stream)]
    except IndexError:
        return
    raise AssertionError("a task beyond the last must be an IndexError")


def _check_task(task: Any, index: int, classes: int) -> None:
    _require(task.index == index, f"task {index} must say its index, got {task.index!r}")
    for kind in ("train", "test"):
        x, y = np.asarray(getattr(task, f"x_{kind}")), np.asarray(getattr(task, f"y_{kind}"))
        where = f"of task {index} to {'learn' if kind == 'train' else 'test'}"
        _require(x.dtype == np.float32, f"inputs {where} must be float32, got {x.dtype}")
        _require(len(x) > 0, f"there must be examples {where}")
        _require(y.shape == (len(x),), f"labels {where} must be one a row, got shape {y.shape} for {len(x)} rows")
        _require(bool(np.isfinite(x).all()), f"inputs {where} must be finite")
        _require(np.issubdtype(y.dtype, np.integer), f"labels {where} must be whole numbers, got {y.dtype}")
        within = int(y.min()) >= 0 and int(y.max()) < classes
        _require(within, f"labels {where} must be from 0 to {classes - 1}, got {y.min()} to {y.max()}")
    _require(
        task.x_train.shape[1:] == task.x_test.shape[1:],
        f"inputs of task {index} must have one shape, got {task.x_train.shape[1:]} and {task.x_test.shape[1:]}",
    )


def _same(one: Any, other: Any) -> bool:
    return all(np.array_equal(getattr(one, part), getattr(other, part)) for part in PARTS)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)
