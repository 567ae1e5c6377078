"""The units that a regression network's outputs are in: they follow the mean and spread of the targets.

    y' = (y - centre) / spread

When centre and spread move, the last layer is rescaled with them, so that what the network predicts stays the same.
"""

from dataclasses import replace

import numpy as np

from mesu.engine.predict import Weights
from mesu.online.network import layers
from mesu.online.scaling import BROKEN, FURTHEST, KNOWN, Scale, follow
from mesu.online.snapshot import Snapshot


def scale_of(targets: Scale) -> tuple[float, float]:
    """The mean and the spread of the targets so far."""
    return float(targets.mean[0]), float(targets.spread[0])


def scaled(now: Snapshot, y: np.ndarray) -> np.ndarray:
    """Targets ``[T]`` as the network learns them, ``[T, 1]``."""
    centre, spread = now.target_scale
    return np.clip((y[:, None] - centre) / spread, -FURTHEST, FURTHEST)


def rescaled(now: Snapshot, live: Weights, first: np.ndarray) -> Snapshot:
    """With the target scale brought up to date, and the last layer of the `live` weights changed in place to fit.

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
    *_, (weight, bias) = layers(live)
    # sigmas stay: like the prior's, they are in units of the spread
    weight.mean[...] *= ratio
    bias.mean[...] *= ratio
    bias.mean[...] += (centre - new[0]) / new[1]
    return replace(now, target_scale=new, recent_errors=now.recent_errors * ratio**2)
