"""What a step of MESU takes from where each weight started: the prior, and how far a mean may move."""

from math import sqrt

import numpy as np
import pytest
import torch
from torch import nn

import mesu
from mesu.rules.curvature import gradient_of_sigma


def test_a_prior_at_the_start_needs_to_know_it():
    net = mesu.Bayesian(nn.Linear(2, 2), seed=0)
    plain = [(pair.mean, pair.std) for pair in net.pairs()]
    with pytest.raises(ValueError, match="need to know where each sigma started"):
        mesu.MESU(plain, memory=100, prior_std="start")
    assert mesu.MESU(plain, memory=100).param_groups[0]["prior_std"] == 1.0
    assert mesu.MESU(net, memory=100).param_groups[0]["prior_std"] == "start"


def test_an_unused_weight_relaxes_to_its_start():
    net = mesu.Bayesian(nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 2)), seed=0)
    opt = mesu.MESU(net, memory=5.0)
    with torch.no_grad():
        for pair in net.pairs():
            pair.std.mul_(0.2)
    for _ in range(60):
        for pair in net.pairs():
            pair.mean.grad, pair.std.grad = torch.zeros_like(pair.mean), torch.zeros_like(pair.std)
        opt.step()
    for pair in net.pairs():
        assert torch.allclose(pair.std, torch.full_like(pair.std, pair.start), rtol=1e-3)
        assert float(pair.mean.detach().abs().max()) < 1e-4


@pytest.mark.parametrize("share", [1.0, 0.1, 1e-3])
def test_a_step_is_bounded_by_a_narrowed_sigma(share):
    # of a belief that is a share of its start: near the start 1/30 of the variance, where much is known sigma itself
    net = mesu.Bayesian(nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 2)).double(), seed=0)
    opt = mesu.MESU(net, memory=1000)
    before = []
    with torch.no_grad():
        for pair in net.pairs():
            pair.std.mul_(share)
            before.append((pair.mean.clone(), float(pair.std.view(-1)[0])))
            pair.mean.grad, pair.std.grad = torch.full_like(pair.mean, 1e9), torch.zeros_like(pair.std)
    opt.step()
    for pair, (mean, sigma) in zip(net.pairs(), before, strict=True):
        reach = 0.3 / sqrt(1 / sigma**2 + 29 / pair.start**2)
        assert torch.allclose(mean - pair.mean, torch.full_like(mean, reach), rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sigma_stays_positive_whatever_the_curvature(dtype):
    largest = torch.finfo(dtype).max
    for std in (1e-8, 1e-3, 1.0, 1e3):
        for h in (0.0, 1e-30, 1.0, 1e18, largest):
            sigma, curvature = torch.tensor([std], dtype=dtype), torch.tensor([h], dtype=dtype)
            gradient = gradient_of_sigma(sigma, curvature)
            assert torch.isfinite(gradient).all()
            assert float(gradient) >= 0
            c = mesu.rules.mesu.constants(memory=1000)
            new = mesu.rules.mesu.step(
                mesu.rules.Gaussian(sigma * 0, sigma), mesu.rules.Gaussian(sigma * 0, gradient), c
            )
            assert 0 < float(new.std) < float("inf")


@pytest.mark.parametrize("engine", [None, False])
def test_a_short_memory_leaves_what_a_stream_does_not_use_where_it_began(engine):
    # three of six columns say nothing: their means fade by 1/N an update, their sigmas stay, and the stream is learned
    draw = np.random.RandomState(0)
    memory, rows = 400, 2_000
    x = draw.randn(rows, 6).astype(np.float32)
    x[:, 3:] = 0
    y = (x[:, 0] - x[:, 1] > 0).astype(int)
    torch.manual_seed(0)
    net = mesu.Bayesian(nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 2)), seed=0)
    first = next(net.pairs())
    before = first.mean.detach().clone()
    mesu.BayesianLearner(net, mesu.MESU(net, memory=memory), engine=engine).learn(x, y)
    assert float((net.at_mean(torch.from_numpy(x)).argmax(1).numpy() == y).mean()) > 0.95
    first = next(net.pairs())
    np.testing.assert_allclose(first.std.detach()[:, 3:], first.start or np.nan, rtol=1e-3)
    np.testing.assert_allclose(first.mean.detach()[:, 3:], before[:, 3:] * (1 - 1 / memory) ** rows, rtol=1e-2)


def test_posteriors_of_different_depth_go_into_one_optimiser():
    shallow, deep = mesu.Bayesian(nn.Linear(3, 2)), mesu.Bayesian(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)))
    assert shallow.narrowing != deep.narrowing
    assert len(mesu.MESU([*shallow.pairs(), *deep.pairs()], memory=10).param_groups[0]["names"]) == 6
    as_believed = mesu.Bayesian(nn.Linear(3, 2), estimator="linear", narrowing=1)
    with pytest.raises(ValueError, match="narrower than believed"):
        mesu.MESU([*shallow.pairs(), *as_believed.pairs()], memory=10)
