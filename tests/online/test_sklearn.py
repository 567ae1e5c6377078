"""The estimators and the stream beneath them: against closed forms, against twins, under bad input and between threads."""

import re
import subprocess
import sys
import threading
from dataclasses import fields, replace
from itertools import pairwise
from math import inf, nan
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits, make_friedman1
from torch import nn

import mesu
from mesu.engine import predict as answers
from mesu.engine.predict import Weights
from mesu.online import model as streaming
from mesu.online.memory_report import effective_window
from mesu.online.model import Settings, Stream, _border_after, _is_border, begin
from mesu.online.scaling import FURTHEST, KNOWN, Scale, follow, of_whole, standardised, unknown

CLASSES = Settings((12,), 1000, 1.0, 10, 64, standardise=True, regression=False, seed=3)
NUMBERS = replace(CLASSES, regression=True)


def clusters(rows, classes=4, width=5, seed=0):
    draw = np.random.default_rng(seed)
    y = draw.integers(0, classes, rows)
    return 3 * np.random.default_rng(9).normal(size=(classes, width))[y] + draw.normal(size=(rows, width)) + 10, y


def line(rows, noise=0.5, seed=0):
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(rows, 3)) * [1, 10, 0.1] + [0, 100, 5]
    return X, 7 + X @ [2.0, -0.3, 4.0] + noise * draw.normal(size=rows)


def same(one, other):
    """Whether two moments are equal in every bit."""
    return all(equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))


def equal(a, b):
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return all(map(equal, a, b)) and len(a) == len(b) if isinstance(a, Weights | Scale) else a == b


# -- answers ----------------------------------------------------------------------------------------------------------


def network(sizes, std=0.2, dtype=np.float32, seed=0):
    draw, count = np.random.default_rng(seed), answers.layer_edges(sizes)[-1]
    return Weights(
        draw.normal(size=count).astype(dtype) / 2, (std * draw.uniform(0.5, 1, size=count)).astype(dtype), sizes
    )


def layers(weights):
    """Means and sigmas of each layer's weights and biases, in double precision."""
    for (n, k), (at, end) in zip(pairwise(weights.sizes), pairwise(answers.layer_edges(weights.sizes)), strict=True):
        mean, std = (a[at:end].astype(float) for a in (weights.mean, weights.std))
        yield mean[: n * k].reshape(k, n), mean[n * k :], std[: n * k].reshape(k, n), std[n * k :]


def drawn(weights, x, samples):
    """Eq. 11 in local form, written down again: outputs [S, B, K]."""
    h, first = np.broadcast_to(x.astype(float), (samples, *x.shape)), 0
    e = answers._noise(sum(weights.sizes[1:]), samples, np.float32).astype(float)
    for number, (mu, mu_bias, sigma, sigma_bias) in enumerate(layers(weights)):
        h = np.maximum(h, 0) if number else h
        m, v = h @ mu.T + mu_bias, h**2 @ (sigma**2).T + sigma_bias**2
        h = m + np.sqrt(v) * e[first : first + len(mu)].T[:, None, :]
        first += len(mu)
    return h


@pytest.mark.parametrize("sizes", [(3, 4), (4, 9, 3), (5, 20, 7, 2), (2, 3, 3, 3, 5)])
def test_classes_are_answered_as_the_equations_say(sizes):
    weights, x = network(sizes), np.random.default_rng(1).normal(size=(11, sizes[0])).astype(np.float32)
    scores = drawn(weights, x, 50)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    answer = answers.classify(weights, x, 50)
    np.testing.assert_allclose(answer.value, p.mean(0), atol=2e-6)
    total = -(p.mean(0) * np.log(p.mean(0))).sum(-1)
    aleatoric = -(p * np.log(p)).sum(-1).mean(0)
    np.testing.assert_allclose(answer.total, total, atol=5e-6)
    np.testing.assert_allclose(answer.aleatoric, aleatoric, atol=5e-6)
    np.testing.assert_allclose(answer.epistemic, total - aleatoric, atol=1e-5)


@pytest.mark.parametrize("sizes", [(3, 1), (4, 9, 1), (5, 20, 7, 1)])
def test_numbers_are_answered_as_the_equations_say(sizes):
    weights, x = network(sizes), np.random.default_rng(1).normal(size=(11, sizes[0])).astype(np.float32)
    out = drawn(weights, x, 50)[..., 0]
    answer = answers.regress(weights, x, 50, 0.25)
    np.testing.assert_allclose(answer.value, out.mean(0), atol=1e-5)
    np.testing.assert_allclose(answer.epistemic, out.var(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(answer.total, out.var(0) + 0.25, rtol=1e-4)
    assert (answer.aleatoric == 0.25).all()


def test_a_linear_answer_has_its_closed_form():
    # one layer: mean x.mu + b and variance x^2.sigma^2 + sigma_b^2, exactly: each unit's noise has mean 0 and variance 1
    weights, x = network((6, 1)), np.random.default_rng(1).normal(size=(9, 6)).astype(np.float32)
    ((mu, mu_bias, sigma, sigma_bias),) = layers(weights)
    answer = answers.regress(weights, x, 16, 1.0)
    np.testing.assert_allclose(answer.value, (x @ mu.T + mu_bias)[:, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(answer.epistemic, (x**2 @ (sigma**2).T + sigma_bias**2)[:, 0], rtol=1e-5)


def test_many_draws_agree_with_draws_of_all_weights():
    weights, x = network((4, 10, 3), std=0.5), np.random.default_rng(1).normal(size=(20, 4)).astype(np.float32)
    net = mesu.Bayesian(nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 3)), seed=0)
    with torch.no_grad():
        for pair, (mean, std) in zip(
            net.pairs(),
            ((m, s) for mu, b, sigma, sb in layers(weights) for m, s in ((mu, sigma), (b, sb))),
            strict=True,
        ):
            pair.mean.copy_(torch.tensor(mean))
            pair.std.copy_(torch.tensor(std))
    reference, answer = mesu.predict(net, torch.tensor(x), samples=3000), answers.classify(weights, x, 3000)
    np.testing.assert_allclose(answer.value, reference.probs, atol=0.04)  # four standard errors
    np.testing.assert_allclose(answer.epistemic, reference.epistemic, atol=0.04)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_answer_depends_on_its_own_row_only(dtype):
    weights, x = network((5, 20, 4), dtype=dtype), np.random.default_rng(1).normal(size=(40, 5)).astype(dtype)
    whole = answers.classify(weights, x, 64)
    for part in (slice(3, 4), slice(7, 24), slice(None, None, -1)):
        for full, alone in zip(whole, answers.classify(weights, x[part], 64), strict=True):
            np.testing.assert_array_equal(full[part], alone)


def test_a_certain_network_has_no_epistemic_uncertainty():
    weights = network((5, 20, 4), std=1e-12)
    answer = answers.classify(weights, np.random.default_rng(1).normal(size=(40, 5)).astype(np.float32), 64)
    assert answer.epistemic.max() < 1e-5
    assert (answer.epistemic >= 0).all()


# -- standardising ----------------------------------------------------------------------------------------------------


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


# -- the stream -------------------------------------------------------------------------------------------------------


def test_borders_are_fixed_row_numbers():
    borders = [n for n in range(1025) if _is_border(n)]
    assert borders == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024]
    assert [_border_after(n) for n in borders] == [*borders[1:], 1280]


@settings(max_examples=25)
@given(st.lists(st.integers(1, 120), min_size=1, max_size=8), st.booleans(), st.booleans())
def test_how_a_stream_is_cut_cannot_be_told(lengths, regression, standardise):
    rows = sum(lengths)
    X, y = line(rows) if regression else clusters(rows)
    X = X if standardise else X / 100
    if not regression:
        y[: rows // 3] %= 2  # two classes come later
    chosen = replace(NUMBERS if regression else CLASSES, standardise=standardise)
    whole, pieces, at = Stream(chosen, X.shape[1]), Stream(chosen, X.shape[1]), 0
    whole.learn(X, y)
    for length in lengths:
        pieces.learn(X[at : at + length], y[at : at + length])
        at += length
    assert same(whole.moment, pieces.moment)


def test_rows_are_judged_before_they_are_learned():
    X, y = clusters(40)
    stream, twin = Stream(CLASSES, 5), Stream(CLASSES, 5)
    stream.learn(X, y)
    twin.learn(X[:32], y[:32])  # a border: the next rows are judged by the weights of this moment
    _, z = follow(twin.moment.inputs, X[32:], CLASSES.memory)
    expected = answers.classify(twin.moment.weights, z.astype(np.float32), 64).epistemic
    np.testing.assert_array_equal(stream.moment.usual[32:], expected)
    assert len(stream.moment.usual) == 40


def test_only_the_last_rows_are_usual():
    X, y = clusters(streaming.WINDOW + 300)
    stream, twin = Stream(CLASSES, 5), Stream(CLASSES, 5)
    twin.learn(X[:300], y[:300])
    stream.learn(X, y)
    assert len(stream.moment.usual) == streaming.WINDOW
    twin.learn(X[300:], y[300:])
    np.testing.assert_array_equal(stream.moment.usual, twin.moment.usual)


def test_the_engine_learns():
    stream = Stream(CLASSES, 5)
    assert stream._learner.engine is not None
    stream.learn(*clusters(10))
    assert stream.moment.updates == stream.moment.rows == stream._learner.net.noise.step == 10


def test_a_new_class_leaves_the_others_as_they_are():
    X, y = clusters(300)
    stream = Stream(CLASSES, 5)
    stream.learn(X, y)
    before = stream.moment
    with stream._changing() as now:
        stream._leave(stream._with_labels(now, [7]))
    after = stream.moment
    assert after.labels == (*before.labels, 7)
    assert after.weights.sizes == (5, 12, 5)
    start = streaming.begin(CLASSES, 5, 5).weights
    for old, new, fresh in zip(layers(before.weights), layers(after.weights), layers(start), strict=True):
        for a, b, c in zip(old, new, fresh, strict=True):
            np.testing.assert_array_equal(b[: len(a)], a)
            np.testing.assert_array_equal(b[len(a) :], c[len(a) :])
    # among the old classes nothing has changed: the drawn scores of each are what they were
    z = before.inputs_for(X[:20])
    odds = [
        a.value[:, :4] / a.value[:, :4].sum(1, keepdims=True) for a in (before.answer(X[:20]), after.answer(X[:20]))
    ]
    assert np.abs(odds[0] - odds[1]).max() < 0.1  # other draws of the noise, and a mixture reweighted
    means = [at_mean(moment.weights, z) for moment in (before, after)]
    np.testing.assert_array_equal(means[0], means[1][:, :4])


def at_mean(weights, z):
    h = z.astype(float)
    for number, (mu, bias, _, _) in enumerate(layers(weights)):
        h = (np.maximum(h, 0) if number else h) @ mu.T + bias
    return h


def test_new_columns_leave_the_answer_as_it_is():
    X, y = clusters(300)
    stream = Stream(CLASSES, 5)
    stream.learn(X, y)
    before = stream.moment
    stream.widen(8)
    wide = np.concatenate([X[:20], np.zeros((20, 3))], axis=1)
    # a column of which nothing is known is zero
    np.testing.assert_allclose(
        at_mean(before.weights, before.inputs_for(X[:20])),
        at_mean(stream.moment.weights, stream.moment.inputs_for(wide)),
        atol=1e-12,
    )
    stream.learn(np.concatenate([X, np.random.default_rng(0).normal(size=(300, 3))], axis=1), y)
    assert stream.moment.weights.sizes == (8, 12, 4)
    np.testing.assert_allclose(stream.moment.inputs.rows, [600] * 5 + [300] * 3)
    with pytest.raises(ValueError, match="8 inputs cannot be narrowed to 7"):
        stream.widen(7)


@pytest.mark.parametrize("passes", [1, 7])
def test_memory_is_one_of_examples(passes):
    # a column that never moves says nothing, so its sigmas relax to the prior in closed form, however many passes are made
    X, y = clusters(200)
    X[:, 2] = 4.0
    chosen = replace(CLASSES, memory=150, prior_std=0.8)
    stream = Stream(chosen, 5)
    start = next(layers(stream.moment.weights))[2][:, 2]
    stream.study(X, y, passes, np.random.RandomState(0))
    gap = (1 - 1 / (150 * passes)) ** (200 * passes)
    expected = (0.8**-2 + (start**-2 - 0.8**-2) * gap) ** -0.5
    np.testing.assert_allclose(next(layers(stream.moment.weights))[2][:, 2], expected, rtol=1e-4)
    assert stream.moment.rows == 200
    assert stream.moment.updates == 200 * passes


def test_a_long_memory_is_kept_in_double_precision():
    assert Stream(replace(CLASSES, memory=1e7), 5).moment.weights.mean.dtype == np.float64
    assert Stream(replace(CLASSES, memory=inf), 5).moment.weights.mean.dtype == np.float32


@pytest.mark.parametrize(("shift", "factor"), [(1e6, 1.0), (-3.0, 1e-6), (5.0, 1e9)])
def test_units_of_the_target_do_not_matter(shift, factor):
    X, y = line(400)
    plain, scaled = Stream(NUMBERS, 3), Stream(NUMBERS, 3)
    plain.learn(X, y)
    scaled.learn(X, shift + factor * y)
    one, other = plain.moment.answer(X[:50]), scaled.moment.answer(X[:50])
    np.testing.assert_allclose((other.value - shift) / factor, one.value, atol=0.01)
    np.testing.assert_allclose(other.total / factor**2, one.total, rtol=0.02)


def test_other_units_of_the_targets_leave_the_answer_as_it_is():
    X, y = line(300)
    stream = Stream(NUMBERS, 3)
    stream.learn(X, y)
    with stream._changing() as now:
        centre, spread = now.frame
        before = centre + spread * at_mean(now.weights, now.inputs_for(X))
        now = replace(now, targets=Scale(*(np.array([v]) for v in (300.0, 40.0, 9.0**2))))
        now = stream._reframed(now, np.array([40.0]))
        after = now.frame[0] + now.frame[1] * at_mean(stream._live, now.inputs_for(X))
    assert now.frame[0] == pytest.approx(40)
    assert now.frame[1] == pytest.approx(9, rel=0.01)
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
    stream = Stream(replace(NUMBERS, hidden=(50,), memory=100_000), 10)
    stream.learn(X[:4000], y[:4000])
    error = y[4000:] - stream.moment.answer(X[4000:]).value
    assert np.sqrt(np.mean(error**2)) < 2 * y[:3000].std()


def test_a_quiet_beginning_does_not_stop_the_weights():
    # 2,000 targets that are all the same: trusted to the last digit, the first that differs would throw everything over
    X, y = make_friedman1(6000, noise=1, random_state=0)
    given = np.where(np.arange(6000) < 2000, y[0], y)
    stream = Stream(replace(NUMBERS, hidden=(50,), memory=100_000), 10)
    stream.learn(X[:4000], given[:4000])
    error = y[4000:] - stream.moment.answer(X[4000:]).value
    assert error.var() < 0.7 * y.var()


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_tiny_sets_are_learned_without_a_leap(rows):
    for seed in range(5):
        draw = np.random.RandomState(seed)
        X, y = draw.normal(size=(rows, 10)), draw.normal(size=rows)
        stream = Stream(replace(NUMBERS, seed=seed), 10)
        stream.study(X, y, 10, draw)
        assert stream.moment.weights.std.max() < 2
        assert np.abs(stream.moment.answer(X).value - y).max() < 3


def test_wild_rows_do_not_break_the_stream():
    X, y = make_friedman1(1500, noise=1, random_state=0)
    X[100::200] *= 1e6
    y[50::200] *= -1e6
    stream = Stream(NUMBERS, 10)
    stream.learn(X, y)
    answer = stream.moment.answer(X)
    assert all(np.isfinite(part).all() for part in answer)
    assert 0 < stream.moment.weights.std.min() <= stream.moment.weights.std.max() < 10


# -- the estimators ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:1300], y[:1300], X[1300:], y[1300:]


def test_digits_are_read(digits):
    X, y, fresh, truth = digits
    fitted = mesu.MESUClassifier(random_state=0).fit(X, y)
    assert fitted.score(fresh, truth) > 0.92
    streamed = mesu.MESUClassifier(random_state=0).partial_fit(X, y)
    assert streamed.score(fresh, truth) > 0.85
    # probabilities mean what they say
    probs = fitted.predict_proba(fresh)
    assert abs(probs.max(1).mean() - fitted.score(fresh, truth)) < 0.05


def test_numbers_are_predicted():
    X, y = make_friedman1(1000, noise=1, random_state=0)
    model = mesu.MESURegressor(random_state=0).fit(X[:700], y[:700])
    assert model.score(X[700:], y[700:]) > 0.87  # 0.96 at most: the noise
    mean, std = model.predict(X[700:], return_std=True)
    assert np.std((y[700:] - mean) / std) == pytest.approx(1, abs=0.15)
    uncertainty = model.uncertainty(X[700:])
    np.testing.assert_allclose(std**2, uncertainty.total)
    np.testing.assert_allclose(uncertainty.total, uncertainty.aleatoric + uncertainty.epistemic)


def test_the_head_grows_in_sorted_order():
    X, y = clusters(400)
    names = np.array(["cat", "dog", "ant", "bee"])[y]
    model = mesu.MESUClassifier(random_state=0)
    first = np.isin(names, ["dog", "cat"])
    model.partial_fit(X[first], names[first])
    assert list(model.classes_) == ["cat", "dog"]
    assert model.predict_proba(X).shape == (400, 2)
    for _ in range(3):
        model.partial_fit(X, names)
    assert list(model.classes_) == ["ant", "bee", "cat", "dog"]
    assert set(model._stream.moment.labels[2:]) == {"ant", "bee"}
    assert model.score(X, names) > 0.97
    probs = model.predict_proba(X)
    np.testing.assert_allclose(probs.sum(1), 1)
    np.testing.assert_array_equal(model.classes_[probs.argmax(1)], model.predict(X))


def test_classes_may_be_named_beforehand():
    X, y = clusters(50, classes=2)
    model = mesu.MESUClassifier(random_state=0).partial_fit(X, y, classes=range(5))
    assert list(model.classes_) == [0, 1, 2, 3, 4]
    assert model.predict_proba(X).shape == (50, 5)
    model.partial_fit(X, y + 4)  # and more may come
    assert list(model.classes_) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("labels", [[0, 1], [-1.0, 1.0], [False, True], ["a", "b"], [2**40, 3]])
def test_labels_keep_their_kind(labels):
    X, y = clusters(60, classes=2)
    given = np.array(labels)[y]
    model = mesu.MESUClassifier(random_state=0).fit(X, given)
    assert model.predict(X).dtype == given.dtype
    np.testing.assert_array_equal(model.classes_, np.unique(given))
    assert model.score(X, given) > 0.95


def test_fit_starts_anew_and_partial_fit_goes_on():
    X, y = clusters(200)
    once, twice = mesu.MESUClassifier(random_state=1), mesu.MESUClassifier(random_state=1)
    once.fit(X, y)
    twice.partial_fit(X[:50, :3], y[:50]).fit(X, y).fit(X, y)
    assert same(once._stream.moment, twice._stream.moment)
    once.partial_fit(X, y)
    assert once._stream.moment.rows == 400
    assert not same(once._stream.moment, twice._stream.moment)
    other = mesu.MESUClassifier(random_state=2).fit(X, y)
    assert not np.array_equal(other._stream.moment.weights.mean, twice._stream.moment.weights.mean)


def test_the_stream_is_not_shuffled_and_the_set_is(digits):
    X, y, fresh, truth = digits
    order = np.argsort(y, kind="stable")
    stream = mesu.MESUClassifier(random_state=0).partial_fit(X[order], y[order], classes=range(10))
    assert stream.score(fresh, truth) < 0.5  # one digit after the other, and the last ones are what it thinks of
    sorted_set = mesu.MESUClassifier(random_state=0, epochs=1).fit(X[order], y[order])
    assert sorted_set.score(fresh, truth) > 0.8


@pytest.mark.parametrize("kind", [mesu.MESUClassifier, mesu.MESURegressor])
def test_asking_changes_nothing(kind):
    X, y = clusters(150)
    model, twin = kind(random_state=0).partial_fit(X, y), kind(random_state=0).partial_fit(X, y)
    before = model._stream.moment
    live = [a.copy() for a in model._stream._live[:2]]
    state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    asked = [
        (model.predict(X), model.uncertainty(X), model.score_samples(X), model.is_novel(X), str(model.memory_report()))
        for _ in range(2)
    ]
    for first, second in zip(*asked, strict=True):
        np.testing.assert_array_equal(first, second)
    assert model._stream.moment is before
    assert all(np.array_equal(a, b) for a, b in zip(live, model._stream._live[:2], strict=True))
    model.partial_fit(X, y)
    assert same(model._stream.moment, twin.partial_fit(X, y)._stream.moment)
    # nor does learning touch anybody else's random numbers
    assert torch.equal(torch.get_rng_state(), state[0])
    assert np.array_equal(np.random.get_state()[1], state[1])  # noqa: NPY002


def test_strangers_are_novel(digits):
    X, y, fresh, _ = digits
    model = mesu.MESUClassifier(random_state=0).partial_fit(X, y)
    assert model.is_novel(fresh).mean() < 0.05
    noise = np.random.default_rng(0).uniform(0, 16, size=fresh.shape)
    assert mesu.measures.auroc(-model.score_samples(fresh), -model.score_samples(noise)) > 0.85
    curve = mesu.MESURegressor(random_state=0).partial_fit(*line(2000))
    inside, outside = line(500, seed=1)[0], line(500, seed=2)[0] + [20, 0, 0]
    assert curve.is_novel(inside).mean() < 0.05
    assert curve.is_novel(outside).mean() > 0.95


def test_a_single_class_leaves_nothing_to_doubt():
    model = mesu.MESUClassifier(random_state=0).partial_fit(clusters(40)[0], ["cat"] * 40)
    far = np.full((1, 5), 1e6)
    assert model.uncertainty(far) == (0.0, 0.0, 0.0)
    assert not model.is_novel(far).any()


def test_the_share_sets_the_threshold():
    model = mesu.MESUClassifier(random_state=0).partial_fit(*clusters(1500))
    X, _ = clusters(500, seed=5)
    scores, usual = -model.score_samples(X), model._stream.moment.usual
    for share in (0.0, 0.01, 0.3, 1.0):
        np.testing.assert_array_equal(model.is_novel(X, share), scores > np.quantile(usual, 1 - share))
    assert model.is_novel(X, 0.3).sum() > model.is_novel(X, 0.01).sum()
    with pytest.raises(ValueError, match=r"share must be between 0 and 1, got 1\.5"):
        model.is_novel(X, 1.5)


def test_inputs_need_not_be_scaled_unless_told_otherwise():
    X, y = clusters(300)
    wild = X * [1e-6, 1, 1e6, 1, 1e3] + 1e4
    assert mesu.MESUClassifier(random_state=0).partial_fit(wild, y).score(wild, y) > 0.9
    raw = mesu.MESUClassifier(random_state=0, standardise=False).partial_fit(X / 10, y)
    np.testing.assert_array_equal(raw._stream.moment.inputs_for(X), X.astype(np.float32))
    assert (raw._stream.moment.inputs.rows == 0).all()


def test_scikit_learn_is_imported_for_those_who_ask():
    program = (
        "import sys, mesu; assert 'sklearn' not in sys.modules; mesu.MESUClassifier; assert 'sklearn' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(AttributeError, match="no attribute 'MESUTransformer'"):
        mesu.MESUTransformer  # noqa: B018


def test_the_programs_of_the_page_run(capsys):
    page = (Path(__file__).parents[2] / "docs" / "estimators.md").read_text()
    names = {}
    for program in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(program, names)
    said = capsys.readouterr().out
    assert said.startswith("['cat' 'dog' 'eel']\n0.5")
    assert "\n".join(said.splitlines()[2:5]) in page  # the report's first lines


# -- memory -----------------------------------------------------------------------------------------------------------


def test_the_effective_window():
    assert effective_window(500, inf) == 500
    for rows, memory in ((1, 10), (7, 10), (1000, 10), (500, 1e5)):
        weights = sum((1 - 1 / memory) ** age for age in range(rows))
        assert effective_window(rows, memory) == pytest.approx(weights, rel=1e-9)


def test_what_is_remembered_is_reported():
    X, y = clusters(500)
    X[:, 0] = 1.0  # a column that says nothing
    model = mesu.MESUClassifier(hidden=(12,), memory=100, prior_std=0.3, random_state=0).partial_fit(X, y)
    report, moment = model.memory_report(), model._stream.moment
    assert (report.rows, report.memory) == (500, 100)
    assert report.window == pytest.approx(100 * (1 - 0.99**500))
    assert [part.name for part in report.layers] == ["5 -> 12", "12 -> 4"]
    assert [part.weights for part in report.layers] == [6 * 12, 13 * 4]
    start = [5**-0.5, 12**-0.5]
    for part, sigma, own in zip(report.layers, layers(moment.weights), start, strict=True):
        std = np.concatenate([sigma[2].ravel(), sigma[3]])
        assert part.median == pytest.approx(np.median(std), rel=1e-6)
        assert part.consolidated == pytest.approx((std < min(own, 0.3) / 2).mean())
        assert part.at_prior == pytest.approx((std > 0.285).mean())
        assert part.free + part.consolidated + part.at_prior == pytest.approx(1)
    assert report.layers[0].at_prior >= 1 / 6  # the column's weights are back there after five memories
    assert report.all.weights == 6 * 12 + 13 * 4
    text = str(report).splitlines()
    assert text[0] == "500 examples learned; 99 of them still count (memory 100)"
    assert len(text) == 6
    assert f"{report.all.consolidated:.0%}" in text[-1]


def test_what_is_remembered_is_drawn(tmp_path):
    report = mesu.MESURegressor(hidden=(6, 6, 6), random_state=0).fit(*line(100)).memory_report()
    figure = report.figure()
    left, right = figure.axes
    assert [text.get_text() for text in left.get_yticklabels()] == ["all", "6 -> 1", "6 -> 6", "6 -> 6", "3 -> 6"]
    ends = {bar.get_y(): bar.get_x() + bar.get_width() for bar in left.patches}  # of the last bar on each line
    assert list(ends.values()) == pytest.approx([1] * 5)
    widths = [bar.get_width() for bar in left.patches]
    assert widths[:5] == pytest.approx([part.free for part in (report.all, *report.layers[::-1])])
    assert right.get_xlabel() == "sigma"
    figure.savefig(tmp_path / "memory.png")


# -- bad input --------------------------------------------------------------------------------------------------------

HUGE = st.sampled_from([1e30, -1e200, 1.7e308])
BAD_NUMBERS = st.sampled_from([nan, inf, -inf])
BAD_OBJECTS = st.one_of(
    st.none(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.complex_numbers(min_magnitude=1, allow_nan=False).filter(lambda c: c.imag != 0),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=3), min_size=2, max_size=3),
)


@st.composite
def bad_rows(draw):
    """Inputs for a model of five columns that are no rows."""
    kind = draw(st.sampled_from(["not finite", "width", "axes", "empty", "object", "dates", "words", "ragged"]))
    rows = draw(st.integers(1, 4))
    X = np.full((rows, 5), draw(st.floats(-1e3, 1e3)))
    if kind == "not finite":
        X[draw(st.integers(0, rows - 1)), draw(st.integers(0, 4))] = draw(BAD_NUMBERS)
        return draw(st.sampled_from([X, X.tolist(), X.astype(np.float32)]))
    if kind == "width":
        return np.zeros((rows, draw(st.integers(1, 12).filter(lambda n: n != 5))))
    if kind == "axes":
        return draw(st.sampled_from([X[0], X[:, :, None], X[0, 0]]))
    if kind == "empty":
        return draw(st.sampled_from([np.zeros((0, 5)), [], np.zeros((rows, 0))]))
    if kind == "dates":
        return np.full((rows, 5), "2020-01-01", "M8[D]")
    if kind == "words":
        return X.astype("U8")
    if kind == "ragged":
        return [[0.0] * 5, [0.0] * draw(st.integers(0, 4))]
    return draw(BAD_OBJECTS)


@st.composite
def bad_targets(draw, regression):
    """Targets for three rows that a model of whole-number labels, or of numbers, cannot learn."""
    kind = draw(
        st.sampled_from(["length", "not finite", "axes", "object", "mixed"] + ["continuous"] * (not regression))
    )
    if kind == "length":
        return np.zeros(draw(st.integers(0, 9).filter(lambda n: n != 3)), int)
    if kind == "not finite":
        y = np.zeros(3)
        y[draw(st.integers(0, 2))] = draw(BAD_NUMBERS)
        return y
    if kind == "axes":
        return np.zeros((3, draw(st.integers(2, 3))), int)
    if kind == "mixed":
        return np.array([0, draw(st.text(min_size=1, max_size=3)), None], dtype=object)
    if kind == "continuous":
        return np.array([0.0, 1.0, draw(st.floats(0.01, 0.99))])
    return draw(BAD_OBJECTS)


def untouched(model, before, live):
    assert model._stream.moment is before
    assert all(np.array_equal(a, b) for a, b in zip(live, model._stream._live[:2], strict=True))
    assert model._stream._learner.net.noise.step == before.updates
    assert model.n_features_in_ == 5


@pytest.fixture(scope="module")
def learned():
    X, y = clusters(120)
    return {
        kind: kind(hidden=(8,), random_state=0).partial_fit(X, y) for kind in (mesu.MESUClassifier, mesu.MESURegressor)
    }


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")  # of a column where a line was expected
@pytest.mark.parametrize("kind", [mesu.MESUClassifier, mesu.MESURegressor])
def test_bad_input_changes_nothing(kind, learned):
    model = learned[kind]
    before, live = model._stream.moment, [a.copy() for a in model._stream._live[:2]]
    good = np.zeros((3, 5)), np.array([0, 1, 2])
    counted = 0

    bad = st.one_of(
        st.tuples(st.just("rows"), bad_rows()),
        st.tuples(st.just("targets"), bad_targets(kind is mesu.MESURegressor)),
    )

    @settings(max_examples=250, phases=[Phase.generate])  # twenty at a time are not worth shrinking
    @given(st.lists(bad, min_size=20, max_size=20))
    def refuses(inputs):
        nonlocal counted
        for what, bad in inputs:
            counted += 1
            X, y = (bad, good[1]) if what == "rows" else (good[0], bad)
            calls = [lambda X=X, y=y: model.partial_fit(X, y)]
            if what == "rows":
                calls.append(lambda X=X: model.predict(X))
            elif not counted % 10:
                calls.append(lambda X=X, y=y: model.fit(X, y))
            for call in calls:
                with pytest.raises((ValueError, TypeError), match=r"\w"):
                    call()
        untouched(model, before, live)

    refuses()
    assert counted >= 5000  # with both kinds, ten thousand
    # and what comes after is what would have come
    X, y = clusters(60, seed=2)
    twin = kind(hidden=(8,), random_state=0).partial_fit(*clusters(120)).partial_fit(X, y)
    assert same(model.partial_fit(X, y)._stream.moment, twin._stream.moment)


@pytest.fixture(scope="module")
def scaled_and_raw():
    kinds = (mesu.MESUClassifier, mesu.MESURegressor)
    return {
        scaled: [kind(standardise=scaled, random_state=0).partial_fit(*clusters(60)) for kind in kinds]
        for scaled in (True, False)
    }


@given(st.lists(st.one_of(HUGE, st.floats(-1e12, 1e12)), min_size=5, max_size=5), st.booleans())
def test_any_finite_row_has_a_finite_answer_or_none(scaled_and_raw, row, standardise):
    for model in scaled_and_raw[standardise]:
        if standardise or max(map(abs, row)) <= streaming.LARGEST:
            assert all(np.isfinite(part).all() for part in model.uncertainty([row]))
        else:
            with pytest.raises(ValueError, match="inputs must be smaller"):
                model.uncertainty([row])


def test_a_chunk_is_learned_as_a_whole_or_not_at_all(monkeypatch):
    X, y = clusters(600)
    stream, twin = Stream(CLASSES, 5), Stream(CLASSES, 5)
    for each in (stream, twin):
        each.learn(X[:100], y[:100])
    before, calls = stream.moment, []
    learn = mesu.BayesianLearner.learn

    def fails_later(self, *chunk):
        calls.append(chunk)
        if len(calls) == 3:  # two pieces have been learned by then
            raise mesu.StepRefused("enough")
        learn(self, *chunk)

    monkeypatch.setattr(mesu.BayesianLearner, "learn", fails_later)
    with pytest.raises(mesu.StepRefused):
        stream.learn(np.tile(X, (2, 1)), np.tile(y + 1, 2))  # with a class that is new, too
    monkeypatch.undo()
    assert len(calls) == 3
    assert stream.moment is before
    for each in (stream, twin):
        each.learn(X[100:], y[100:])
    assert same(stream.moment, twin.moment)


def test_a_refused_first_set_leaves_no_trace():
    model = mesu.MESUClassifier()
    before = dict(vars(model))
    for call in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match="NaN"):
            call([[0.0, nan]], [0])
        with pytest.raises(ValueError, match="continuous"):
            call([[0.0, 1.0]], [0.5])
    assert vars(model) == before


def test_labels_of_another_kind_are_refused_by_name():
    model = mesu.MESUClassifier(random_state=0).partial_fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(ValueError, match="labels must be all words or all numbers, got 'cat' and 0"):
        model.partial_fit([[0.0]], ["cat"])
    assert list(model.classes_) == [0, 1]


@pytest.mark.parametrize(
    ("parameter", "value", "words"),
    [
        ("hidden", (0,), "hidden must be a whole number, 1 or more, got 0"),
        ("hidden", (2.5,), "hidden must be a whole number, 1 or more, got 2.5"),
        ("memory", 1, "memory must be greater than 1 update, got 1.0"),
        ("memory", "long", "memory must be a number, got 'long'"),
        ("prior_std", 0, "prior_std must be a finite number greater than 0, got 0.0"),
        ("init_scale", 0, "init_scale must be a finite number greater than 0, got 0.0"),
        ("samples", 0, "samples must be a whole number, 1 or more, got 0"),
        ("predict_samples", 1, "predict_samples must be a whole number, 2 or more, got 1"),
        ("epochs", 0, "epochs must be a whole number, 1 or more, got 0"),
        ("epochs", True, "epochs must be a whole number, 1 or more, got True"),
    ],
)
def test_parameters_are_refused_by_name(parameter, value, words):
    X, y = clusters(20)
    model = mesu.MESUClassifier(random_state=0).fit(X, y)
    before = model._stream.moment
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        model.set_params(**{parameter: value}).fit(X, y)
    assert model._stream.moment is before


def test_init_scale_widens_the_start_and_what_grows_later(tmp_path):
    X, y = clusters(40)
    wide, usual = (
        mesu.MESUClassifier(init_scale=scale, memory=1e12, random_state=0).partial_fit(X[:1], y[:1], classes=[0, 1])
        for scale in (3.0, 1.0)
    )
    began, same = (begin(model._stream.moment.settings, X.shape[1], 2).weights for model in (wide, usual))
    np.testing.assert_array_equal(began.mean, same.mean)
    np.testing.assert_allclose(began.std, 3 * same.std, rtol=1e-6)
    first = wide._stream.moment
    grown = wide.partial_fit(X[1:2], [7])._stream.moment  # a class that nobody announced
    assert grown.weights.std.max() == pytest.approx(first.weights.std.max(), rel=0.05)
    wide.save(tmp_path / "wide.safetensors")
    again = mesu.load(tmp_path / "wide.safetensors")
    assert again.get_params()["init_scale"] == again._stream.moment.settings.init_scale == 3.0


@pytest.mark.parametrize(
    ("parameter", "value", "words"),
    [
        ("memory", 10, r"memory is 10\.0 now, but this model began with 100000\.0"),
        ("hidden", (7,), r"hidden is \(7,\) now, but this model began with \(50,\)"),
        ("prior_std", 2, r"prior_std is 2\.0 now, but this model began with 1\.0"),
        ("init_scale", 2, r"init_scale is 2\.0 now, but this model began with 1\.0"),
        ("samples", 3, "samples is 3 now, but this model began with 10"),
        ("standardise", False, "standardise is False now, but this model began with True"),
    ],
)
def test_a_living_model_does_not_go_on_with_another_parameter(parameter, value, words, tmp_path):
    X, y = clusters(40)
    model = mesu.MESUClassifier(random_state=0).partial_fit(X, y)
    before, path = model._stream.moment, tmp_path / "model.safetensors"
    began = model.get_params()[parameter]
    model.set_params(**{parameter: value})
    for call in (lambda: model.partial_fit(X, y), lambda: model.save(path)):
        with pytest.raises(ValueError, match=words + ": call fit to begin anew with it, or set it back"):
            call()
    assert model._stream.moment is before
    assert not path.exists()
    model.set_params(**{parameter: began}).save(path)
    twin = mesu.load(path).set_params(**{parameter: value})  # a file's model is as alive
    with pytest.raises(ValueError, match=words):
        twin.partial_fit(X, y)
    model.set_params(**{parameter: value}).fit(X, y)
    fresh = mesu.MESUClassifier(random_state=0, **{parameter: value}).fit(X, y)
    assert same(model.partial_fit(X, y)._stream.moment, fresh.partial_fit(X, y)._stream.moment)


def test_a_parameter_in_other_words_is_the_same():
    X, y = clusters(40)
    model = mesu.MESUClassifier(random_state=0).partial_fit(X, y)
    model.set_params(hidden=50, memory=np.int64(100_000), standardise=np.True_).partial_fit(X, y)
    assert model._stream.moment.rows == 80


@pytest.mark.parametrize("kind", [mesu.MESUClassifier, mesu.MESURegressor])
def test_parameters_that_may_change_take_effect(kind, tmp_path):
    X, y = clusters(300)
    model = kind(hidden=(8,), random_state=0).partial_fit(X, y)
    few = model.uncertainty(X)
    many = model.set_params(predict_samples=500).uncertainty(X)
    assert not np.array_equal(few.epistemic, many.epistemic)
    # as if it had been asked for from the start: the weights of these rows do not depend on it
    twin = kind(hidden=(8,), random_state=0, predict_samples=500)
    moment = replace(model._stream.moment, settings=replace(model._stream.moment.settings, predict_samples=500))
    twin._stream, twin.n_features_in_ = Stream(moment.settings, 5, moment), 5
    assert all(map(np.array_equal, many, twin.uncertainty(X)))
    model.save(tmp_path / "model")
    loaded = mesu.load(tmp_path / "model")
    moments = [each.partial_fit(X, y)._stream.moment for each in (model, twin, loaded)]
    assert same(moments[0], moments[1])
    assert same(moments[0], moments[2])
    model.set_params(epochs=3, random_state=5).partial_fit(X, y)  # for the next fit
    assert same(
        model.fit(X, y)._stream.moment,
        kind((8,), predict_samples=500, epochs=3, random_state=5).fit(X, y)._stream.moment,
    )
    with pytest.raises(ValueError, match="predict_samples must be a whole number, 2 or more, got 1"):
        model.set_params(predict_samples=1).predict(X)


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"size": [1.0, 2.0], "colour": ["red", "blue"]}),
        pd.DataFrame({"size": [1.0, 2.0], "colour": pd.Categorical(["red", "blue"])}),
        pd.DataFrame({"size": [1.0, 2.0], "colour": [None, "red"]}),
        pl.DataFrame({"size": [1.0, 2.0], "colour": ["red", "blue"]}),
        [[1.0, "red"], [2.0, "blue"]],
        np.array([[1.0, "red"], [2.0, "blue"]], dtype=object),
    ],
)
def test_a_column_of_words_is_named(table):
    name = "'colour'" if hasattr(table, "columns") else "1"
    words = f"column {name} must be numbers, got 'red': encode it first, as with sklearn.preprocessing.OneHotEncoder"
    for model in (mesu.MESUClassifier(), mesu.MESURegressor()):
        for call in (model.fit, model.partial_fit):
            with pytest.raises(ValueError, match=words):
                call(table, [0, 1])
    names = {"columns": ["size", "colour"]} if hasattr(table, "columns") else None
    X = pd.DataFrame([[0.0, 1.0], [1.0, 0.0]], **names) if names else [[0.0, 1.0], [1.0, 0.0]]
    with pytest.raises(ValueError, match=words):
        mesu.MESUClassifier().fit(X, [0, 1]).predict(table)


def test_other_complaints_about_a_table_stay_what_they_are():
    X = pd.DataFrame({"size": [1.0, 2.0]})
    model = mesu.MESUClassifier(random_state=0).fit(X, [0, 1])
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(X.assign(colour="red"))
    with pytest.raises(ValueError, match="y must be numbers"):
        mesu.MESURegressor().fit(X, ["red", "blue"])


@pytest.mark.parametrize("kind", [mesu.MESUClassifier, mesu.MESURegressor])
def test_a_wrong_argument_of_fit_names_the_class_that_was_called(kind):
    with pytest.raises(TypeError, match=rf"{kind.__name__}\.fit\(\).*sample_weight"):
        kind().fit([[0.0], [1.0]], [0, 1], sample_weight=[1, 1])


# -- threads ----------------------------------------------------------------------------------------------------------


def test_predictions_come_from_a_state_that_there_was():
    X, y = clusters(3000, classes=6)
    chunks = [(X[at : at + 100], y[at : at + 100]) for at in range(100, 3000, 100)]
    asked = X[:7]

    def begin():
        return mesu.MESUClassifier(hidden=(12,), random_state=0).partial_fit(X[:100], y[:100], classes=range(3))

    model, twin = begin(), begin()
    states = [twin.predict_proba(asked), *(twin.partial_fit(*chunk).predict_proba(asked) for chunk in chunks)]
    seen, done = {0: [], 1: []}, threading.Event()
    errors = []

    def ask(number):
        try:
            while not done.is_set():
                seen[number].append(model.predict_proba(asked))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in seen]
    for thread in threads:
        thread.start()
    for chunk in chunks:
        model.partial_fit(*chunk)
    done.set()
    for thread in threads:
        thread.join()
    assert not errors
    for answers_of_one in seen.values():
        which = [
            next((k for k, state in enumerate(states) if state.shape == p.shape and np.array_equal(state, p)), None)
            for p in answers_of_one
        ]
        assert None not in which
        assert which == sorted(which)
        assert len(set(which)) > 3  # they did run side by side
    np.testing.assert_array_equal(model.predict_proba(asked), states[-1])


def test_two_who_learn_take_turns():
    X, y = clusters(400)
    model = mesu.MESUClassifier(random_state=0).partial_fit(X[:10], y[:10], classes=range(4))
    threads = [
        threading.Thread(target=lambda part=part: [model.partial_fit(X[i : i + 10], y[i : i + 10]) for i in part])
        for part in (range(0, 200, 10), range(200, 400, 10))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert model._stream.moment.rows == model._stream.moment.updates == 410
    assert model.score(X, y) > 0.9
