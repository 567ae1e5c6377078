"""Standardising a stream as it comes: each row by what is known up to and including it, in double precision.

    w = min(rows, N)                                      all rows count the same, until the memory is full
    m' = m + (x - m) / w
    v' = v + ((x - m) (x - m') - v) / w                   then old ones fade as the posterior lets them
    z = (x - m') / sqrt(v')

A row is part of its own mean and variance, so |z| is never more than sqrt(w), and a first row is zero. A value further than
`FURTHEST` spreads from the mean is taken for one at that distance: a broken sensor's 1e9 must not blind the column to all that
comes after, and a column whose scale really changes is followed all the same, a few per cent a row. Among the first values of
a column there is no spread yet to tell a broken one by; a single one that is a million times as large as the others is dropped
once there are `KNOWN`. A missing value, NaN, is zero: it counts as the mean, and tells nothing about its column.
"""

from typing import NamedTuple

import numba
import numpy as np

# Below this share of its mean a spread is rounding, not a spread.
ROUNDING = 1e-7
FURTHEST = (
    100.0  # less would make little of rare events: a switch that is on once in ten thousand rows is 100 spreads away
)
KNOWN = 16  # rows after which a spread is trusted for that
BROKEN = 1e6  # times as large as the others: no first value of a column
LARGEST = 1e150  # the square of what is larger, added up, is no number


class Scale(NamedTuple):
    """Mean and variance of each column of a stream; never written to, only replaced."""

    rows: np.ndarray  # that count, at most the memory
    mean: np.ndarray
    var: np.ndarray

    @property
    def spread(self) -> np.ndarray:
        """What a column is divided by: its standard deviation, or 1 if it never moved."""
        spread = np.sqrt(self.var)
        return np.where(spread > ROUNDING * np.abs(self.mean), spread, 1.0)


def unknown(columns: int) -> Scale:
    """Columns of which nothing has been seen."""
    return Scale(np.zeros(columns), np.zeros(columns), np.zeros(columns))


def widened(scale: Scale, columns: int) -> Scale:
    """The same columns, and new ones after them."""
    return Scale(*(np.concatenate([a, b]) for a, b in zip(scale, unknown(columns - len(scale.mean)), strict=True)))


def follow(scale: Scale, x: np.ndarray, memory: float) -> tuple[Scale, np.ndarray]:
    """What is known after some more rows, and those rows standardised.

    Raises:
        ValueError: if the values are so large that their squares are no numbers.
    """
    new, z = Scale(*(array.copy() for array in scale)), np.empty(x.shape)
    largest = _follow(np.ascontiguousarray(x, np.float64), *new, float(memory), z)
    if largest > LARGEST or not (np.isfinite(new.var).all() and np.isfinite(z).all()):
        raise ValueError(f"values must be smaller, got one of size {largest:.3g}: its square is not a number")
    return new, z


def of_whole(x: np.ndarray, memory: float) -> Scale:
    """What is known of columns after a set whose order means nothing."""
    scale, _ = follow(unknown(x.shape[1]), x, np.inf)
    return scale._replace(rows=np.minimum(scale.rows, memory))


def standardised(scale: Scale, x: np.ndarray) -> np.ndarray:
    """Rows by what is known, without learning anything from them."""
    with np.errstate(over="ignore"):
        z = np.clip((x - scale.mean) / scale.spread, -FURTHEST, FURTHEST)
    return np.where(np.isnan(x), 0.0, z)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _follow(x, rows, mean, var, memory, z):
    """Update the columns in place; the size of the largest value that was taken as it is."""
    largest = 0.0
    for row in range(x.shape[0]):
        for i in range(x.shape[1]):
            if np.isnan(x[row, i]):
                z[row, i] = 0.0
                continue
            before, spread = x[row, i] - mean[i], np.sqrt(var[i])
            if rows[i] >= KNOWN and spread > ROUNDING * abs(mean[i]):
                before = min(max(before, -FURTHEST * spread), FURTHEST * spread)
            elif rows[i] == KNOWN - 1 and spread > 0.0 and abs(x[row, i]) > BROKEN * (abs(mean[i]) + spread):
                before = 0.0  # the last of them is the broken one
            largest = max(largest, abs(mean[i] + before))
            settled = rows[i] == KNOWN - 1 and memory >= KNOWN
            rows[i] = min(rows[i] + 1.0, memory)
            mean[i] += before / rows[i]
            after = before - before / rows[i]
            var[i] += (before * after - var[i]) / rows[i]
            spread = np.sqrt(var[i])
            z[row, i] = after / spread if spread > ROUNDING * abs(mean[i]) else after
            # of n values one is sqrt(n - 1) spreads from the mean only if all others are the same, each 1 / sqrt(n - 1) away
            alone = abs((KNOWN - 1) * after * after - var[i]) < var[i] / 1000
            if settled and alone and x[row, i] != 0.0 and KNOWN * abs(after) > BROKEN * abs(x[row, i]):
                rows[i], mean[i], var[i], z[row, i] = 1.0, x[row, i], 0.0, 0.0
    return largest
