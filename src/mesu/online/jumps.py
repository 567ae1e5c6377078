"""Whether the targets of a stream have jumped: to another level, to other units, or to another function of the inputs.

The last `LOOKED_AT` targets u were each predicted before they were learned, as N(m, v). They are compared with what a repair
of the predictions would have given, its variance s^2 fitted to them:

    u = m         the noise is another one              u = a + b m      other units
    u = a + m     another level                         u = a            what was known of them is of no use

The repair that is most probable (by its likelihood, less log(n) / 2 for each of a and b) is made if it is worth `WORTH` nats
a row more than the model was, where no row counts for more than `MOST`: a few broken targets are no jump. Noise alone does
not get there: for 32 rows that would be odds of one to eight million.
"""

from typing import NamedTuple

import numpy as np

LOOKED_AT = 32  # rows: enough to fit a repair, and few enough to make it soon
WORTH, MOST = 0.5, 3.0  # nats a row
EARLIEST = 64  # rows before the first look: until then everything is new
LARGEST = 1e100  # a difference whose square is still a number


class Repair(NamedTuple):
    """What became of predictions m: a + b m, with errors of this variance."""

    level: float  # a
    factor: float  # b
    variance: float

    @property
    def plain(self) -> bool:
        """Whether only the noise is another one."""
        return self.level == 0 and self.factor == 1


def repair(rows: np.ndarray) -> Repair | None:
    """The repair that a stream needs; None if it has not jumped.

    Args:
        rows: Targets, predictions and their variances ``[n, 3]``, in the same units.
    """
    u, m, v = np.clip(rows, -LARGEST, LARGEST).T
    found = [_fitted(u, m, 0.0, 1.0, 0), _fitted(u, m, float(np.mean(u - m)), 1.0, 1)]
    found.append(_fitted(u, m, float(u.mean()), 0.0, 1))
    around = m - m.mean()
    if around.any():
        factor = float(around @ (u - u.mean()) / (around @ around))
        found.append(_fitted(u, m, float(u.mean() - factor * m.mean()), factor, 2))
    _, best = max(found)
    with np.errstate(over="ignore"):
        before = np.log(v) + (u - m) ** 2 / v
        after = np.log(best.variance) + (u - best.level - best.factor * m) ** 2 / best.variance
    gains = np.clip(0.5 * (before - after), -MOST, MOST)
    return best if gains.mean() > WORTH else None


def _fitted(u: np.ndarray, m: np.ndarray, level: float, factor: float, fitted: int) -> tuple[float, Repair]:
    """The log likelihood of a repair, less what its fitted numbers cost."""
    n, errors = len(u), u - (level + factor * m)
    variance = max(float(errors @ errors) / (n - fitted), np.finfo(float).tiny)
    return -0.5 * n * (np.log(variance) + 1) - 0.5 * fitted * np.log(n), Repair(level, factor, variance)
