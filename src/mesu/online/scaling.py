"""Standardising a stream row by row: by the running mean and variance up to and including the row, in double precision.

    w = min(rows, N)                                      all rows count the same until the memory is full
    m' = m + (x - m) / w
    v' = v + ((x - m) (x - m') - v) / w                   from then on old rows fade, as they do in the posterior
    z = (x - m') / sqrt(v')

A row is part of its own mean and variance, so |z| is at most sqrt(w), and the first row is zero.

In inputs (`Columns`), values that are far from all others change neither mean nor variance, and z is limited for them:
`mesu.online.outliers` tells which they are. A value that is not told to be far, but is more than `FURTHEST` standard deviations
from the mean, counts as one at that distance.

Targets (`Scale`) may jump, and `mesu.online.jumps` looks for that. Here a single value among the first that is a million times
as large as all others is dropped at row `KNOWN`, and later ones count as `FURTHEST` standard deviations away at most: a scale
that really changes is followed, by a few per cent a row.

A missing value (NaN) becomes zero, so it counts as the mean, and changes neither mean nor variance.
"""

from typing import NamedTuple

import numba
import numpy as np

from mesu.engine.compiled import on_disk
from mesu.online.outliers import (
    BEGUN,
    CENTRE,
    CHANGES,
    FIRST,
    FLAGS,
    MET,
    PATIENCE,
    REACH,
    SAMPLED,
    SCORE,
    are_far,
    begin_anew,
    judged,
    watched,
    watches,
    watches_of,
)

ROUNDING = 1e-7  # a standard deviation below this share of the mean is rounding error
# Standard deviations. A lower limit would clip rare events: a switch that is on once in ten thousand rows is 100 away.
FURTHEST = 100.0
LEARNED = 5.0  # a far value is learned as one so many standard deviations from the mean at most: it teaches little
KNOWN = 16  # rows after which the standard deviation is good enough to limit outliers by
BROKEN = 1e6  # one of the first values that is this many times as large as the others is an outlier
LARGEST = 1e150  # sums of squares of larger values overflow


class Scale(NamedTuple):
    """Mean and variance of targets. Never written to, only replaced."""

    rows: np.ndarray  # how many count, at most the memory
    mean: np.ndarray
    var: np.ndarray

    @property
    def spread(self) -> np.ndarray:
        """What a column is divided by: its standard deviation, or 1 for a column that is constant."""
        return _spread(self.mean, self.var)


class Columns(NamedTuple):
    """Mean and variance of each input of a stream, and its watch (`mesu.online.outliers`). Never written to, only replaced."""

    rows: np.ndarray
    mean: np.ndarray
    var: np.ndarray
    watch: np.ndarray

    @property
    def spread(self) -> np.ndarray:
        """What a column is divided by: its standard deviation, or 1 for a column that is constant."""
        return _spread(self.mean, self.var)


def _spread(mean: np.ndarray, var: np.ndarray) -> np.ndarray:
    spread = np.sqrt(var)
    return np.where(spread > ROUNDING * np.abs(mean), spread, 1.0)


def unknown(columns: int) -> Scale:
    """Targets of which nothing has been seen."""
    return Scale(np.zeros(columns), np.zeros(columns), np.zeros(columns))


def unknown_columns(columns: int) -> Columns:
    """Columns of which nothing has been seen."""
    return Columns(*unknown(columns), watches(columns))


def widened(scale: Columns, columns: int) -> Columns:
    """The same columns, and new ones after them."""
    new = unknown_columns(columns - len(scale.mean))
    return Columns(*(np.concatenate([a, b]) for a, b in zip(scale, new, strict=True)))


def follow_columns(
    scale: Columns, x: np.ndarray, memory: float, dtype: type = np.float64
) -> tuple[Columns, np.ndarray]:
    """The columns after some more rows, and those rows standardised, in the precision `dtype`.

    Raises:
        ValueError: for values so large that their squares overflow.
    """
    new, z = Columns(*(array.copy() for array in scale)), np.empty(x.shape, dtype)
    largest = _follow_columns(np.ascontiguousarray(x, np.float64), *new, float(memory), np.empty(SAMPLED), z)
    if largest > LARGEST or not np.isfinite(new.var).all():
        raise ValueError(f"values must be smaller, got one of size {largest:.3g}: its square is not a number")
    return new, z


def columns_of_whole(x: np.ndarray, memory: float) -> Columns:
    """The columns of a whole set, in which the order of the rows does not matter."""
    watch = watches_of(x, memory)
    return Columns(*of_whole(np.where(are_far(watch, x), np.nan, x), memory), watch)


def newly_far(before: Columns, after: Columns) -> list[tuple[int, float]]:
    """The columns that have met their first far values, and one value of each."""
    met = after.watch[:, MET].copy()
    met[: len(before.watch)] -= before.watch[:, MET]
    return [(int(i), float(after.watch[i, FIRST])) for i in np.flatnonzero(met > 0)]


def follow(scale: Scale, x: np.ndarray, memory: float, dtype: type = np.float64) -> tuple[Scale, np.ndarray]:
    """The scale after some more targets, and those standardised, in the precision `dtype`.

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


def standardised(scale: Columns, x: np.ndarray) -> np.ndarray:
    """Rows standardised by the columns as they are. Where far values were learned, they are limited as they were then."""
    z = np.empty(x.shape)
    _standardise(np.ascontiguousarray(x, np.float64), scale.mean, scale.var, scale.watch, z)
    return z


@on_disk(flags={"nogil": True, "error_model": "numpy"})
def _standardise(x, mean, var, watch, z):
    """Fill `z`; the same numbers as `Scale.spread` gives."""
    for i in range(x.shape[1]):
        spread = np.sqrt(var[i])
        if not spread > ROUNDING * abs(mean[i]):
            spread = 1.0
        for row in range(x.shape[0]):
            found, most = (x[row, i] - mean[i]) / spread, FURTHEST
            if watch[i, MET] > 0.0 and watch[i, REACH] > 0.0 and abs(x[row, i] - watch[i, CENTRE]) > watch[i, REACH]:
                most = LEARNED
            z[row, i] = 0.0 if np.isnan(x[row, i]) else min(max(found, -most), most)


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


@on_disk(flags=FLAGS)
def _follow_columns(x, rows, mean, var, watch, memory, work, z):
    """Update the columns in place and fill `z`. Returns the size of the largest value that counts."""
    largest = 0.0
    for row in range(x.shape[0]):
        for i in range(x.shape[1]):
            z[row, i], size = follow_value(x[row, i], i, rows, mean, var, watch, memory, work)
            largest = max(largest, size)
    return largest


@numba.njit(**FLAGS)
def follow_value(x, i, rows, mean, var, watch, memory, work):
    """Update a column by its next value. Returns the value standardised, and its size if it counts.

    Args:
        x: The value.
        i: The column.
        rows: Of `Columns`, as are `mean`, `var` and `watch`: written to.
        mean: See `rows`.
        var: See `rows`.
        watch: See `rows`.
        memory: How many rows count.
        work: Room for `SAMPLED` numbers.
    """
    if np.isnan(x):
        return 0.0, 0.0
    own, size = watch[i], 0.0
    if own[BEGUN] < CHANGES and watched(own, x, memory):
        mean[i], var[i] = judged(own, work, mean[i], var[i])
    far = own[REACH] > 0.0 and abs(x - own[CENTRE]) > own[REACH]
    own[SCORE] = own[SCORE] + 1.0 if far else max(own[SCORE] - 1.0, 0.0)
    if own[SCORE] >= PATIENCE:
        begin_anew(own)
        rows[i] = mean[i] = var[i] = 0.0
        far = False
    before, spread = x - mean[i], np.sqrt(var[i])
    if far:
        if own[MET] == 0.0:
            own[MET], own[FIRST] = 1.0, x
        after = min(max(before, -own[REACH]), own[REACH])
    else:
        if rows[i] >= KNOWN and spread > ROUNDING * abs(mean[i]):
            before = min(max(before, -FURTHEST * spread), FURTHEST * spread)
        size = abs(mean[i] + before)
        rows[i] = min(rows[i] + 1.0, memory)
        mean[i] += before / rows[i]
        after = before - before / rows[i]
        var[i] += (before * after - var[i]) / rows[i]
        spread = np.sqrt(var[i])
    z = after / spread if spread > ROUNDING * abs(mean[i]) else after
    return min(max(z, -LEARNED), LEARNED) if far else z, size
