"""Compiled predictions against the equations written out, and against draws of all weights."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import mesu
from mesu.engine import predict
from mesu.engine.predict import Weights, layer_edges


def network(sizes, std=0.2, dtype=np.float32, seed=0):
    draw, count = np.random.default_rng(seed), layer_edges(sizes)[-1]
    return Weights(
        draw.normal(size=count).astype(dtype) / 2, (std * draw.uniform(0.5, 1, size=count)).astype(dtype), sizes
    )


def layers(weights):
    """Means and sigmas of each layer's weights and biases, in double precision."""
    for (n, k), (at, end) in zip(pairwise(weights.sizes), pairwise(layer_edges(weights.sizes)), strict=True):
        mean, std = (a[at:end].astype(float) for a in (weights.mean, weights.std))
        yield mean[: n * k].reshape(k, n), mean[n * k :], std[: n * k].reshape(k, n), std[n * k :]


def drawn(weights, x, samples):
    """Eq. 11 in local form, written down again: outputs [S, B, K]."""
    h, first = np.broadcast_to(x.astype(float), (samples, *x.shape)), 0
    e = predict._noise(sum(weights.sizes[1:]), samples, np.float32).astype(float)
    for number, (mu, mu_bias, sigma, sigma_bias) in enumerate(layers(weights)):
        h = np.maximum(h, 0) if number else h
        m, v = h @ mu.T + mu_bias, h**2 @ (sigma**2).T + sigma_bias**2
        h = m + np.sqrt(v) * e[first : first + len(mu)].T[:, None, :]
        first += len(mu)
    return h


@pytest.mark.parametrize("sizes", [(3, 4), (4, 9, 3), (5, 20, 7, 2), (2, 3, 3, 3, 5)])
def test_classes_are_predicted_as_the_equations_say(sizes):
    weights, x = network(sizes), np.random.default_rng(1).normal(size=(11, sizes[0])).astype(np.float32)
    scores = drawn(weights, x, 50)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    found = predict.classify(weights, x, 50)
    np.testing.assert_allclose(found.probs, p.mean(0), atol=2e-6)
    total = -(p.mean(0) * np.log(p.mean(0))).sum(-1)
    aleatoric = -(p * np.log(p)).sum(-1).mean(0)
    np.testing.assert_allclose(found.total, total, atol=5e-6)
    np.testing.assert_allclose(found.aleatoric, aleatoric, atol=5e-6)
    np.testing.assert_allclose(found.epistemic, total - aleatoric, atol=1e-5)


@pytest.mark.parametrize("sizes", [(3, 1), (4, 9, 1), (5, 20, 7, 1)])
def test_numbers_are_predicted_as_the_equations_say(sizes):
    weights, x = network(sizes), np.random.default_rng(1).normal(size=(11, sizes[0])).astype(np.float32)
    out = drawn(weights, x, 50)[..., 0]
    found = predict.regress(weights, x, 50, 0.25)
    np.testing.assert_allclose(found.mean, out.mean(0), atol=1e-5)
    np.testing.assert_allclose(found.epistemic, out.var(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.total, out.var(0) + 0.25, rtol=1e-4)
    assert (found.aleatoric == 0.25).all()


def test_a_linear_prediction_has_its_closed_form():
    # one layer: mean x.mu + b and variance x^2.sigma^2 + sigma_b^2, exactly: each unit's noise has mean 0 and variance 1
    weights, x = network((6, 1)), np.random.default_rng(1).normal(size=(9, 6)).astype(np.float32)
    ((mu, mu_bias, sigma, sigma_bias),) = layers(weights)
    found = predict.regress(weights, x, 16, 1.0)
    np.testing.assert_allclose(found.mean, (x @ mu.T + mu_bias)[:, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.epistemic, (x**2 @ (sigma**2).T + sigma_bias**2)[:, 0], rtol=1e-5)


def test_many_draws_agree_with_draws_of_all_weights():
    weights, x = network((4, 10, 3), std=0.5), np.random.default_rng(1).normal(size=(20, 4)).astype(np.float32)
    net = mesu.Bayesian(nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 3)), estimator="local", seed=0)
    with torch.no_grad():
        for pair, (mean, std) in zip(
            net.pairs(),
            ((m, s) for mu, b, sigma, sb in layers(weights) for m, s in ((mu, sigma), (b, sb))),
            strict=True,
        ):
            pair.mean.copy_(torch.tensor(mean))
            pair.std.copy_(torch.tensor(std))
    reference, found = mesu.predict(net, torch.tensor(x), samples=3000), predict.classify(weights, x, 3000)
    np.testing.assert_allclose(found.probs, reference.probs, atol=0.04)  # four standard errors
    np.testing.assert_allclose(found.epistemic, reference.epistemic, atol=0.04)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_prediction_depends_on_its_own_row_only(dtype):
    weights, x = network((5, 20, 4), dtype=dtype), np.random.default_rng(1).normal(size=(40, 5)).astype(dtype)
    whole = predict.classify(weights, x, 64)
    for part in (slice(3, 4), slice(7, 24), slice(None, None, -1)):
        alone = predict.classify(weights, x[part], 64)
        for name in ("probs", "total", "aleatoric", "epistemic"):
            np.testing.assert_array_equal(getattr(whole, name)[part], getattr(alone, name))


def test_a_certain_network_has_no_epistemic_uncertainty():
    weights = network((5, 20, 4), std=1e-12)
    found = predict.classify(weights, np.random.default_rng(1).normal(size=(40, 5)).astype(np.float32), 64)
    assert found.epistemic.max() < 1e-5
    assert (found.epistemic >= 0).all()
