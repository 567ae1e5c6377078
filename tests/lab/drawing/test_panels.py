"""Means and spreads of curves with gaps."""

import numpy as np
import pytest

from mesu.lab.table import mean_and_std


def test_mean_and_spread_are_of_what_was_measured():
    mean, std = mean_and_std(np.array([[0.2, np.nan, np.nan], [0.4, 0.5, np.nan]]))
    assert mean[:2] == pytest.approx([0.3, 0.5])
    assert std[:2] == pytest.approx([0.1 * 2**0.5, 0.0])  # of a sample: n - 1
    assert np.isnan(mean[2])
    assert np.isnan(std[2])
