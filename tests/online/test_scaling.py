"""Running means and variances against closed forms, whatever the chunking, with outliers and gaps."""

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import clusters, equal, line

import mesu
from mesu.online.scaling import FURTHEST, KNOWN, follow, of_whole, standardised, unknown


def test_a_full_memory_is_not_needed_for_the_plain_mean_and_variance():
    x = np.random.default_rng(0).normal(size=(50, 3)) * [1, 1e-6, 1e6] + [0, 1, -1e6]
    scale, z = follow(unknown(3), x, 1000)
    np.testing.assert_allclose(scale.mean, x.mean(0), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(scale.var, x.var(0), rtol=1e-6)
    for row in (0, 1, 20, 49):
        seen = x[: row + 1]
        expected = (x[row] - seen.mean(0)) / seen.std(0) if row else 0
        np.testing.assert_allclose(z[row], expected, rtol=1e-5, atol=1e-9)


def test_beyond_the_memory_old_rows_fade():
    x, memory = np.random.default_rng(0).normal(size=(200, 1)), 20
    scale, _ = follow(unknown(1), x, memory)
    # weights of the rows by unrolling m' = m + (x - m) / w
    weight = np.zeros(0)
    for row in range(200):
        w = min(row + 1, memory)
        weight = np.append(weight * (1 - 1 / w), 1 / w)
    mean = weight @ x[:, 0]
    np.testing.assert_allclose(scale.mean[0], mean)
    np.testing.assert_allclose(scale.var[0], weight @ (x[:, 0] - mean) ** 2)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_the_cut_does_not_show_in_what_is_standardised(lengths):
    x = np.random.default_rng(0).normal(size=(sum(lengths), 2)) * 1e3
    whole, z = follow(unknown(2), x, 40)
    scale, parts, at = unknown(2), [], 0
    for length in lengths:
        scale, part = follow(scale, x[at : at + length], 40)
        parts.append(part)
        at += length
    assert equal(whole, scale)
    np.testing.assert_array_equal(z, np.concatenate(parts))


def test_a_column_that_never_moves_is_zero():
    x = np.tile([[1e8, 0.0, -3.3]], (20, 1))
    scale, z = follow(unknown(3), x, 100)
    assert (z == 0).all()
    np.testing.assert_array_equal(standardised(scale, x + 1), np.ones((20, 3)))


def test_a_broken_sensor_does_not_blind_a_column():
    x = np.random.default_rng(0).normal(size=(5000, 1))
    before, _ = follow(unknown(1), x, 10_000)
    after, z = follow(before, np.array([[1e30]]), 10_000)
    assert after.spread[0] < 2 * before.spread[0]
    assert 0 < z[0, 0] <= FURTHEST
    assert standardised(before, np.array([[1e300], [-1e300]])).ravel().tolist() == [FURTHEST, -FURTHEST]
    # a scale that really changes is followed
    changed, _ = follow(before, 1000 * x, 10_000)
    assert changed.spread[0] == pytest.approx(1000 / 2**0.5, rel=0.2)


def test_a_whole_set_is_standardised_whatever_its_order():
    x = np.sort(np.random.default_rng(0).normal(size=(500, 1)), axis=0)
    scale = of_whole(x, memory=10)
    np.testing.assert_allclose([scale.mean[0], scale.var[0]], [x.mean(), x.var()])
    assert scale.rows[0] == 10  # but it has no more say than the memory gives it


def test_values_whose_squares_are_no_numbers_are_refused():
    with pytest.raises(ValueError, match=r"1e\+200"):
        follow(unknown(1), np.array([[0.0], [1e200]]), 100)
    with pytest.raises(
        ValueError, match=r"must be smaller, got one of size 1e\+200"
    ):  # though nothing contradicts it yet
        follow(unknown(1), np.array([[1e200]]), 100)
    for model in (mesu.MESUClassifier(), mesu.MESURegressor()):
        with pytest.raises(ValueError, match=r"1e\+200"):
            model.partial_fit([[1e200, 1.0]], [1])
        model.partial_fit([[1.0, 1.0]], [1])
    with pytest.raises(ValueError, match=r"1e\+200"):
        mesu.MESURegressor().partial_fit([[1.0]], [1e200])
    # where a spread is known, one that cannot be is taken for a far one
    known, _ = follow(unknown(1), np.arange(40.0)[:, None], 100)
    assert follow(known, np.array([[1e300]]), 100)[1][0, 0] < FURTHEST


@pytest.mark.parametrize("place", range(KNOWN - 1))
@pytest.mark.parametrize("size", [1e8, -1e30, 1e149])
def test_a_column_survives_a_broken_value_among_its_first(place, size):
    x = np.random.default_rng(place).normal(3, 1, size=(200, 1))
    broken = x.copy()
    broken[place] = size
    scale, z = follow(unknown(1), broken, 1e5)
    assert (scale.mean[0], scale.spread[0]) == pytest.approx((x[KNOWN - 1 :].mean(), x[KNOWN - 1 :].std()))
    np.testing.assert_allclose(z[150:], (x[150:] - 3) / 1, atol=0.6)


@pytest.mark.parametrize("size", [1e8, -1e30, 1e149])
def test_a_column_survives_a_broken_value_as_the_last_of_its_first(size):
    x = np.random.default_rng(0).normal(3, 1, size=(200, 1))
    broken = x.copy()
    broken[KNOWN - 1] = size
    scale, z = follow(unknown(1), broken, 1e5)
    assert (scale.mean[0], scale.spread[0]) == pytest.approx((x.mean(), x.std()), abs=0.02)
    np.testing.assert_allclose(z[150:], (x[150:] - 3) / 1, atol=0.6)


def test_values_of_many_sizes_are_kept():
    # what looks like a broken value and is none: a switch, a long tail, a constant that moved, one of two
    for x in (
        np.r_[1e9, np.zeros(40)],
        np.exp(6 * np.random.default_rng(0).normal(size=41)),
        np.r_[5.0, np.full(40, 3.0)],
        np.r_[1e9, 1e9, np.random.default_rng(0).normal(size=39)],
    ):
        assert follow(unknown(1), x[:KNOWN, None], 1e5)[0].mean[0] == pytest.approx(x[:KNOWN].mean())
    scale, _ = follow(unknown(1), np.r_[1e9, np.ones(100)][:, None], 15)  # a memory that is never that long
    assert scale.rows[0] == 15


def test_a_model_survives_broken_first_rows():
    X, y = line(3000)
    fresh, truth = line(500, seed=1)
    X[0], X[3, 1], y[2] = 1e120, -1e9, 1e100
    model = mesu.MESURegressor(random_state=0).partial_fit(X, y)
    assert np.sqrt(np.mean((model.predict(fresh) - truth) ** 2)) < 0.3 * truth.std()
    X, y = clusters(1000)
    X[0] = 1e100
    assert mesu.MESUClassifier(random_state=0).partial_fit(X, y).score(*clusters(500, seed=1)) > 0.9


def test_gaps_are_passed_over_by_the_running_means():
    x = np.array([[1.0, nan], [nan, 4.0], [3.0, nan], [5.0, 6.0]])
    scale, z = follow(unknown(2), x, inf)
    alone, z_alone = follow(unknown(1), np.array([[1.0], [3.0], [5.0]]), inf)
    assert (scale.mean[0], scale.var[0], scale.rows[0]) == (alone.mean[0], alone.var[0], 3)
    np.testing.assert_array_equal(z[[0, 2, 3], 0], z_alone[:, 0])
    assert z[1, 0] == z[0, 1] == z[2, 1] == 0
    np.testing.assert_array_equal(standardised(scale, np.array([[nan, 6.0]])), [[0.0, 1.0]])
