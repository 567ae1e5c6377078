"""Weights of rows: how many times their evidence counts."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from made_up import CLASSES, JOINT, NUMBERS, clusters, layers, line, same

import mesu
from mesu.engine import PosteriorEngine
from mesu.online.model import OnlineModel
from mesu.online.network import make_learner, start_weights
from mesu.online.settings import evidence

KINDS = [mesu.MESUClassifier, mesu.MESURegressor]


def one_layer(settings, outputs, noise_std=1.0):
    settings = replace(settings, hidden=(), memory=inf)
    learner = make_learner(settings, start_weights(settings, (3, outputs)), 0, noise_std)
    (mean, bias, std, bias_std) = next(layers(learner.live))
    return learner, np.column_stack([mean, bias]), np.column_stack([std, bias_std])


def test_precision_grows_by_so_many_times_the_curvature():
    # softmax with one layer: g = (p - 1[y]) x, h = p (1 - p) x^2; then 1/v' = 1/v + w h and mu' = mu - v' w g
    learner, mean, std = one_layer(CLASSES, 4)
    x, y, w = np.array([0.03, -0.02, 0.01]), 2, 2.5
    inputs = np.append(x, 1.0)
    p = np.exp(mean @ inputs)
    p /= p.sum()
    learner.learn(x[None].astype(np.float32), np.array([y]), np.array([w]))
    var = 1 / (std**-2 + w * np.outer(p * (1 - p), inputs**2))
    expected = mean - var * w * np.outer(p - np.eye(4)[y], inputs)
    (new_mean, bias, new_std, bias_std) = next(layers(learner.live))
    np.testing.assert_allclose(np.column_stack([new_std, bias_std])[:, :3], var[:, :3] ** 0.5, rtol=1e-5)
    np.testing.assert_allclose(np.column_stack([new_mean, bias])[:, :3], expected[:, :3], rtol=1e-5)


@pytest.mark.parametrize("w", [0.5, 1.0, 3.0])
def test_a_joint_step_takes_a_target_as_so_many_times_more_precise(w):
    # S = n^2 / w + sum v x^2; then v' = v (1 - v x^2 / S) and mu' = mu + v x r / S
    noise = 0.7
    learner, mean, std = one_layer(JOINT, 1, noise)
    x, y = np.array([0.5, -1.0, 0.25]), 0.3
    inputs = np.append(x, 1.0)
    var = std**2
    s = noise**2 / w + (var * inputs**2).sum()
    r = y - (mean @ inputs)[0]
    learner.learn(x[None].astype(np.float32), np.array([[y]], np.float32), np.array([w]))
    (new_mean, bias, new_std, bias_std) = next(layers(learner.live))
    np.testing.assert_allclose(np.column_stack([new_mean, bias]), mean + var * inputs * r / s, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.column_stack([new_std, bias_std]) ** 2, var * (1 - var * inputs**2 / s), rtol=1e-4)


def test_a_weight_of_three_is_one_update_with_three_copies_and_a_third_of_the_memory():
    settings = replace(CLASSES, memory=60)
    x, y = np.random.default_rng(0).normal(size=(1, 5)).astype(np.float32), np.array([1])
    weights = start_weights(settings, (5, 12, 4))
    heavy = make_learner(settings, weights, 0, 1.0)
    heavy.learn(x, y, np.array([3.0]))
    copies = make_learner(replace(settings, memory=20), weights, 0, 1.0)
    PosteriorEngine(copies.learner.net, copies.learner.optimizer, 1, batch=3).learn(x.repeat(3, 0), y.repeat(3))
    np.testing.assert_allclose(heavy.live.mean, copies.live.mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(heavy.live.std, copies.live.std, rtol=1e-5)


@pytest.mark.parametrize("chosen", [CLASSES, NUMBERS, JOINT])
def test_a_weight_of_one_is_no_weight_and_cuts_do_not_show(chosen):
    X, y = line(90) if chosen.regression else clusters(90)
    w = np.random.default_rng(1).choice([0.5, 1.0, 2.0], 90)
    models = [OnlineModel(chosen, X.shape[1]) for _ in range(4)]
    plain, ones, whole, pieces = models
    plain.learn(X, y)
    ones.learn(X, y, counts=np.ones(90))
    assert same(plain.snapshot, ones.snapshot)
    whole.learn(X, y, counts=w)
    for at in range(0, 90, 7):
        pieces.learn(X[at : at + 7], y[at : at + 7], counts=w[at : at + 7])
    assert same(whole.snapshot, pieces.snapshot)
    assert not same(whole.snapshot, plain.snapshot)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_rows_of_weight_zero_are_left_out(kind, method):
    X, y = clusters(60)
    w = np.arange(60) % 3 > 0
    one, other = kind(hidden=(8,), random_state=0), kind(hidden=(8,), random_state=0)
    getattr(one, method)(X, y, sample_weight=w)
    getattr(other, method)(X[w], y[w])
    assert same(one._online.snapshot, other._online.snapshot)
    now = one._online.snapshot
    assert same(one.partial_fit(X, y + 1, sample_weight=np.zeros(60))._online.snapshot, now)


def test_in_a_dict_too():
    river = pytest.importorskip("mesu.river")
    one, other = (river.MESUClassifier(hidden=(8,), seed=0) for _ in range(2))
    for model, w in ((one, 1.0), (other, 1)):
        for i in range(20):
            model.learn_one({"a": float(i % 4), "b": 1.0}, i % 3, w=w)
    assert same(one._online.snapshot, other._online.snapshot)
    now = one._online.snapshot
    one.learn_one({"a": 9.0, "new": 1.0}, "never seen", w=0)
    assert one._online.snapshot is now
    with pytest.raises(ValueError, match="feature 'a' must be a number"):
        one.learn_one({"a": "nine"}, 1, w=0)
    one.learn_one({"a": 1.0}, 1, w=2.0)
    other.learn_one({"a": 1.0}, 1)
    assert not same(one._online.snapshot, other._online.snapshot)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, -1, 1], "must be 0 or more and less than the memory .* got -1"),
        ([1, np.nan, 1], "got nan"),
        ([1, np.inf, 1], "got inf"),
        ([1, 2000, 1], "less than the memory"),
        ([1, 1], "one weight a row"),
        (["much"] * 3, "must be numbers"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_make_no_sense_change_nothing(kind, weights, message):
    X, y = clusters(30)
    model = kind(hidden=(4,), memory=1000, random_state=0).partial_fit(X, y)
    before = model._online.snapshot
    for learn in (model.partial_fit, model.fit):
        with pytest.raises(ValueError, match=message):
            learn(X[:3], y[:3], sample_weight=weights)
    assert model._online.snapshot is before


def test_nothing_to_begin_with():
    for learn in (mesu.MESUClassifier().fit, mesu.MESUClassifier().partial_fit):
        with pytest.raises(ValueError, match="sample_weight is zero for all"):
            learn(np.eye(3), [0, 1, 2], sample_weight=np.zeros(3))
    np.testing.assert_array_equal(evidence(2, 3, 10), [2, 2, 2])
