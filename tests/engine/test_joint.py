"""The estimator "joint": torch and engine alike, against a Kalman filter with all its matrices and the exact posterior."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev

import mesu
from mesu.engine import PosteriorEngine, why_not
from mesu.rules.curvature import FURTHEST

NOISE_STD = 0.6


def network(sizes, *, bias=True, tanh=False, std=0.4, noise_std=NOISE_STD, **options):
    torch.manual_seed(len(sizes))
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs, bias=bias), nn.Tanh() if tanh else nn.ReLU()]
    module = nn.Sequential(*layers[:-1]).double()
    options = {"narrowing": 1.0, "init_std": std, "seed": 1, "likelihood": "gaussian", **options}
    net = mesu.Bayesian(module, estimator="joint", noise_std=noise_std, **options)
    with torch.no_grad():
        for pair in net.pairs():
            pair.std.mul_(0.5 + torch.rand_like(pair.std))
    return net


def rows(count, columns, seed=0):
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((count, columns))
    return x, (x @ draw.standard_normal(columns) + 0.3 * draw.standard_normal(count))[:, None]


def flat(net):
    return tuple(
        torch.cat([getattr(pair, part).detach().reshape(-1) for pair in net.pairs()]).clone()
        for part in ("mean", "std")
    )


def learn_in_torch(net, optimizer, x, y):
    for row, target in zip(torch.from_numpy(x), torch.from_numpy(y), strict=True):
        net.nll(row[None], target[None]).backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("sizes", [(4, 1), (4, 7, 1), (4, 6, 5, 1)])
@pytest.mark.parametrize("tanh", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_engine_and_torch_learn_the_same(sizes, tanh, bias):
    x, y = rows(30, 4)
    ours, theirs = (network(sizes, tanh=tanh, bias=bias) for _ in range(2))
    options = {"memory": 50, "prior_std": 0.7, "max_step": None}
    PosteriorEngine(ours, mesu.MESU(ours, **options), samples=1).learn(x, y)
    learn_in_torch(theirs, mesu.MESU(theirs, **options), x, y)
    for one, other in zip(flat(ours), flat(theirs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("sizes", [(3, 1), (3, 5, 1), (3, 4, 4, 1)])
def test_a_step_is_that_of_a_kalman_filter_but_for_the_covariances(sizes):
    x, y = rows(1, 3, seed=2)
    net = network(sizes)
    mean, std = flat(net)
    names = [pair.name for pair in net.pairs()]
    shapes = [pair.mean.shape for pair in net.pairs()]

    def output(weights):
        parts = weights.split([shape.numel() for shape in shapes])
        weights = {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        return functional_call(net.module, weights, torch.from_numpy(x))[0, 0]

    slopes, covariance = jacrev(output)(mean)[None], torch.diag(std**2)
    believed = slopes @ covariance @ slopes.T + NOISE_STD**2
    gain = covariance @ slopes.T / believed
    expected = mean + gain[:, 0] * (y[0, 0] - output(mean))
    after = covariance - gain @ slopes @ covariance

    PosteriorEngine(net, mesu.MESU(net, memory=float("inf"), max_step=None), samples=1).learn(x, y)
    torch.testing.assert_close(flat(net)[0], expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(flat(net)[1] ** 2, after.diagonal(), rtol=1e-10, atol=1e-12)


def test_one_weight_has_the_exact_posterior_of_a_whole_stream():
    x, y = rows(40, 1, seed=3)
    net = network((1, 1), bias=False)
    (mean,), (std,) = flat(net)
    PosteriorEngine(net, mesu.MESU(net, memory=float("inf"), max_step=None), samples=1).learn(x, y)
    precision = 1 / std**2 + (x**2).sum() / NOISE_STD**2
    expected = (mean / std**2 + (x * y).sum() / NOISE_STD**2) / precision
    torch.testing.assert_close(flat(net)[0], expected[None], rtol=1e-9, atol=0)
    torch.testing.assert_close(flat(net)[1] ** -2, precision[None], rtol=1e-9, atol=0)


@pytest.mark.parametrize("std", [0.1, 10.0, 1000.0])
def test_no_step_overshoots_however_wide_the_beliefs(std):
    x, y = rows(1, 3, seed=4)
    net = network((3, 1), std=std)
    before = net.at_mean(torch.from_numpy(x)).item()
    PosteriorEngine(net, mesu.MESU(net, memory=float("inf"), max_step=None), samples=1).learn(x, y)
    after = net.at_mean(torch.from_numpy(x)).item()
    assert 0 < (after - before) / (y[0, 0] - before) <= 1


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_broken_target_moves_no_further_than_the_furthest(sign):
    x, _ = rows(1, 3, seed=5)
    net, other = network((3, 5, 1)), network((3, 5, 1))
    options = {"memory": 100, "max_step": None}
    broken = np.array([[sign * 1e9]])
    slopes = torch.autograd.grad(net.at_mean(torch.from_numpy(x)).sum(), [pair.mean for pair in net.pairs()])
    variance = NOISE_STD**2 + sum(
        (pair.std * slope).square().sum() for pair, slope in zip(net.pairs(), slopes, strict=True)
    )
    furthest = net.at_mean(torch.from_numpy(x)).detach() + sign * FURTHEST * variance.detach().sqrt()
    PosteriorEngine(net, mesu.MESU(net, **options), samples=1).learn(x, broken)
    learn_in_torch(other, mesu.MESU(other, **options), x, furthest.numpy())
    torch.testing.assert_close(flat(net)[0], flat(other)[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("noise_std", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sigma_stays_positive_for_every_input(noise_std, dtype):
    x, y = rows(60, 3, seed=6)
    net = network((3, 8, 1), std=100.0, noise_std=noise_std).to(dtype)
    x = x * 10.0 ** np.arange(-30, 30)[:, None] ** 1.0 if dtype == torch.float64 else x * 1e6
    PosteriorEngine(net, mesu.MESU(net, memory=1000, max_step=None), samples=1).learn(x, y)
    mean, std = flat(net)
    assert torch.isfinite(mean).all()
    assert (std > 0).all()


def test_it_is_for_one_number_of_one_example():
    x, y = (torch.from_numpy(part) for part in rows(2, 3))
    net = network((3, 4, 1))
    with pytest.raises(ValueError, match="learns one number of one example at a time"):
        net.nll(x, y)
    with pytest.raises(ValueError, match="learns one example an update, got batch=2"):
        PosteriorEngine(net, mesu.MESU(net, memory=100), samples=1, batch=2)
    classes = mesu.Bayesian(nn.Linear(3, 1), estimator="joint", seed=0)
    assert why_not(classes, mesu.MESU(classes, memory=100)) == "estimator='joint' is for one number"
    several = network((3, 4, 2))
    with pytest.raises(ValueError, match=r"outputs of shape \(1, 2\)"):
        several.nll(x[:1], torch.zeros(1, 2))


def joint(module, **options):
    return mesu.Bayesian(module, estimator="joint", likelihood="gaussian", seed=0, **options)


def test_a_second_cost_before_the_step_is_refused():
    net, x, y = joint(nn.Linear(1, 1)), torch.ones(1, 1), torch.tensor([[3.0]])
    opt = mesu.MESU(net, memory=1000)
    for _ in range(2):
        net.nll(x, y).backward()
        with pytest.raises(ValueError, match="the gradient of another is still there"):
            net.nll(x, y)
        opt.step()
        opt.zero_grad()


def test_parameters_that_are_not_covered_get_the_gradient_of_the_cost():
    net = joint(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), deterministic=["0"])
    x, y = torch.tensor([[0.3, -1.0]]), torch.tensor([[2.0]])
    net.nll(x, y).backward()
    others = list(net.deterministic_parameters())
    assert len(others) == 2
    exact = torch.autograd.grad(net.likelihood.nll(net.at_mean(x)[None], y), others)
    for parameter, gradient in zip(others, exact, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_without_gradients_the_cost_is_still_there():
    net, x, y = joint(nn.Linear(1, 1)), torch.ones(1, 1), torch.tensor([[3.0]])
    with torch.no_grad():
        torch.testing.assert_close(net.nll(x, y), net.likelihood.nll(net.at_mean(x)[None], y))
