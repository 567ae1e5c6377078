"""How an online model grows: inputs for new columns, outputs for new classes. Each is a function from snapshot to snapshot."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from mesu.online.network import grown_weights
from mesu.online.scaling import widened
from mesu.online.snapshot import Snapshot


def with_inputs(now: Snapshot, inputs: int) -> Snapshot:
    """With more columns, the new ones after those that are known."""
    known, outputs = now.weights.sizes[0], now.weights.sizes[-1]
    if inputs < known:
        raise ValueError(f"a network with {known} inputs cannot be narrowed to {inputs}")
    if inputs == known:
        return now
    return replace(_resized(now, inputs, outputs), inputs=widened(now.inputs, inputs))


def with_labels(now: Snapshot, labels: Iterable) -> Snapshot:
    """With an output for each of these classes."""
    labels = tuple(dict.fromkeys((*now.labels, *labels)))
    refuse_mixed(labels)
    if len(labels) == len(now.labels):
        return now
    # a network starts with one output, which the first class takes
    grown = now if len(labels) == 1 else _resized(now, now.weights.sizes[0], len(labels))
    return replace(grown, labels=labels)


def numbered(labels: tuple, y: np.ndarray) -> tuple[np.ndarray, dict[int, Any]]:
    """Each row's class as the number of its output; and the classes that are new, by the row in which they first appear."""
    number = {label: i for i, label in enumerate(labels)}
    numbers = [number.setdefault(label, len(number)) for label in y.tolist()]
    new = {numbers.index(i): label for label, i in list(number.items())[len(labels) :]}
    return np.array(numbers, np.int64), new


def refuse_mixed(labels: Iterable) -> None:
    """Refuse labels of which some are words and some are not."""
    labels = list(labels)
    words = [label for label in labels if isinstance(label, str)]
    others = [label for label in labels if not isinstance(label, str)]
    if words and others:
        raise ValueError(
            f"labels must be all words or all numbers, got {words[0]!r} and {others[0]!r}: make them one kind first"
        )


def _resized(now: Snapshot, inputs: int, outputs: int) -> Snapshot:
    weights = grown_weights(now.settings, now.weights, inputs, outputs)
    return replace(now, weights=weights).with_scoring_weights(weights)
