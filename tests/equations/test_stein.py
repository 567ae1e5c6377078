"""Stein's lemma (1/sigma dC/dsigma = E[d2L/dw2]) through the posterior's own autograd, exactly and by sampling."""

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import mesu


class Loss(NamedTuple):
    """A loss of one weight with the expectations of its slope and its curvature under N(mu, s^2) in closed form."""

    value: object
    slope: object
    curvature: object


def quartic_slope(mu, s):
    # L' = 4 w^3 - 6 w^2 + w, E[w^2] = mu^2 + s^2, E[w^3] = mu^3 + 3 mu s^2
    return 4 * (mu**3 + 3 * mu * s**2) - 6 * (mu**2 + s**2) + mu


LOSSES = {
    "quartic": Loss(
        lambda w: w**4 - 2 * w**3 + 0.5 * w**2,
        quartic_slope,
        lambda mu, s: 12 * (mu**2 + s**2) - 12 * mu + 1,
    ),
    # E[exp(k w)] = exp(k mu + k^2 s^2 / 2)
    "exp": Loss(
        lambda w: torch.exp(0.7 * w),
        lambda mu, s: 0.7 * math.exp(0.7 * mu + 0.245 * s**2),
        lambda mu, s: 0.49 * math.exp(0.7 * mu + 0.245 * s**2),
    ),
    # E[cos w] = cos(mu) exp(-s^2/2), E[sin w] likewise; its curvature is negative here, and so is sigma's gradient
    "cos": Loss(
        torch.cos,
        lambda mu, s: -math.sin(mu) * math.exp(-(s**2) / 2),
        lambda mu, s: -math.cos(mu) * math.exp(-(s**2) / 2),
    ),
}
POINTS = [(0.4, 0.3), (-1.1, 0.8), (0.0, 1.2)]


class Copies(nn.Module):
    """Many copies of one weight, each with a loss of its own: one draw of the module is many draws of the weight."""

    def __init__(self, loss, mu, copies):
        super().__init__()
        self.loss = loss
        self.w = nn.Parameter(torch.full((copies,), mu, dtype=torch.float64))

    def forward(self):
        return self.loss(self.w)


class Given:
    """Noise that is not random: the numbers given."""

    state = None

    def __init__(self, numbers):
        self.numbers = numbers

    def normal(self, shape, like=None):
        return self.numbers.to(like.dtype).view(shape)


def gradients(loss, mu, s, copies, share, noise=None):
    """Gradients of sum_k share_k L(w_k) with respect to each copy's mean and std."""
    net = mesu.Bayesian(Copies(loss, mu, copies), estimator="weights", init_std=s, seed=3)
    (net.sample(samples=1, noise=noise)[0] * share).sum().backward()
    ((_, mean, std),) = net.pairs()
    return mean.grad, std.grad


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("mu", "s"), POINTS)
def test_exactly_by_gauss_hermite_quadrature(name, mu, s):
    # eighty nodes integrate polynomials of degree 159 exactly, and exp and cos to rounding
    nodes, weights = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(80))
    share = weights / weights.sum()
    g_mean, g_std = gradients(LOSSES[name].value, mu, s, 80, share, Given(nodes))
    assert g_mean.sum().item() == pytest.approx(LOSSES[name].slope(mu, s), rel=1e-11, abs=1e-11)
    assert g_std.sum().item() / s == pytest.approx(LOSSES[name].curvature(mu, s), rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("mu", "s"), POINTS)
def test_in_the_mean_of_many_draws(name, mu, s):
    copies = 200_000
    g_mean, g_std = gradients(LOSSES[name].value, mu, s, copies, torch.ones(copies))
    for drawn, expected in ((g_mean, LOSSES[name].slope(mu, s)), (g_std / s, LOSSES[name].curvature(mu, s))):
        error = drawn.std().item() / math.sqrt(copies)
        assert abs(drawn.mean().item() - expected) < 4.5 * error
        assert error < 0.05 * (1 + abs(expected))  # tight enough to tell the lemma from its neighbours


def test_samples_are_averaged_into_the_same_gradient():
    # the same with one weight and many samples of the network, as training does it
    loss, mu, s, samples = LOSSES["quartic"], 0.4, 0.3, 4000
    net = mesu.Bayesian(Copies(loss.value, mu, 1), estimator="weights", init_std=s, seed=4)
    net(samples=samples).mean().backward()
    ((_, _, std),) = net.pairs()
    drawn = gradients(loss.value, mu, s, 50_000, torch.ones(50_000))[1]
    assert abs(std.grad.item() / s - loss.curvature(mu, s)) < 4.5 * drawn.std().item() / s / math.sqrt(samples)
