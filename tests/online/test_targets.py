"""Regression: units and levels of the targets, and their noise."""

from dataclasses import replace

import numpy as np
import pytest
from made_up import NUMBERS, at_mean, line
from sklearn.datasets import make_friedman1

import mesu
from mesu.online.model import OnlineModel
from mesu.online.scaling import Scale
from mesu.online.targets import rescaled


@pytest.mark.parametrize(("shift", "factor"), [(1e6, 1.0), (-3.0, 1e-6), (5.0, 1e9)])
def test_units_of_the_target_do_not_matter(shift, factor):
    X, y = line(400)
    plain, scaled = OnlineModel(NUMBERS, 3), OnlineModel(NUMBERS, 3)
    plain.learn(X, y)
    scaled.learn(X, shift + factor * y)
    one, other = plain.snapshot.predict(X[:50]), scaled.snapshot.predict(X[:50])
    np.testing.assert_allclose((other.mean - shift) / factor, one.mean, atol=0.01)
    np.testing.assert_allclose(other.total / factor**2, one.total, rtol=0.02)


def test_other_units_of_the_targets_leave_the_prediction_as_it_is():
    X, y = line(300)
    stream = OnlineModel(NUMBERS, 3)
    stream.learn(X, y)
    now = stream.snapshot.copied()
    centre, spread = now.target_scale
    before = centre + spread * at_mean(now.weights, now.inputs_for(X))
    now = replace(now, targets=Scale(*(np.array([v]) for v in (300.0, 40.0, 9.0**2))))
    now = rescaled(now, now.weights, np.array([40.0]))
    after = now.target_scale[0] + now.target_scale[1] * at_mean(now.weights, now.inputs_for(X))
    assert now.target_scale[0] == pytest.approx(40)
    assert now.target_scale[1] == pytest.approx(9, rel=0.01)
    np.testing.assert_allclose(after, before, atol=1e-5)


def test_the_noise_of_targets_is_learned():
    X, y = line(3000, noise=0.5)
    model = mesu.MESURegressor(random_state=0).partial_fit(X, y)
    fresh, truth = line(2000, noise=0.5, seed=1)
    assert np.sqrt(model.uncertainty(fresh).aleatoric.mean()) == pytest.approx(0.5, rel=0.15)
    mean, std = model.predict(fresh, return_std=True)
    inside = np.abs(truth - mean) < 1.645 * std
    assert 0.87 < inside.mean() < 0.95  # nine in ten
    np.testing.assert_allclose(mean, 7 + fresh @ [2.0, -0.3, 4.0], atol=1.0)


def test_a_level_that_jumps_is_followed():
    # ten times the spread: predictions must not go astray while the running mean comes after them
    X, y = make_friedman1(6000, noise=1, random_state=0)
    y[3000:] += 50
    stream = OnlineModel(replace(NUMBERS, hidden=(50,), memory=100_000), 10)
    stream.learn(X[:4000], y[:4000])
    error = y[4000:] - stream.snapshot.predict(X[4000:]).mean
    assert np.sqrt(np.mean(error**2)) < 2 * y[:3000].std()


def test_a_quiet_beginning_does_not_stop_the_weights():
    # 2,000 targets that are all the same: trusted to the last digit, the first that differs would throw everything over
    X, y = make_friedman1(6000, noise=1, random_state=0)
    given = np.where(np.arange(6000) < 2000, y[0], y)
    stream = OnlineModel(replace(NUMBERS, hidden=(50,), memory=100_000), 10)
    stream.learn(X[:4000], given[:4000])
    error = y[4000:] - stream.snapshot.predict(X[4000:]).mean
    assert error.var() < 0.7 * y.var()


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_tiny_sets_are_learned_without_a_leap(rows):
    for seed in range(5):
        draw = np.random.RandomState(seed)
        X, y = draw.normal(size=(rows, 10)), draw.normal(size=rows)
        stream = OnlineModel(replace(NUMBERS, seed=seed), 10)
        stream.learn_set(X, y, 10, draw)
        assert stream.snapshot.weights.std.max() < 2
        assert np.abs(stream.snapshot.predict(X).mean - y).max() < 3
