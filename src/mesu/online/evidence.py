"""Evidence that the values of a signal have become larger: a sequential test whose rows between false alarms are known.

Each value is ranked among the last n, so that units do not matter. If `below` of them are smaller and `upto` are not larger,
its rank r is anywhere from below / (n + 1) to (upto + 1) / (n + 1), all of it equally likely as long as the order of values
says nothing. A bet f on high ranks, whose mean over (0, 1) is 1, pays its mean over that range, and is added up as Shiryaev and
Roberts did (and as an e-detector does, Shin, Ramdas and Rinaldo 2024):

    M' = (M + 1) f(r)              E[M_t] = t as long as nothing changes, so M reaches c once in c rows on average, or less

    f(r) = b exp(b r) / (exp(b) - 1)        for changes that are small (b = 1) to large (b = 10)
    f(r) = a (1 - r)^(a - 1)                for a few values beyond all others

M is the mean over the bets: which of them is the right one need not be known.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from math import expm1, isnan

TILTS, POWERS = (1.0, 3.0, 10.0), (0.3, 0.6)
LEAST = 30  # values to rank one among: with fewer, ranks say little


class Evidence:
    """The evidence M of one signal.

    Args:
        window: How many values one is ranked among.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.value = 0.0
        self._sums = [0.0] * (len(TILTS) + len(POWERS))
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, value: float) -> None:
        """Take the next value into account; one that is not a number is left out."""
        if isnan(value):
            return
        count = len(self._recent)
        if count >= LEAST:
            below, upto = bisect_left(self._sorted, value), bisect_right(self._sorted, value)
            pays = payoffs(below / (count + 1), (upto + 1) / (count + 1))
            self._sums = [(total + 1) * pay for total, pay in zip(self._sums, pays, strict=True)]
            self.value = sum(self._sums) / len(self._sums)
        insort(self._sorted, value)
        self._recent.append(value)
        if len(self._recent) > self.window:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]


def payoffs(low: float, high: float) -> list[float]:
    """What each bet on high ranks pays for a rank from `low` to `high`: the mean of f, by its integral."""
    tilted = [(expm1(b * high) - expm1(b * low)) / expm1(b) for b in TILTS]
    powers = [(1 - low) ** a - (1 - high) ** a for a in POWERS]
    return [paid / (high - low) for paid in tilted + powers]
