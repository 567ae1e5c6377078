"""Standardising a stream row by row: by the running mean and variance up to and including the row, in double precision.

    w = min(rows, N)                                      all rows count the same until the memory is full
    m' = m + (x - m) / w
    v' = v + ((x - m) (x - m') - v) / w                   from then on old rows fade, as they do in the posterior
    z = (x - m') / sqrt(v')

A row is part of its own mean and variance, so |z| is at most sqrt(w), and the first row is zero. Outliers are limited:

- A value more than `FURTHEST` standard deviations from the mean counts as one at that distance. One reading of 1e9 from a
  broken sensor then does not drown all later values of the column; a column whose scale really changes is still followed, by
  a few per cent a row.
- Among the first values of a column there is no standard deviation yet to judge an outlier by. A single value that is a million
  times as large as all others is dropped at row `KNOWN`.

A missing value (NaN) becomes zero, so it counts as the mean, and changes neither mean nor variance.
"""

from typing import NamedTuple

import numpy as np

from mesu.engine.compiled import on_disk

ROUNDING = 1e-7  # a standard deviation below this share of the mean is rounding error
# Standard deviations. A lower limit would clip rare events: a switch that is on once in ten thousand rows is 100 away.
FURTHEST = 100.0
KNOWN = 16  # rows after which the standard deviation is good enough to limit outliers by
BROKEN = 1e6  # one of the first values that is this many times as large as the others is an outlier
LARGEST = 1e150  # sums of squares of larger values overflow


class Scale(NamedTuple):
    """Mean and variance of each column of a stream. Never written to, only replaced."""

    rows: np.ndarray  # how many count, at most the memory
    mean: np.ndarray
    var: np.ndarray

    @property
    def spread(self) -> np.ndarray:
        """What a column is divided by: its standard deviation, or 1 for a column that is constant."""
        spread = np.sqrt(self.var)
        return np.where(spread > ROUNDING * np.abs(self.mean), spread, 1.0)


def unknown(columns: int) -> Scale:
    """Columns of which nothing has been seen."""
    return Scale(np.zeros(columns), np.zeros(columns), np.zeros(columns))


def widened(scale: Scale, columns: int) -> Scale:
    """The same columns, and new ones after them."""
    return Scale(*(np.concatenate([a, b]) for a, b in zip(scale, unknown(columns - len(scale.mean)), strict=True)))


def follow(scale: Scale, x: np.ndarray, memory: float, dtype: type = np.float64) -> tuple[Scale, np.ndarray]:
    """The scale after some more rows, and those rows standardised, in the precision `dtype`.

    Raises:
        ValueError: for values so large that their squares overflow.
    """
    new, z = Scale(*(array.copy() for array in scale)), np.empty(x.shape, dtype)
    largest = _follow(np.ascontiguousarray(x, np.float64), *new, float(memory), z)
    # z needs no check: |z| is at most sqrt(w), or the value itself
    if largest > LARGEST or not np.isfinite(new.var).all():
        raise ValueError(f"values must be smaller, got one of size {largest:.3g}: its square is not a number")
    return new, z


def of_whole(x: np.ndarray, memory: float) -> Scale:
    """The scale of a whole set, in which the order of the rows does not matter."""
    scale, _ = follow(unknown(x.shape[1]), x, np.inf)
    return scale._replace(rows=np.minimum(scale.rows, memory))


def standardised(scale: Scale, x: np.ndarray) -> np.ndarray:
    """Rows standardised by a scale, which stays as it is."""
    z = np.empty(x.shape)
    _standardise(np.ascontiguousarray(x, np.float64), scale.mean, scale.var, z)
    return z


@on_disk(flags={"nogil": True, "error_model": "numpy"})
def _standardise(x, mean, var, z):
    """Fill `z`; the same numbers as `Scale.spread` gives."""
    for i in range(x.shape[1]):
        spread = np.sqrt(var[i])
        if not spread > ROUNDING * abs(mean[i]):
            spread = 1.0
        for row in range(x.shape[0]):
            found = (x[row, i] - mean[i]) / spread
            z[row, i] = 0.0 if np.isnan(x[row, i]) else min(max(found, -FURTHEST), FURTHEST)


@on_disk(flags={"nogil": True, "error_model": "numpy"})
def _follow(x, rows, mean, var, memory, z):
    """Update the columns in place and fill `z`. Returns the size of the largest value after clipping."""
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
                before = 0.0  # the last of the first values is the outlier
            largest = max(largest, abs(mean[i] + before))
            settled = rows[i] == KNOWN - 1 and memory >= KNOWN
            rows[i] = min(rows[i] + 1.0, memory)
            mean[i] += before / rows[i]
            after = before - before / rows[i]
            var[i] += (before * after - var[i]) / rows[i]
            spread = np.sqrt(var[i])
            z[row, i] = after / spread if spread > ROUNDING * abs(mean[i]) else after
            # One of n values is sqrt(n - 1) standard deviations from the mean only if all others are equal: an outlier, if
            # it is also `BROKEN` times as large as they are. Start again from this value, which is one of the others.
            alone = abs((KNOWN - 1) * after * after - var[i]) < var[i] / 1000
            if settled and alone and x[row, i] != 0.0 and KNOWN * abs(after) > BROKEN * abs(x[row, i]):
                rows[i], mean[i], var[i], z[row, i] = 1.0, x[row, i], 0.0, 0.0
    return largest
