"""The units that a regression network's outputs are in: they follow the mean and spread of the targets.

    y' = (y - centre) / spread

When centre and spread move, the last layer is rescaled with them, so that what the network predicts stays the same. When the
targets have jumped (`mesu.online.jumps`), centre and spread begin anew with the last few targets, the last layer is rescaled
so that the network predicts what the repair says, and its sigmas are as wide as at the start: it may learn soon what the
repair has missed.
"""

from dataclasses import replace

import numpy as np

from mesu.engine.predict import Weights
from mesu.online.jumps import EARLIEST, LOOKED_AT, repair
from mesu.online.network import first_std, layers
from mesu.online.scaling import BROKEN, FURTHEST, KNOWN, Scale, follow
from mesu.online.snapshot import Snapshot


def scale_of(targets: Scale) -> tuple[float, float]:
    """The mean and the spread of the targets so far."""
    return float(targets.mean[0]), float(targets.spread[0])


def scaled(now: Snapshot, y: np.ndarray) -> np.ndarray:
    """Targets ``[T]`` as the network learns them, ``[T, 1]``."""
    return np.clip(in_units(now, y), -FURTHEST, FURTHEST)


def in_units(now: Snapshot, y: np.ndarray) -> np.ndarray:
    """The same, not limited: a jump may be further than any outlier."""
    centre, spread = now.target_scale
    return (y[:, None] - centre) / spread


def repaired(now: Snapshot, live: Weights) -> Snapshot | None:
    """After a jump of the targets, with the `live` weights changed in place; None if there was none."""
    rows = now.recent_rows
    found = repair(rows) if now.updates >= EARLIEST and len(rows) == LOOKED_AT else None
    if found is None:
        return None
    centre, spread = now.target_scale
    if found.plain:
        new, ratio = now.target_scale, 1.0
    else:
        targets = centre + spread * rows[:, 0]
        counted = min(float(len(rows)), now.settings.memory)
        now = replace(now, targets=Scale(*(np.array([n]) for n in (counted, targets.mean(), targets.var()))))
        new = scale_of(now.targets)
        ratio = spread / new[1]
    *_, (weight, bias) = layers(live)
    if not found.plain:
        # those that predicted the rows; since then the jump itself was learned
        live.mean[...], live.std[...] = now.scoring_weights.mean, now.scoring_weights.std
        weight.mean[...] *= found.factor * ratio
        bias.mean[...] *= found.factor * ratio
        bias.mean[...] += (centre + spread * found.level - new[0]) / new[1]
    if not found.plain or found.variance > rows[:, 2].mean():
        for part in (weight, bias):
            part.std[...] = first_std(now.settings, weight.sizes[0])
    errors = np.full_like(now.recent_errors, min(found.variance * ratio**2, FURTHEST**2))
    return replace(now, target_scale=new, recent_errors=errors, noise_since=now.updates)


def rescaled(now: Snapshot, live: Weights, first: np.ndarray) -> Snapshot:
    """The snapshot with the target scale brought up to date; the last layer of the `live` weights is rescaled in place.

    Args:
        now: The snapshot.
        live: The weights that learn.
        first: The next target, ``[1]``, which counts already.
    """
    (centre, spread), new = now.target_scale, scale_of(follow(now.targets, first[:, None], now.settings.memory)[0])
    ratio = spread / new[1]
    # Either nothing has been learned that could be kept, or it was learned in the units of a broken first target.
    if now.updates < KNOWN or (now.updates == KNOWN and ratio > BROKEN / KNOWN):
        return replace(now, target_scale=new)
    reframed(live, (centre, spread), new)
    return replace(now, target_scale=new, recent_errors=now.recent_errors * ratio**2)


def reframed(weights: Weights, old: tuple[float, float], new: tuple[float, float]) -> None:
    """Rescale the last layer in place, so that what the network predicts in new units is what it predicted in the old ones."""
    *_, (weight, bias) = layers(weights)
    # sigmas stay: like the prior's, they are in units of the spread
    ratio = old[1] / new[1]
    weight.mean[...] *= ratio
    bias.mean[...] *= ratio
    bias.mean[...] += (old[0] - new[0]) / new[1]
