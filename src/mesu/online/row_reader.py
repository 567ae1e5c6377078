"""River's rows in the order of a model's columns, without a check of every value where each is a plain number.

`river_rows` says what a row may hold. It is asked wherever a row is anything but finite numbers of Python's own types: it
refuses what must be refused, and converts the rest.
"""

from collections.abc import Iterable, Mapping
from math import fsum, isfinite, nan
from operator import itemgetter
from typing import Any

import numpy as np

from mesu.online.river_rows import row_of

PLAIN = frozenset({float, int, bool, np.float64})


class RowReader:
    """The names of some columns, prepared for one row after the other."""

    def __init__(self, names: Iterable) -> None:
        self.names = tuple(names)
        self._column = {name: i for i, name in enumerate(self.names)}
        self._values = itemgetter(*self.names) if len(self.names) > 1 else None

    def read(self, x: Mapping[Any, Any]) -> np.ndarray:
        """A row ``[1, columns]``: NaN where a feature is missing; features that have no column are left out.

        Raises:
            ValueError: naming the feature that is not a finite number.
        """
        # other mappings may have a value for every name, or make one
        if type(x) is dict and self._values is not None and len(x) >= len(self.names):
            try:
                values = self._values(x)
            except KeyError:
                values = None
            if values is not None:
                return np.array([values], np.float64) if are_plain(values) else row_of(x, self.names)
        there = {name: x[name] for name in x if name in self._column}
        if not are_plain(there.values()):
            return row_of(x, self.names)
        row = np.full((1, len(self.names)), nan)
        row[0, [self._column[name] for name in there]] = list(there.values())
        return row


def are_plain(values: Any) -> bool:
    """Whether all values are finite numbers of Python's own types."""
    if not PLAIN.issuperset(map(type, values)):
        return False
    try:
        return isfinite(fsum(values))  # NaN and infinity stay in a sum
    except (OverflowError, ValueError):  # numbers near the largest, or infinities of both signs
        return False
