"""The running mean and spread that inputs are scaled with."""

import numpy as np
import pytest
from benchmarks.streams.adapters import Running


def test_running_mean_and_spread():
    draw = np.random.default_rng(0).normal(3, 2, (50, 2))
    running, number = Running(), Running()
    for row in draw:
        running.follow(row)
        number.follow(float(row[0]))
    np.testing.assert_allclose(running.scaled(draw[7]), (draw[7] - draw.mean(0)) / draw.std(0))
    assert number.back(number.scaled(1.25)) == pytest.approx(1.25)
    assert number.spread == pytest.approx(draw[:, 0].std())
