"""Draws narrower than beliefs: how wide they are, what gradient reaches the belief, and the way back."""

from math import sqrt

import pytest
import torch
from torch import nn

import mesu
from mesu.rules.bounds import believed, drawn


@pytest.mark.parametrize("estimator", ["weights", "local"])
def test_draws_are_as_narrow_as_asked_for(estimator):
    net = mesu.Bayesian(nn.Linear(1, 1, bias=False), estimator=estimator, init_std=0.6, narrowing=9.0, seed=0)
    (pair,) = net.pairs()
    with torch.no_grad():
        pair.mean.zero_()
        drawn = net.sample(torch.ones(1, 1), samples=20_000)
        assert float(drawn.std()) == pytest.approx(0.2, rel=0.02)
        pair.std.fill_(0.01)  # where much is known, draws are as wide as the belief
        assert float(net.sample(torch.ones(1, 1), samples=20_000).std()) == pytest.approx(0.01, rel=0.02)


@pytest.mark.parametrize("estimator", ["weights", "local"])
def test_the_gradient_of_the_belief_is_the_belief_times_the_curvature(estimator):
    # the same draws from a belief that is not narrowed: g_s = s h, and here g_sigma = sigma h
    narrowing, sigma = 5.0, 0.5
    s = 1 / sqrt(1 / sigma**2 + (narrowing - 1) / sigma**2)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    wide = mesu.Bayesian(module, estimator=estimator, init_std=sigma, narrowing=narrowing, seed=1)
    narrow = mesu.Bayesian(module, estimator=estimator, init_std=s, seed=1)
    x, y = torch.randn(5, 3).double(), torch.tensor([0, 1, 2, 1, 0])
    for net in (wide, narrow):
        net.nll(x, y, samples=3).backward()
    for a, b in zip(wide.pairs(), narrow.pairs(), strict=True):
        assert torch.allclose(a.mean.grad, b.mean.grad, atol=1e-12)
        assert torch.allclose(a.std.grad / a.std, b.std.grad / b.std, atol=1e-10)


def test_narrowing_below_one_is_refused():
    with pytest.raises(ValueError, match="narrowing must be 1"):
        mesu.Bayesian(nn.Linear(2, 2), narrowing=0.5)


@pytest.mark.parametrize("sigma", [1e-4, 0.03, 0.6, 3.0])
def test_the_way_back_from_a_drawn_sigma_is_exact(sigma):
    belief = torch.tensor([sigma], dtype=torch.float64)
    s = drawn(belief, 29 / 0.6**2)
    assert float(1 / s**2) == pytest.approx(1 / sigma**2 + 29 / 0.6**2, rel=1e-12)
    assert float(believed(s, 29 / 0.6**2)) == pytest.approx(sigma, rel=1e-9)
    assert drawn(belief, None) is belief
