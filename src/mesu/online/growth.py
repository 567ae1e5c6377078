"""How an online model grows: inputs for new columns, outputs for new classes. Each is a function from snapshot to snapshot."""

from collections.abc import Iterable
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np

from mesu.online.network import grown_weights
from mesu.online.scaling import widened
from mesu.online.snapshot import Snapshot

EXACT = 2**53  # beyond, floating-point numbers do not tell whole numbers apart


def with_inputs(now: Snapshot, inputs: int) -> Snapshot:
    """The snapshot with more input columns, the new ones last."""
    known, outputs = now.weights.sizes[0], now.weights.sizes[-1]
    if inputs < known:
        raise ValueError(f"a network with {known} inputs cannot be narrowed to {inputs}")
    if inputs == known:
        return now
    return replace(_resized(now, inputs, outputs), inputs=widened(now.inputs, inputs))


def with_labels(now: Snapshot, labels: Iterable) -> Snapshot:
    """The snapshot with an output for each of these classes."""
    labels = tuple(dict.fromkeys((*now.labels, *labels)))
    check_labels(labels)
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


class LimitReached(ValueError):
    """A model would have more features or classes than it was told it may have."""


def check_count(limit: str, known: Iterable, new: Iterable, most: int | None) -> None:
    """Refuse features or classes that would make a model grow beyond a limit.

    Raises:
        LimitReached: naming the limit, and the first name that is too many.
    """
    if most is None:
        return
    every = list(dict.fromkeys((*known, *new)))
    if len(every) > most:
        raise LimitReached(
            f"{limit} is {most:,}, and {every[most]!r} is one more: raise it, leave out rare ones, or put several into one"
        )


def check_labels(labels: Iterable) -> None:
    """Refuse what cannot be a class, and classes that could not be told apart beside each other.

    Raises:
        ValueError: naming the label. Labels are words, booleans, and finite numbers, all words or all numbers.
    """
    labels = list(labels)
    for label in labels:
        if not _is_label(label):
            raise ValueError(
                f"a label must be a word or a number, got {label!r}: leave out rows without a label, and make dates and other "
                "objects words or numbers first"
            )
    words = [label for label in labels if isinstance(label, str)]
    others = [label for label in labels if not isinstance(label, str)]
    if words and others:
        raise ValueError(
            f"labels must be all words or all numbers, got {words[0]!r} and {others[0]!r}: make them one kind first"
        )
    large = [label for label in others if isinstance(label, int | np.integer) and abs(int(label)) > EXACT]
    floats = [label for label in others if isinstance(label, float | np.floating)]
    if large and floats:
        raise ValueError(
            f"the labels {large[0]!r} and {floats[0]!r} cannot stand beside each other, since a floating-point number does not "
            "hold the first: make all of them whole numbers, or words"
        )


def _is_label(label: Any) -> bool:
    """Whether something is a word, a boolean, or a finite number."""
    if isinstance(label, np.generic):
        if label.dtype.kind not in "biufU":  # dates would turn into whole numbers
            return False
        label = label.item()
    return isinstance(label, str | int) or (isinstance(label, float) and isfinite(label))


def _resized(now: Snapshot, inputs: int, outputs: int) -> Snapshot:
    weights = grown_weights(now.settings, now.weights, inputs, outputs)
    return replace(now, weights=weights).with_scoring_weights(weights)
