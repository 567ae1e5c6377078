"""The protocol: each row is predicted, scored, and only then learned. One row at a time for every model."""

import pickle
import sys
import threading
import time
from math import log
from typing import Any, NamedTuple, Protocol

import numpy as np
from benchmarks.streams.data import Stream

LEAST = 1e-3  # probability that a wrong "never" counts as: a single one must not decide a whole stream
DEEPEST, STACK = 100_000, 512 * 2**20  # calls within calls, and bytes for them


class Model(Protocol):
    """What takes part."""

    takes_dicts: bool  # rows as dicts of columns; else as arrays [1, columns]

    def predict(self, x: Any) -> Any:
        """The probability of each label known so far, or a number."""
        ...

    def learn(self, x: Any, y: Any) -> None:
        """Learn a row."""
        ...


class Outcome(NamedTuple):
    """How a model did on a stream."""

    blocks: np.ndarray  # right answers, or absolute errors, added up between the edges of the stream
    log_loss: float  # nats a row; NaN for numbers
    us_per_row: float  # CPU time of predicting and learning
    kib: float  # of the pickled model, after the last row


def run(stream: Stream, model: Model) -> Outcome:
    """Test on each row, then train on it."""
    rows = _rows(stream, model)
    scores, nats, seconds = np.empty(len(stream)), 0.0, 0.0
    for i, (x, y) in enumerate(zip(rows, stream.y, strict=True)):
        began = time.process_time()
        answer = model.predict(x)
        seconds += time.process_time() - began
        if stream.regression:
            scores[i] = abs(answer - y)
        else:
            # nobody knows a class before the first row
            scores[i] = bool(answer) and max(answer, key=answer.__getitem__) == y
            nats -= log(max(answer.get(y, 0.0), LEAST))
        began = time.process_time()
        model.learn(x, y)
        seconds += time.process_time() - began
    blocks = np.add.reduceat(scores, stream.edges[:-1])
    loss = float("nan") if stream.regression else nats / len(stream)
    return Outcome(blocks, loss, seconds / len(stream) * 1e6, _kib(model))


def _kib(model: Model) -> float:
    """Size of the pickled model, in a thread with room: River's trees of numbers may be a thousand nodes deep."""
    sizes: list[int] = []
    usual = sys.getrecursionlimit(), threading.stack_size(STACK)
    sys.setrecursionlimit(DEEPEST)
    try:
        thread = threading.Thread(target=lambda: sizes.append(len(pickle.dumps(model))))
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(usual[0])
        threading.stack_size(usual[1])
    return sizes[0] / 1024


def _rows(stream: Stream, model: Model) -> list[Any]:
    if model.takes_dicts:
        return [dict(zip(stream.columns, row, strict=True)) for row in stream.X.tolist()]
    return list(stream.X[:, None])
