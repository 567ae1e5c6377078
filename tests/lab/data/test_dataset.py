"""How raw arrays become a `Dataset`."""

import numpy as np
from tests.lab.data.made_up import COLOUR

from mesu.lab import data


def test_photographs_are_divided_by_255_with_channels_first():
    made = data.Dataset.photographs("made", *(COLOUR[name] for name in COLOUR))
    assert made.x_train.shape == (20, 3, 32, 32)
    assert made.x_train.dtype == np.float32
    assert made.x_train.flags["C_CONTIGUOUS"]
    assert made.features == 3072
    assert made.classes == 10
    assert made.x_train[3, 2, 5, 7] == np.float32(COLOUR["x_train"][3, 5, 7, 2]) / np.float32(255)
    assert made.y_train.dtype == np.int64
