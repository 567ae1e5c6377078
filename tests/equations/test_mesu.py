"""MESU and FOO-VB against their equations, worked in sixty digits or by finding the root that the equations define."""

from math import inf

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.equations.cases import (
    Case,
    R,
    agree,
    any_memory,
    by_eq_9_and_10,
    cases,
    inside_limit,
    moved,
    prior_stds,
    real,
    sigmas,
    signed,
    tensor,
    total,
)

from mesu.rules import Gaussian, bayes_by_backprop, foovb, mesu


@given(cases())
def test_paper_is_eq_9_and_10(case):
    agree(moved(mesu.paper, case, case.constants()), case, *by_eq_9_and_10(case))


def free_energy_slopes(case):
    """The slopes of the free energy in the new sigma and the new mean, from which the exact form comes.

    The old posterior is prior times likelihood, q = N(mp, sp^2) L, with L Gaussian of precision l = 1/sigma^2 - 1/sp^2
    and l * mu_L = mu/sigma^2 - mp/sp^2. Forgetting one update in N divides by L^(1/N), so that, up to constants,

        F(mu', s') = KL[N(mu', s'^2) || N(mu, sigma^2)] + C + E_q'[log L] / N
                   = -log s' + (s'^2 + (mu' - mu)^2) / (2 sigma^2) + C - l (s'^2 + (mu' - mu_L)^2) / (2 N)
        dF/ds'     = -1/s' + s' / sigma^2 + g_sigma - l s' / N                (eq. mth8 has 2 s' there: a slip)
        dF/dmu'    = (mu' - mu) / sigma^2 + g_mu - l (mu' - mu_L) / N         (eq. mth7)

    with the gradients of C where the step begins. A rate multiplies the gradient and 1/N.
    """
    mu, s, g_mu, g_s, forget, mp, sp, lr_mean, lr_std = case.exact_numbers()
    l = 1 / s**2 - 1 / sp**2
    l_mu = mu / s**2 - mp / sp**2

    def in_std(new):
        return -1 / new + new / s**2 + lr_std * g_s - lr_std * forget * l * new

    def in_mean(new):
        return (new - mu) / s**2 + lr_mean * g_mu - lr_mean * forget * (l * new - l_mu)

    return in_std, in_mean


def positive_root(slope):
    """Where an increasing function of a positive number crosses zero, by bisection of its logarithm."""
    low, high = R(-60), R(60)
    assert slope(10**low) < 0 < slope(10**high)
    for _ in range(75):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(10**middle) < 0 else (low, middle)
    return 10**low


def straight_root(slope):
    """Where a linear function crosses zero."""
    at_zero, at_one = slope(R(0)), slope(R(1))
    return -at_zero / (at_one - at_zero)


@given(cases())
def test_exact_plain_is_the_root_of_the_implicit_equations(case):
    assume(inside_limit(case))
    mu, _, g_mu, _, forget, mp, sp, lr_mean, _ = case.exact_numbers()
    in_std, in_mean = free_energy_slopes(case)
    std = positive_root(in_std)
    mean = straight_root(in_mean)
    a = in_mean(R(1)) - in_mean(R(0))  # the slope's slope: the precision after forgetting
    size = abs(mu) + lr_mean / a * (abs(g_mu) + (abs(mu) + abs(mp)) * forget / sp**2)
    agree(moved(mesu.exact_plain, case, case.constants()), case, (mean, size), (std, std), share=1e-12)


@given(cases())
def test_exact_damps_the_mean_by_the_smaller_variance(case):
    assume(inside_limit(case))
    mu, s, g_mu, _, forget, mp, sp, lr_mean, lr_std = case.exact_numbers()
    std = positive_root(free_energy_slopes(case)[0])
    a = (1 - lr_std * forget) / s**2 + lr_std * forget / sp**2
    var = min(1 / a, std**2)
    mean = total(mu, -lr_mean * var * g_mu, -lr_mean * var * forget / sp**2 * mu, lr_mean * var * forget / sp**2 * mp)
    agree(moved(mesu.exact, case, case.constants()), case, mean, (std, std), share=1e-12)


@pytest.mark.parametrize("curvature", [-8.0, -0.5, 0.0, 0.5, 8.0])
def test_only_positive_curvature_damps_the_mean(curvature):
    # where an example widens sigma, the mean still moves by the variance before the example, no further
    case = Case(0.3, 0.5, 2.0, curvature, 10.0, 0.1, 0.7, 1.0, 1.0, None)
    damped, plain = (moved(rule, case, case.constants())[0] for rule in (mesu.exact, mesu.exact_plain))
    if curvature > 0.5:
        assert abs(damped - case.mu) < 0.6 * abs(plain - case.mu)
    elif curvature <= 0:
        assert damped == pytest.approx(plain, rel=1e-14)


@pytest.mark.parametrize("rule", [mesu.exact, mesu.exact_plain])
def test_exact_is_the_paper_rule_to_first_order(rule):
    # a mean and sigma away from the prior, and both signs of gradient: no second-order term vanishes
    q = Gaussian(
        torch.tensor([0.7, -0.4, 1.3], dtype=torch.float64), torch.tensor([0.3, 1.7, 0.9], dtype=torch.float64)
    )
    g = Gaussian(
        torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64), torch.tensor([1.5, -2.0, 0.8], dtype=torch.float64)
    )

    def gap(eps):
        c = mesu.constants(memory=2.0 / eps, prior_mean=0.2, prior_std=1.2, lr_mean=0.8, lr_std=1.1)
        small = Gaussian(g.mean * eps, g.std * eps)
        one, other = rule(q, small, c), mesu.paper(q, small, c)
        return torch.cat([one.mean - other.mean, one.std - other.std])

    coarse, fine = gap(1e-3), gap(1e-4)
    assert (coarse.abs() > 1e-10).all()
    assert ((coarse / fine - 100).abs() < 2).all()  # a tenth of the step, a hundredth of the gap


@given(cases(memory=st.just(inf)))
def test_foo_vb_is_its_closed_form(case):
    assume(inside_limit(case))
    mu, s, g_mu, g_s, *_, lr_mean, lr_std = case.exact_numbers()
    h = s * lr_std * g_s / 2
    std = s * (real.sqrt(1 + h**2) - h)
    constants = foovb.constants(case.lr_mean, case.lr_std, case.max_step)
    agree(moved(foovb.step, case, constants), case, total(mu, -lr_mean * s**2 * g_mu), (std, std))
    assert moved(foovb.step, case, constants) == moved(mesu.exact_plain, case, case.constants())


def test_foo_vb_is_the_same_function():
    assert foovb.step is mesu.exact_plain


any_float64 = st.floats(allow_nan=False, allow_infinity=False)
any_float32 = st.floats(allow_nan=False, allow_infinity=False, width=32)


def new_stds(rule, sigma, slopes, memory, prior_std, dtype, max_step=None):
    g = torch.tensor(slopes, dtype=dtype)
    q = Gaussian(torch.zeros_like(g), torch.full_like(g, sigma))
    c = mesu.constants(memory, prior_std=prior_std, max_step=max_step)
    return rule(q, Gaussian(torch.zeros_like(g), g), c).std


@pytest.mark.parametrize("rule", [mesu.exact, mesu.exact_plain])
@pytest.mark.parametrize(("dtype", "slope"), [(torch.float64, any_float64), (torch.float32, any_float32)])
@given(data=st.data())
def test_no_finite_gradient_breaks_sigma(rule, dtype, slope, data):
    slopes = [*data.draw(st.lists(slope, max_size=20)), torch.finfo(dtype).max, torch.finfo(dtype).min, 0.0]
    sigma, memory, prior_std = data.draw(sigmas), data.draw(any_memory), data.draw(prior_stds)
    max_step = data.draw(st.sampled_from([None, 0.02, 0.5, 0.99]))
    new = new_stds(rule, sigma, slopes, memory, prior_std, dtype, max_step)
    assert new.dtype == dtype
    assert torch.isfinite(new).all()
    assert (new > 0).all()
    # more curvature never leaves more uncertainty
    order = torch.tensor(slopes, dtype=dtype).argsort(stable=True)
    assert (new[order].diff() <= new[order][:-1] * 4 * torch.finfo(dtype).eps).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("max_step", [1.0, 2.0, 50.0])
def test_a_wide_trust_region_does_not_break_sigma(max_step, dtype):
    # without a trust region sigma shrinks to sigma/g; one that reaches further than that must not make it zero
    new = new_stds(mesu.exact, 1.0, [1e3, 1e6, 1e9, 1e30], inf, 1.0, dtype, max_step)
    free = new_stds(mesu.exact, 1.0, [1e3, 1e6, 1e9, 1e30], inf, 1.0, dtype)
    assert (new > 0).all()
    torch.testing.assert_close(new, free, rtol=1e-5, atol=0)


@given(sigmas, st.lists(signed(-6, 9), min_size=1), any_memory, prior_stds)
def test_float32_agrees_with_float64(sigma, slopes, memory, prior_std):
    single = new_stds(mesu.exact, sigma, slopes, memory, prior_std, torch.float32).double()
    double = new_stds(mesu.exact, sigma, slopes, memory, prior_std, torch.float64)
    torch.testing.assert_close(single, double, rtol=2e-6, atol=0)


def test_beyond_the_limit_sigma_changes_by_two_thousand_million():
    shrunk, grown = new_stds(mesu.exact, 10.0, [1e300, -1e300], inf, 1.0, torch.float64).tolist()
    assert shrunk == pytest.approx(10.0 / 2e9, rel=1e-12)
    assert grown == pytest.approx(10.0 * 2e9, rel=1e-12)


@pytest.mark.parametrize("rule", [mesu.paper, mesu.exact, mesu.exact_plain, bayes_by_backprop.step])
@pytest.mark.parametrize("max_step", [None, 0.5])
def test_a_gradient_that_is_not_a_number_stays_one(rule, max_step):
    lr = {"lr": 0.1} if rule is bayes_by_backprop.step else {"memory": 10.0}
    file = bayes_by_backprop if rule is bayes_by_backprop.step else mesu
    q, g = Gaussian(tensor(0.0), tensor(1.0)), Gaussian(tensor(float("nan")), tensor(float("nan")))
    new = rule(q, g, file.constants(**lr, max_step=max_step))
    assert new.mean.isnan().all()
    assert new.std.isnan().all()
