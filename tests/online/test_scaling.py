"""Running means and variances against closed forms, whatever the chunking, with outliers and gaps."""

from math import inf, nan

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import clusters, equal, learned, line
from sklearn.preprocessing import RobustScaler

import mesu
from mesu.online.outliers import BEGUN, CHANGES, PATIENCE, are_far, open_watches
from mesu.online.scaling import (
    FURTHEST,
    KNOWN,
    LEARNED,
    Columns,
    columns_of_whole,
    follow,
    follow_columns,
    newly_far,
    of_whole,
    standardised,
    unknown,
    unknown_columns,
    widened,
)

targets_and_columns = pytest.mark.parametrize(
    ("unknown", "follow"), [(unknown, follow), (unknown_columns, follow_columns)], ids=["targets", "columns"]
)


def as_columns(scale):
    return Columns(*scale[:3], open_watches(len(scale.mean)))


@targets_and_columns
def test_a_full_memory_is_not_needed_for_the_plain_mean_and_variance(unknown, follow):
    x = np.random.default_rng(0).normal(size=(50, 3)) * [1, 1e-6, 1e6] + [0, 1, -1e6]
    scale, z = follow(unknown(3), x, 1000)
    np.testing.assert_allclose(scale.mean, x.mean(0), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(scale.var, x.var(0), rtol=1e-6)
    for row in (0, 1, 20, 49):
        seen = x[: row + 1]
        expected = (x[row] - seen.mean(0)) / seen.std(0) if row else 0
        np.testing.assert_allclose(z[row], expected, rtol=1e-5, atol=1e-9)


@targets_and_columns
def test_beyond_the_memory_old_rows_fade(unknown, follow):
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


@targets_and_columns
@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_the_cut_does_not_show_in_what_is_standardised(unknown, follow, lengths):
    x = np.random.default_rng(0).normal(size=(sum(lengths), 2)) * 1e3
    x[np.random.default_rng(1).random(x.shape) < 0.1] = -1e9
    whole, z = follow(unknown(2), x, 40)
    scale, parts, at = unknown(2), [], 0
    for length in lengths:
        scale, part = follow(scale, x[at : at + length], 40)
        parts.append(part)
        at += length
    assert equal(whole, scale)
    np.testing.assert_array_equal(z, np.concatenate(parts))


@targets_and_columns
def test_a_column_that_never_moves_is_zero(unknown, follow):
    x = np.tile([[1e8, 0.0, -3.3]], (20, 1))
    scale, z = follow(unknown(3), x, 100)
    assert (z == 0).all()
    np.testing.assert_array_equal(standardised(as_columns(scale), x + 1), np.ones((20, 3)))


def test_a_broken_sensor_does_not_blind_a_column():
    x = np.random.default_rng(0).normal(size=(5000, 1))
    before, _ = follow(unknown(1), x, 10_000)
    after, z = follow(before, np.array([[1e30]]), 10_000)
    assert after.spread[0] < 2 * before.spread[0]
    assert 0 < z[0, 0] <= FURTHEST
    assert standardised(as_columns(before), np.array([[1e300], [-1e300]])).ravel().tolist() == [FURTHEST, -FURTHEST]
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
    with pytest.warns(mesu.LearningWarning, match="far from its others"):
        model = mesu.MESURegressor(random_state=0).partial_fit(X, y)
    assert np.sqrt(np.mean((model.predict(fresh) - truth) ** 2)) < 0.3 * truth.std()
    X, y = clusters(1000)
    X[0] = 1e100
    with pytest.warns(mesu.LearningWarning, match="far from its others"):
        model = mesu.MESUClassifier(random_state=0).partial_fit(X, y)
    assert model.score(*clusters(500, seed=1)) > 0.9


@targets_and_columns
def test_gaps_are_passed_over_by_the_running_means(unknown, follow):
    x = np.array([[1.0, nan], [nan, 4.0], [3.0, nan], [5.0, 6.0]])
    scale, z = follow(unknown(2), x, inf)
    alone, z_alone = follow(unknown(1), np.array([[1.0], [3.0], [5.0]]), inf)
    assert (scale.mean[0], scale.var[0], scale.rows[0]) == (alone.mean[0], alone.var[0], 3)
    np.testing.assert_array_equal(z[[0, 2, 3], 0], z_alone[:, 0])
    assert z[1, 0] == z[0, 1] == z[2, 1] == 0
    np.testing.assert_array_equal(standardised(as_columns(scale), np.array([[nan, 6.0]])), [[0.0, 1.0]])


def clean(kind, rows=6000):
    """Columns without outliers, of many kinds."""
    draw = np.random.default_rng(0)
    noise = draw.normal(size=(rows, 4))
    return {
        "normal": noise * [1, 1e-6, 1e6, 30] + [0, 1, -1e6, 5],
        "a switch that is seldom on": (draw.random((rows, 4)) < 0.002) * [1.0, 5.0, 1e9, -1e-9],
        "counts": draw.poisson([0.01, 0.3, 3, 30], (rows, 4)).astype(float),
        "a walk": np.cumsum(noise, 0),
        "a ramp": np.arange(rows)[:, None] * [1.0, 1e-9, -1e9, 3.0],
        "seasons": np.sin(np.arange(rows)[:, None] / 900) + 0.01 * noise,
        "two levels in turn": (np.arange(rows)[:, None] // 40 % 2) * [1.0, 10.0, 100.0, 1e6],
    }[kind]


@pytest.mark.parametrize(
    "kind",
    ["normal", "a switch that is seldom on", "counts", "a walk", "a ramp", "seasons", "two levels in turn"],
)
def test_columns_without_outliers_are_standardised_by_plain_means_and_variances(kind):
    x = clean(kind)
    plain, z = follow(unknown(4), x, 1e5)
    columns, same_z = follow_columns(unknown_columns(4), x, 1e5)
    assert equal(tuple(plain), tuple(columns)[:3])
    np.testing.assert_array_equal(z, same_z)
    assert newly_far(unknown_columns(4), columns) == []


@pytest.mark.parametrize("places", ["the first", "among the first", "later", "in a row"])
@pytest.mark.parametrize("count", [1, 2, 5, 30])
def test_columns_with_outliers_have_the_scale_of_a_robust_scaler_on_the_clean_ones(places, count):
    x = np.random.default_rng(count).normal(3, 1, size=(2000, 24))
    robust = RobustScaler().fit(x)
    spread, draw = robust.scale_ / 1.349, np.random.default_rng(0)  # a normal distribution's quartiles are 1.349 apart
    rows = {
        "the first": np.arange(count),
        "among the first": draw.choice(max(KNOWN, 3 * count), count, replace=False),
        "later": draw.choice(np.arange(200, 2000), count, replace=False),
        "in a row": np.arange(1000, 1000 + count),
    }[places]
    x[rows] = np.geomspace(1e2, 1e149, 12).repeat(2) * np.tile([-1, 1], 12)  # one for each column
    columns, z = follow_columns(unknown_columns(24), x, 1e5)
    np.testing.assert_allclose(columns.mean, robust.center_, atol=0.3)
    np.testing.assert_allclose(columns.spread, spread, rtol=0.2)
    assert np.abs(z).max() < 21  # at most 45, the square root of 2,000, were they not limited
    assert [column for column, _ in newly_far(unknown_columns(24), columns)] == list(range(24))


def test_a_sensor_that_was_stuck_is_seen_again():
    x = np.random.default_rng(0).normal(3, 1, size=(3000, 4))
    x[1000:1300] = [-9999.0, 1000.0, 1e12, 3.0]
    columns, z = follow_columns(unknown_columns(4), x, 1e5)
    np.testing.assert_allclose(z[1500:].std(0), 1, rtol=0.2)
    np.testing.assert_allclose(columns.mean, 3, atol=0.5)
    # from the first row on
    stuck = np.r_[np.full((300, 4), [-9999.0, 1000.0, 1e12, 3.0]), x[:1000]]
    columns, z = follow_columns(unknown_columns(4), stuck, 1e5)
    np.testing.assert_allclose(z[500:].std(0)[:3], 1, rtol=0.2)


def test_a_column_whose_level_and_units_change_begins_anew():
    x = np.random.default_rng(0).normal(size=(5000, 1))
    x[3000:] = 1000 * x[3000:] + 1e6
    _, z = follow_columns(unknown_columns(1), x, 1e5)
    after = z[3000 + 2 * PATIENCE :]
    assert (abs(after.mean()), after.std()) == pytest.approx((0, 1), abs=0.2)


def test_a_column_that_goes_to_and_fro_keeps_both_levels():
    on = np.arange(8000) // 500 % 2
    x = 2000.0 * on + np.random.default_rng(0).normal(size=8000)
    columns, z = follow_columns(unknown_columns(1), x[:, None], 1e5)
    assert columns.watch[0, BEGUN] == CHANGES
    late = z[4000:, 0]
    assert late[on[4000:] == 1].mean() - late[on[4000:] == 0].mean() > 1  # which level it is can be seen


def test_a_whole_set_with_outliers_is_standardised_whatever_its_order():
    x = np.random.default_rng(0).normal(3, 1, size=(500, 3))
    broken = x.copy()
    broken[:100] = -9999.0
    columns = columns_of_whole(broken, 1e5)
    np.testing.assert_allclose(columns.mean, x[100:].mean(0))
    np.testing.assert_allclose(columns.spread, x[100:].std(0))
    other = columns_of_whole(broken[::-1].copy(), 1e5)
    np.testing.assert_allclose(columns.mean, other.mean)
    np.testing.assert_array_equal(columns.watch, other.watch)
    assert are_far(columns.watch, broken).sum() == 300
    z = standardised(columns, broken)
    assert (z[:100] == -LEARNED).all()
    assert np.abs(z[100:]).max() < 5
    # and goes on with rows one by one
    after, _ = follow_columns(columns, broken[50:150], 1e5)
    np.testing.assert_allclose(after.spread, 1, rtol=0.2)
    assert newly_far(columns, after) == []


def test_new_columns_begin_beside_known_ones():
    x = np.random.default_rng(0).normal(size=(100, 3))
    known, _ = follow_columns(unknown_columns(2), x[:, :2], 1e5)
    wider, _ = follow_columns(widened(known, 3), x, 1e5)
    twice, _ = follow_columns(known, x[:, :2], 1e5)
    alone, _ = follow_columns(unknown_columns(1), x[:, 2:], 1e5)
    assert equal(tuple(part[:2] for part in wider), tuple(twice))
    assert equal(tuple(part[2:] for part in wider), tuple(alone))


def test_a_far_row_is_predicted_as_far_rows_were_learned():
    x = np.random.default_rng(0).normal(size=(100, 2))
    x[50, 0] = -9999.0
    columns, z = follow_columns(unknown_columns(2), x, 1e5)
    assert z[50, 0] == -LEARNED
    far = np.array([[-9999.0, -9999.0], [1e6, 10.0]])
    expected = [[-LEARNED, -FURTHEST], [LEARNED, (10 - columns.mean[1]) / columns.spread[1]]]
    np.testing.assert_array_equal(standardised(columns, far), expected)


def test_a_sentinel_is_named_once_and_does_not_blind_its_column(tmp_path):
    X, y = clusters(1500)
    fresh = clusters(1000, seed=1)
    plain = mesu.MESUClassifier((20,), random_state=0).partial_fit(X, y).score(*fresh)
    frame = pd.DataFrame(X, columns=[f"sensor {i}" for i in range(5)])
    frame.iloc[3, 2] = -9999.0
    model = mesu.MESUClassifier((20,), random_state=0)
    with pytest.warns(mesu.LearningWarning, match="column 'sensor 2' has a value of -9999, far from its others"):
        model.partial_fit(frame, y)
    assert model.score(pd.DataFrame(fresh[0], columns=frame.columns), fresh[1]) > plain - 0.02
    model.save(tmp_path / "model")
    mesu.load(tmp_path / "model").partial_fit(frame[:100], y[:100])  # without another warning
    with pytest.warns(mesu.LearningWarning, match="'sensor 2'"):
        mesu.MESUClassifier((20,), random_state=0, epochs=1).fit(frame, y)


def test_a_sentinel_of_a_river_stream_is_named():
    pytest.importorskip("river")
    from mesu import river

    draw = np.random.default_rng(0)
    rows = [({"cold": draw.normal(), "warm": 1e6 if i == 15 else draw.normal()}, i % 2) for i in range(20)]
    with pytest.warns(mesu.LearningWarning, match="column 'warm' has a value of 1e[+]06"):
        learned(river.MESUClassifier((4,), seed=0), rows)
