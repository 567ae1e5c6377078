"""Jumps of the targets: which are seen, what is made of them, and that a stream goes on as if nothing had happened."""

from math import inf

import numpy as np
import pytest

import mesu
from mesu.online import noise
from mesu.online.jumps import LOOKED_AT, repair


def predicted(spread=1.0, seed=0):
    """Targets, predictions and variances of a model that is right about its noise."""
    draw = np.random.default_rng(seed)
    m = draw.normal(size=LOOKED_AT)
    return np.stack([m + spread * draw.normal(size=LOOKED_AT), m, np.full(LOOKED_AT, spread**2)], 1)


@pytest.mark.parametrize("spread", [1e-3, 0.3, 3.0])
def test_noise_is_no_jump(spread):
    assert not any(repair(predicted(spread, seed)) for seed in range(300))


@pytest.mark.parametrize("size", [1e1, 1e6, 1e200])
@pytest.mark.parametrize("rows", [1, 4])
def test_a_few_broken_targets_are_no_jump(rows, size):
    broken = predicted(0.3)
    broken[5 : 5 + rows, 0] = size
    assert repair(broken) is None


@pytest.mark.parametrize(("level", "factor"), [(100, 1), (-3, 1), (0, 1000), (0, 1e-3), (50, 1e6), (2, -1)])
def test_another_level_or_other_units_are_found_and_measured(level, factor):
    rows = predicted(0.1)
    rows[:, 0] = level + factor * rows[:, 0]
    found = repair(rows)
    assert found is not None
    assert not found.plain
    assert found.factor == pytest.approx(factor, rel=0.1)
    assert found.level == pytest.approx(level, abs=0.1 * abs(factor))
    assert found.variance**0.5 == pytest.approx(0.1 * abs(factor), rel=0.4)


@pytest.mark.parametrize("times", [0.1, 10])
def test_other_noise_is_no_other_level(times):
    rows = predicted(1.0)
    rows[:, 0] = rows[:, 1] + times * (rows[:, 0] - rows[:, 1])
    found = repair(rows)
    assert found is not None
    assert found.plain
    assert found.variance**0.5 == pytest.approx(times, rel=0.4)


def test_targets_that_have_nothing_to_do_with_predictions_are_taken_at_their_level():
    rows = predicted(0.1)
    rows[:, 0] = 40 + np.random.default_rng(5).normal(size=LOOKED_AT)
    found = repair(rows)
    assert found is not None
    assert found.factor == 0
    assert found.level == pytest.approx(40, abs=1)


def test_noise_and_what_is_reported_of_it():
    errors, epistemic = np.full(300, 4.0), np.full(300, 1.0)
    assert noise.of_all(errors, epistemic) == 2
    assert noise.of_recent(errors, epistemic, 300) == 2
    assert noise.reported(errors, epistemic, 300) == (3, 1)  # 3 + 1 is the size of the errors
    errors[-64:] = 100  # noise that has grown is seen in the last few
    assert noise.of_recent(errors, epistemic, 300) == 10
    aleatoric, factor = noise.reported(errors, np.full(300, 1000.0), 300)  # a network less sure than it is right
    assert aleatoric + factor * 1000 == pytest.approx(100)
    assert noise.of_recent(np.zeros(300), np.zeros(300), 300) == noise.LEAST
    assert min(noise.reported(np.zeros(300), np.zeros(300), 300)) > 0


@pytest.mark.parametrize("memory", [500, 100_000, inf])
@pytest.mark.parametrize(("level", "factor"), [(100, 1), (-1000, 1), (0, 1e-3), (0, 1e6)])
@pytest.mark.parametrize("hidden", [(), (20,)])
def test_a_stream_goes_on_after_its_targets_jump(memory, level, factor, hidden):
    draw = np.random.default_rng(1)
    X = draw.normal(size=(3600, 2))
    y = 2 * X[:, 0] - X[:, 1] + 0.5 * draw.normal(size=len(X))
    y[1600:] = level + factor * y[1600:]
    y[2600:] = (y[2600:] - level) / factor  # and back
    model = mesu.MESURegressor(hidden=hidden, memory=memory, random_state=0).partial_fit(X[:1200], y[:1200])
    before = model.score(X[1200:1600], y[1200:1600])
    for start, end in ((1200, 2200), (2200, 3200)):
        model.partial_fit(X[start:end], y[start:end])
        after = slice(end, end + 400)  # 600 rows after the jump
        mean, std = model.predict(X[after], return_std=True)
        assert model.score(X[after], y[after]) > before - 0.05
        assert 0.82 < np.mean(np.abs(mean - y[after]) < 1.645 * std) < 0.97
