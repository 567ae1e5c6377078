"""Which values of a column are far from all others: sentinels such as -9999, broken sensors, wrong units.

A running mean and variance cannot tell: one value of 1e12 moves both. So each column also keeps a sample of `SAMPLED` of its
values, spread evenly over the rows so far, and from it

    centre    the value that the column usually has, if there is one, or the median of the sample
    reach     `GAP` times the largest distance from the centre in the sample, or the largest before a gap

A gap is where the sorted distances, from their median on, grow by `GAP` from one to the next: a long tail has none, and up to
half of the sample may be wrong. A value further from the centre than the reach is far. Values that repeat the usual one are not
sampled: a switch that is on once in ten thousand rows has a reach of `GAP` times its size.

- A far value moves neither mean nor variance.
- Far values that counted before the column was known well enough to tell are taken back: mean and variance begin anew from
  the sample.
- After `PATIENCE` more far values than near ones it is the column that has changed, and it begins anew. One that has changed
  `CHANGES` times goes to and fro: from then on none of its values is far.
"""

import numba
import numpy as np

SAMPLED = 32
ENOUGH = 16  # values in the sample for a first judgement
GAP = 10.0  # reaches some 20 standard deviations of a normal distribution
PATIENCE = 64
CHANGES = 3  # a sensor that gets stuck at a sentinel and comes alive again changes twice
COMMON = 16  # the usual value has come in so many more of the last rows than others
STEADY = 64.0  # and counts as no more: a sensor that comes alive is seen soon
BLIND = 4.0  # a standard deviation so many times that of the sample's near values counts far ones
CHANGED = 16.0  # the same, where none is far: the usual value was, and is no longer usual
TINY = 1e-7  # distances below this share of the centre are rounding errors

# A column's watch is an array of numbers, those that every row needs first.
SEEN, USUAL, VOTES = 0, 1, 2  # values so far; the usual one, by the majority vote of Boyer and Moore, and its votes
CENTRE, REACH = 3, 4  # a reach of 0: not known, no value is far
SCORE = 5  # far values, less near ones
TAKEN, DUE, STRIDE, PLACE, FILLED = (
    6,
    7,
    8,
    9,
    10,
)  # every STRIDE-th of the values that are not the usual one is sampled
BEGUN = 11  # how often the column has changed
MET, FIRST = 12, 13  # whether a value was far, and one that was
SAMPLE = 14  # where the sample begins
WIDTH = SAMPLE + SAMPLED

FLAGS = {"nogil": True, "error_model": "numpy", "_nrt": False}


def watches(columns: int) -> np.ndarray:
    """The watches ``[columns, WIDTH]`` of columns of which nothing has been seen."""
    watch = np.zeros((columns, WIDTH))
    watch[:, STRIDE] = 1.0
    return watch


def open_watches(columns: int) -> np.ndarray:
    """The watches of columns none of whose values is ever far, as in models of earlier versions."""
    watch = watches(columns)
    watch[:, BEGUN] = CHANGES
    return watch


def watches_of(x: np.ndarray, memory: float) -> np.ndarray:
    """The watches after a whole set, in which the order of the rows does not matter."""
    watch, work, unused = watches(x.shape[1]), np.empty(SAMPLED), 0.0
    for own, column in zip(watch, x.T, strict=True):
        values = np.sort(column[~np.isnan(column)])
        if not len(values):
            continue
        kinds, counts = np.unique(values, return_counts=True)
        own[SEEN], own[USUAL] = len(values), kinds[counts.argmax()]
        own[VOTES] = min(max(2.0 * counts.max() - len(values), 0.0), STEADY)
        others = values[values != own[USUAL]]
        filled = min(len(others), SAMPLED)
        own[SAMPLE : SAMPLE + filled] = others[(np.arange(filled) + 0.5).astype(int) * len(others) // max(filled, 1)]
        while own[STRIDE] * SAMPLED < len(others) and 2 * own[STRIDE] * SAMPLED <= memory:
            own[STRIDE] *= 2
        own[TAKEN] = own[DUE] = len(others)
        own[PLACE] = own[FILLED] = filled
        judged(own, work, unused, unused)
        far = column[are_far(own[None], column[:, None])[:, 0]]
        if len(far):
            own[MET], own[FIRST] = 1.0, far[0]
    return watch


def are_far(watch: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Which values ``[B, columns]`` are far."""
    with np.errstate(over="ignore", invalid="ignore"):
        return (watch[:, REACH] > 0) & (np.abs(x - watch[:, CENTRE]) > watch[:, REACH])


def are_valid(watch: np.ndarray) -> bool:
    """Whether compiled code can work with these watches: places in the sample are inside of it."""
    places, strides = watch[:, [PLACE, FILLED]], watch[:, STRIDE]
    inside = (places >= 0) & (places <= SAMPLED) & (places == np.floor(places))
    return bool(inside.all() and (strides >= 1).all() and (watch[:, [REACH, SEEN, TAKEN]] >= 0).all())


@numba.njit(**FLAGS)
def begin_anew(watch):
    """Forget the column, but not how often it has changed."""
    watch[SEEN] = watch[VOTES] = watch[REACH] = watch[SCORE] = 0.0
    watch[TAKEN] = watch[DUE] = watch[PLACE] = watch[FILLED] = 0.0
    watch[STRIDE] = 1.0
    watch[BEGUN] += 1.0


@numba.njit(**FLAGS)
def watched(watch, x, memory):
    """Take note of a column's next value. Returns whether the sample has changed, and must be judged."""
    watch[SEEN] += 1.0
    if watch[SEEN] > 1.0 and x == watch[USUAL]:
        watch[VOTES] = min(watch[VOTES] + 1.0, STEADY)
        return False
    if watch[VOTES] == 0.0:
        watch[USUAL], watch[VOTES] = x, 1.0
    else:
        watch[VOTES] -= 1.0
    watch[TAKEN] += 1.0
    if watch[TAKEN] <= watch[DUE]:
        return False
    if watch[PLACE] >= SAMPLED:
        watch[PLACE] = 0.0
        if 2.0 * watch[STRIDE] * SAMPLED <= memory:
            for k in range(SAMPLED // 2):  # every second one stays
                watch[SAMPLE + k] = watch[SAMPLE + 2 * k]
            watch[STRIDE] *= 2.0
            watch[PLACE] = watch[FILLED] = SAMPLED // 2
    watch[SAMPLE + int(watch[PLACE])] = x
    watch[DUE] += watch[STRIDE]
    watch[PLACE] += 1.0
    watch[FILLED] = max(watch[FILLED], watch[PLACE])
    return True


@numba.njit(**FLAGS)
def judged(watch, work, mean, var):
    """Find centre and reach anew. Returns mean and variance: those of the sample, if they counted far values."""
    watch[REACH], n = 0.0, int(watch[FILLED])
    if n < ENOUGH:
        return mean, var
    steady, centre = watch[VOTES] >= COMMON, watch[USUAL]
    if not steady:
        for k in range(n):
            work[k] = watch[SAMPLE + k]
        _sort(work, n)
        centre = work[(n - 1) // 2]
    apart = 0
    for k in range(n):
        if watch[SAMPLE + k] != centre:
            work[apart] = abs(watch[SAMPLE + k] - centre)
            apart += 1
    if 2 * apart < ENOUGH:
        return mean, var
    _sort(work, apart)
    largest = (apart - 1) // 2
    while largest + 1 < apart and work[largest + 1] < GAP * work[largest]:
        largest += 1
    reach = GAP * work[largest]
    if reach <= GAP * TINY * abs(centre):
        return mean, var
    watch[CENTRE], watch[REACH] = centre, reach
    near, middle, squares, furthest = 0.0, 0.0, 0.0, centre
    for k in range(n):
        value = watch[SAMPLE + k]
        if abs(value - centre) <= reach:  # Welford's mean and variance
            near += 1.0
            step = value - middle
            middle += step / near
            squares += step * (value - middle)
        if abs(value - centre) > abs(furthest - centre):
            furthest = value
    share, away = watch[TAKEN] / watch[SEEN] if steady else 1.0, middle - centre
    expected = share * (squares / near + (1.0 - share) * away * away)
    ratio = BLIND if near < n else CHANGED
    if var <= ratio * ratio * expected:
        return mean, var
    if near < n:
        if watch[MET] == 0.0:
            watch[MET], watch[FIRST] = 1.0, furthest
    else:
        watch[BEGUN] += 1.0
        watch[SEEN] = watch[TAKEN]
        if watch[BEGUN] >= CHANGES:
            watch[REACH] = 0.0
    return (centre + share * away if steady else middle), expected


@numba.njit(**FLAGS)
def _sort(values, n):
    """Sort the first n values in place: they are few."""
    for i in range(1, n):
        value, k = values[i], i
        while k > 0 and values[k - 1] > value:
            values[k] = values[k - 1]
            k -= 1
        values[k] = value
