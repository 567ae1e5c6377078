"""Sigma's course on a quadratic cost against Proposition 5, its limit (eq. dynamic3) and the law without forgetting.

For C = H/2 E[(w - w0)^2] = H/2 ((mu - w0)^2 + sigma^2) the gradient of sigma is H sigma, with nothing random in it. In
eq. 9, times lr_std,

    d_sigma = lr_std/2 ( -sigma^2 H sigma + sigma (sp^2 - sigma^2) / (N sp^2) )
            = gamma/N sigma - gamma/N (N H + 1/sp^2) sigma^3              with gamma = lr_std/2,

so the paper's "gamma need not be 0.5" is lr_std = 1 with its half. One update is one step of length 1 of Euler's method
on the Bernoulli equation sigma' = gamma/N sigma - gamma/N (N H + 1/sp^2) sigma^3.
"""

from math import exp, inf

import pytest
import torch

from mesu.rules import Gaussian, dynamics, mesu

RULES = {"paper": mesu.paper, "exact": mesu.exact}
SP = 0.8
# every pair of a curvature and a first sigma, below and above where they end
H, SIGMA_0 = (
    grid.flatten()
    for grid in torch.meshgrid(
        torch.tensor([0.0, 0.05, 0.5, 3.0], dtype=torch.float64),
        torch.tensor([0.02, 0.1, 0.3], dtype=torch.float64),
        indexing="ij",
    )
)


def course(rule, memory, lr_std, steps, h=H, sigma=SIGMA_0):
    """Sigma after 0, 1, ..., `steps` updates; the mean sits at the minimum, where it feels no gradient."""
    c = mesu.constants(memory, prior_std=SP, lr_std=lr_std)
    zero = torch.zeros_like(sigma)
    q = Gaussian(zero, sigma)
    sigmas = [sigma]
    for _ in range(steps):
        q = rule(q, Gaussian(zero, h * q.std), c)
        sigmas.append(q.std)
    assert (q.mean == 0).all()
    return torch.stack(sigmas)


def proposition_5(memory, gamma, t):
    """The closed form of the paper, as printed."""
    growth = torch.exp(gamma * t / memory)[:, None]
    inside = 1 + memory * SIGMA_0**2 * (H + 1 / (memory * SP**2)) * (growth**2 - 1)
    return SIGMA_0 * growth / inside.sqrt()


def euler_error(memory, lr_std):
    """Of the order of one step's relative change: the largest narrowing, and forgetting's 1/N, which adds up."""
    return lr_std * (0.4 * H * SIGMA_0**2 + 1.2 / memory)


def test_the_closed_form_solves_the_bernoulli_equation():
    memory, gamma = 100.0, 0.5
    t = torch.arange(1, 400, 7, dtype=torch.float64)
    step = 1e-3
    slope = (proposition_5(memory, gamma, t + step) - proposition_5(memory, gamma, t - step)) / (2 * step)
    sigma = proposition_5(memory, gamma, t)
    expected = gamma / memory * sigma - gamma / memory * (memory * H + 1 / SP**2) * sigma**3
    torch.testing.assert_close(slope, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("memory", [300.0, 1500.0])
def test_sigma_follows_proposition_5(rule, memory):
    steps = int(3 * memory)
    t = torch.arange(steps + 1, dtype=torch.float64)
    ratio = course(RULES[rule], memory, 1.0, steps) / proposition_5(memory, 0.5, t)
    assert ((ratio - 1).abs().amax(0) < euler_error(memory, 1.0)).all()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("lr_std", [0.25, 2.0])
def test_gamma_is_half_of_lr_std(rule, lr_std):
    memory, steps = 500.0, 1200
    t = torch.arange(steps + 1, dtype=torch.float64)
    ratio = course(RULES[rule], memory, lr_std, steps) / proposition_5(memory, lr_std / 2, t)
    assert ((ratio - 1).abs().amax(0) < euler_error(memory, lr_std)).all()


@pytest.mark.parametrize("rule", RULES)
def test_half_the_step_halves_the_distance_to_proposition_5(rule):
    memory, gamma_t = 50.0, 40.0
    gaps = []
    for lr_std in (0.2, 0.1):
        steps = round(gamma_t / (lr_std / 2))
        at_end = torch.tensor([float(steps)], dtype=torch.float64)
        gaps.append(course(RULES[rule], memory, lr_std, steps)[-1] - proposition_5(memory, lr_std / 2, at_end)[0])
    torch.testing.assert_close(gaps[0] / gaps[1], torch.full_like(H, 2.0), rtol=0.1, atol=0)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("memory", [20.0, 200.0])
def test_sigma_ends_where_forgetting_and_curvature_balance(rule, memory):
    # eq. dynamic3 is the fixed point of both rules, not only of the differential equation
    end = course(RULES[rule], memory, 1.0, int(25 * memory))[-1]
    torch.testing.assert_close(end**2, 1 / (memory * H + 1 / SP**2), rtol=1e-7, atol=0)


@pytest.mark.parametrize("rule", [mesu.paper, mesu.exact, mesu.exact_plain])
def test_without_forgetting_sigma_squared_falls_as_one_over_h_t(rule):
    h = torch.tensor([0.2, 1.0, 4.0, 50.0], dtype=torch.float64)
    sigma = torch.tensor([1.0, 0.7, 0.5, 0.1], dtype=torch.float64)
    steps = 4000
    sigmas = course(rule, inf, 1.0, steps, h, sigma)
    # 1/sigma^2 = 1/sigma_0^2 + H t + H O(log t): t sigma^2 H falls short of 1 by about (1/(H sigma_0^2) + log t)/t
    for t in (steps // 4, steps):
        shortfall = 1 - t * sigmas[t] ** 2 * h
        assert (shortfall > 0).all()
        assert (shortfall < (1 / (h * sigma**2) + 2 * torch.tensor(float(t)).log()) / t).all()


def test_the_timescale_is_the_papers():
    # CIFAR: N = 500,000, and alpha_sigma = 66 without the half; 15,000 updates in the first task are two timescales
    assert dynamics.timescale(500_000, lr_std=132) == pytest.approx(500_000 / 66)
    assert dynamics.lr_std_for(500_000, updates=15_000) == pytest.approx(132, rel=0.02)
    # Animals: 18,000 updates in the first task, and 120
    assert dynamics.lr_std_for(500_000, updates=18_000) == pytest.approx(120, rel=0.08)
    assert dynamics.timescale(1_000, dynamics.lr_std_for(1_000, 400, timescales=5)) == pytest.approx(80)
    assert dynamics.timescale(inf) == dynamics.timescale(1_000, lr_std=0) == inf


@pytest.mark.parametrize("rule", RULES.values())
def test_the_precision_comes_a_factor_e_nearer_to_its_rest_in_half_a_timescale(rule):
    memory, lr_std = 4_000.0, 2.0
    half = round(dynamics.timescale(memory, lr_std) / 2)
    assert half == memory / lr_std
    wide = torch.tensor([0.05], dtype=torch.float64)
    h = torch.tensor([1e-4], dtype=torch.float64)
    precision = course(rule, memory, lr_std, 2 * half, h, wide)[:, 0] ** -2
    rest = dynamics.resting_std(1e-4, memory, SP) ** -2
    gaps = (precision[[0, half, 2 * half]] - float(rest)).tolist()
    assert gaps[1] / gaps[0] == pytest.approx(exp(-1), rel=2e-3)
    assert gaps[2] / gaps[1] == pytest.approx(exp(-1), rel=2e-3)


def test_sigma_after_is_the_closed_form():
    t = torch.tensor([1.0, 50.0, 900.0], dtype=torch.float64)
    printed = proposition_5(100.0, 0.5, t).numpy()
    for row, when in zip(printed, t.tolist(), strict=True):
        assert dynamics.sigma_after(when, SIGMA_0.numpy(), H.numpy(), 100.0, SP) == pytest.approx(row, rel=1e-12)
    assert dynamics.sigma_after(1e6, 0.1, H.numpy(), 100.0, SP) == pytest.approx(
        dynamics.resting_std(H.numpy(), 100.0, SP), rel=1e-12
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"memory": inf, "updates": 10}, "memory must be finite"),
        ({"memory": 100, "updates": 0}, "updates must be a finite number greater than 0, got 0"),
        ({"memory": 100, "updates": 5, "timescales": -1}, "timescales must be"),
        ({"memory": 0.5, "updates": 5}, "memory must be greater than 1 update"),
    ],
)
def test_rates_that_cannot_be_chosen_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        dynamics.lr_std_for(**settings)
