"""Every rule against its equations, worked in sixty digits or by finding the root that the equations define."""

from dataclasses import dataclass
from math import inf, isnan, log10

import mpmath
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import mesu as library
from mesu.rules import (
    Gaussian,
    bayes_by_backprop,
    bayesian_synapse,
    ewc,
    ewc_online,
    ewc_stream,
    foovb,
    mesu,
    newton,
    sgd,
    si,
)

real = mpmath.MPContext()
real.dps = 60
R = real.mpf

LARGEST_H = 1e9  # the exact form keeps |sigma * g_sigma * lr_std / 2| below this; equations hold up to there


# -- what is drawn ----------------------------------------------------------------------------------------------------


def powers(low, high):
    """Numbers spread evenly over the orders of magnitude between 10^low and 10^high."""
    return st.floats(low, high).map(lambda e: 10.0**e)


def signed(low, high):
    """Zero, or a number of either sign between 10^low and 10^high in size."""
    return st.one_of(st.just(0.0), st.builds(lambda s, x: s * x, st.sampled_from([-1.0, 1.0]), powers(low, high)))


sigmas = powers(-6, 3)
means = signed(-6, 3)
gradients = st.one_of(signed(-30, 12), signed(-3, 4))  # of any size, and of the size that decides something
prior_stds = powers(-3, 3)
rates = st.one_of(st.sampled_from([0.0, 1.0]), powers(-6, log10(200)))
trust = st.one_of(st.none(), powers(-3, 1))


@dataclass(frozen=True)
class Case:
    """One weight, its gradients and the settings of a posterior rule."""

    mu: float
    sigma: float
    g_mu: float
    g_sigma: float
    memory: float
    prior_mean: float
    prior_std: float
    lr_mean: float
    lr_std: float
    max_step: float | None

    def constants(self):
        return mesu.constants(
            self.memory, self.prior_mean, self.prior_std, self.lr_mean, self.lr_std, max_step=self.max_step
        )

    def exact_numbers(self):
        """mu, sigma, g_mu, g_sigma, 1/N, mp, sp, lr_mean, lr_std in sixty digits."""
        forget = R(0) if self.memory == inf else 1 / R(self.memory)
        others = (self.mu, self.sigma, self.g_mu, self.g_sigma)
        return *map(R, others), forget, R(self.prior_mean), R(self.prior_std), R(self.lr_mean), R(self.lr_std)


@st.composite
def cases(draw, rate=rates, memory=None, max_step=trust):
    lr_mean, lr_std = draw(rate), draw(rate)
    # at least 1 % above the rates: nearer, 1 - lr/N loses digits in any float
    smallest = max(1.5, 1.01 * max(lr_mean, lr_std))
    window = st.one_of(st.just(inf), powers(log10(smallest) + 1e-6, 15)) if memory is None else memory
    return Case(
        mu=draw(means),
        sigma=draw(sigmas),
        g_mu=draw(gradients),
        g_sigma=draw(gradients),
        memory=draw(window),
        prior_mean=draw(means),
        prior_std=draw(prior_stds),
        lr_mean=lr_mean,
        lr_std=lr_std,
        max_step=draw(max_step),
    )


# -- how results are compared -----------------------------------------------------------------------------------------


def tensor(x):
    return torch.tensor([x], dtype=torch.float64)


def moved(rule, case, constants):
    """The rule's new mean and std, from float64 tensors."""
    new = rule(
        Gaussian(tensor(case.mu), tensor(case.sigma)), Gaussian(tensor(case.g_mu), tensor(case.g_sigma)), constants
    )
    assert new.mean.dtype == new.std.dtype == torch.float64
    return new.mean.item(), new.std.item()


def total(*terms):
    """A sum and the sum of the sizes of its terms: rounding is a share of the latter."""
    return sum(terms, R(0)), sum(map(abs, terms), R(0))


def close(actual, expected, size, share=1e-13):
    assert abs(R(actual) - expected) <= share * size, (actual, float(expected), float(size))


def close_within(actual, old, reach, expected, size, share=1e-13):
    """`actual` is `expected`, or lies `reach` away from `old` in its direction if that is nearer (None: no limit)."""
    step = expected - old
    if reach is None or abs(step) <= reach:
        close(actual, expected, size, share)
    elif abs(step) - reach > share * size:
        close(actual, old + real.sign(step) * reach, abs(old) + reach, 1e-15)


def agree(actual, case, mean, std, share=1e-13):
    """Both new values are those of the equations, clipped to +-max_step * sigma where that is set."""
    reach = None if case.max_step is None else R(case.max_step) * R(case.sigma)
    close_within(actual[0], R(case.mu), reach, *mean, share)
    close_within(actual[1], R(case.sigma), reach, *std, share)


# -- MESU --------------------------------------------------------------------------------------------------------------


def by_eq_9_and_10(case):
    """Eq. 9 and 10 of the paper, each line multiplied by its rate."""
    mu, s, g_mu, g_s, forget, mp, sp, lr_mean, lr_std = case.exact_numbers()
    mean = total(
        mu, -lr_mean * s**2 * g_mu, lr_mean * s**2 * forget / sp**2 * mp, -lr_mean * s**2 * forget / sp**2 * mu
    )
    std = total(s, -lr_std * s**2 / 2 * g_s, lr_std * forget * s / 2, -lr_std * forget * s**3 / (2 * sp**2))
    return mean, std


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


def inside_limit(case):
    return abs(case.sigma * case.g_sigma * case.lr_std / 2) < LARGEST_H


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


any_memory = st.one_of(st.just(inf), powers(log10(1.001), 15))
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


@given(cases(rate=st.just(1.0), memory=powers(log10(1.5), 15)))
def test_newton_with_gamma_one_over_n_is_mesu(case):
    constants = newton.constants(1 / case.memory, case.memory, case.prior_mean, case.prior_std, case.max_step)
    agree(moved(newton.step, case, constants), case, *by_eq_9_and_10(case))


@given(cases(memory=powers(log10(1.5), 15)), powers(-15, -0.01))
def test_newton_is_eq_13_and_14(case, gamma):
    mu, s, g_mu, g_s, forget, mp, sp, *_ = case.exact_numbers()
    rate = R(gamma) / forget
    mean = total(mu, -rate * s**2 * g_mu, rate * s**2 * forget / sp**2 * mp, -rate * s**2 * forget / sp**2 * mu)
    std = total(s, -rate / 2 * s**2 * g_s, rate / 2 * s * forget, -rate / 2 * s**3 * forget / sp**2)
    constants = newton.constants(gamma, case.memory, case.prior_mean, case.prior_std, case.max_step)
    agree(moved(newton.step, case, constants), case, mean, std)


# -- the other posterior rules ----------------------------------------------------------------------------------------


@given(cases(), powers(-6, 0))
def test_bayes_by_backprop_descends_cost_plus_kl(case, weight):
    mu, s, g_mu, g_s, _, mp, sp, lr, _ = case.exact_numbers()
    # KL[N(mu, s^2) || N(mp, sp^2)] = log(sp/s) + (s^2 + (mu - mp)^2) / (2 sp^2) - 1/2
    kl_mu = (mu - mp) / sp**2
    size_mu = (abs(mu) + abs(mp)) / sp**2
    mean = mu - lr * g_mu - lr * R(weight) * kl_mu, abs(mu) + lr * (abs(g_mu) + R(weight) * size_mu)
    std = total(s, -lr * g_s, -lr * R(weight) * s / sp**2, lr * R(weight) / s)
    constants = bayes_by_backprop.constants(case.lr_mean, weight, case.prior_mean, case.prior_std, case.max_step)
    agree(moved(bayes_by_backprop.step, case, constants), case, mean, std)


@given(cases(), powers(log10(2.001), 15), signed(-30, 3))
def test_bayesian_synapse_is_its_equation(case, tau, curvature):
    mu, s, g_mu, _, _, mp, sp, *_ = case.exact_numbers()
    mean = total(mu, -(s**2) * g_mu, -mu / R(tau), mp / R(tau))
    # the curvature x^2 / s_delta^2 is g_sigma / sigma
    case = Case(**{**case.__dict__, "g_sigma": curvature * case.sigma})
    var = total(s**2, -(s**4) * (R(case.g_sigma) / s), -2 / R(tau) * s**2, 2 / R(tau) * sp**2)
    assume(abs(var[0]) > 1e-10 * var[1])  # nearer to zero, the sign of the variance is a matter of rounding
    constants = bayesian_synapse.constants(tau, case.prior_mean, case.prior_std, case.max_step)
    new = moved(bayesian_synapse.step, case, constants)
    if var[0] < 0:
        assert isnan(new[1])
    else:
        root = real.sqrt(var[0])
        agree(new, case, mean, (root, root + var[1] / root))


def test_a_bayesian_synapse_of_negative_variance_is_refused():
    mean, std = torch.nn.Parameter(tensor(0.5)), torch.nn.Parameter(tensor(1.0))
    mean.grad, std.grad = tensor(0.0), tensor(2.0)
    with pytest.raises(library.StepRefused):
        library.BayesianSynapse([(mean, std)], tau=10.0).step()
    assert (mean.item(), std.item()) == (0.5, 1.0)


# -- rules of plain weights -------------------------------------------------------------------------------------------

weights = signed(-6, 3)
importances = st.one_of(st.just(0.0), powers(-9, 6))
strengths = st.one_of(st.just(0.0), powers(-9, 4))
decays = st.one_of(st.sampled_from([0.0, 1.0]), powers(-6, 0))


@given(weights, gradients, rates)
def test_sgd(w, g, lr):
    new, state = sgd.step(tensor(w), tensor(g), sgd.initial(tensor(w)), sgd.constants(lr))
    close(new.item(), *total(R(w), -R(lr) * R(g)))
    assert state == sgd.State()


tasks = st.lists(st.tuples(importances, weights), max_size=6)


@given(tasks, weights, gradients, rates, strengths)
def test_ewc_has_one_penalty_for_every_task(tasks, w, g, lr, strength):
    c = ewc.constants(lr, strength)
    state = ewc.initial(tensor(w))
    for fisher, anchor in tasks:
        state = ewc.consolidate(tensor(anchor), state, tensor(fisher), c)
    # d/dw of lambda/2 sum_k F_k (w - w_k)^2, the list kept as it is
    penalty = sum((R(strength) * R(f) * (R(w) - R(a)) for f, a in tasks), R(0))
    size = abs(R(g)) + sum((R(strength) * R(f) * (abs(R(w)) + abs(R(a))) for f, a in tasks), R(0))
    close(ewc.penalised(tensor(w), tensor(g), state, c).item(), R(g) + penalty, size)
    new, after = ewc.step(tensor(w), tensor(g), state, c)
    close(new.item(), R(w) - R(lr) * (R(g) + penalty), abs(R(w)) + R(lr) * size)
    assert after == state


@given(tasks, weights, gradients, rates, strengths, decays)
def test_ewc_online_has_one_fading_penalty(tasks, w, g, lr, strength, decay):
    c = ewc_online.constants(lr, strength, decay)
    state = ewc_online.initial(tensor(w))
    importance, anchor = R(0), R(w)
    for fisher, end in tasks:
        state = ewc_online.consolidate(tensor(end), state, tensor(fisher), c)
        importance, anchor = R(decay) * importance + R(fisher), R(end)
    close(state.importance.item(), importance, importance)
    assert state.anchor.item() == float(anchor)
    pull = R(strength) * importance
    new, after = ewc_online.step(tensor(w), tensor(g), state, c)
    size = abs(R(w)) + R(lr) * (abs(R(g)) + pull * (abs(R(w)) + abs(anchor)))
    close(new.item(), R(w) - R(lr) * (R(g) + pull * (R(w) - anchor)), size)
    assert after == state


@given(weights, weights, importances, gradients, rates, strengths, decays)
def test_ewc_stream_renews_its_penalty_at_every_step(w, anchor, importance, g, lr, strength, decay):
    c = ewc_stream.constants(lr, strength, decay)
    state = ewc_stream.State(tensor(importance), tensor(anchor))
    new, after = ewc_stream.step(tensor(w), tensor(g), state, c)
    pull = R(strength) * R(importance)
    size = abs(R(w)) + R(lr) * (abs(R(g)) + pull * (abs(R(w)) + abs(R(anchor))))
    close(new.item(), R(w) - R(lr) * (R(g) + pull * (R(w) - R(anchor))), size)
    close(after.importance.item(), *total(R(decay) * R(importance), R(g) ** 2))
    assert after.anchor.item() == w  # before the step, not after it


@given(weights, gradients, rates, strengths, decays)
def test_the_first_step_of_every_weight_rule_is_sgd(w, g, lr, strength, decay):
    expected = sgd.step(tensor(w), tensor(g), sgd.State(), sgd.constants(lr))[0]
    for file, c in (
        (ewc, ewc.constants(lr, strength)),
        (ewc_online, ewc_online.constants(lr, strength, decay)),
        (ewc_stream, ewc_stream.constants(lr, strength, decay)),
        (si, si.constants(lr, strength)),
    ):
        assert file.step(tensor(w), tensor(g), file.initial(tensor(w)), c)[0].item() == expected.item()


@given(weights, weights, importances, signed(-6, 6), gradients, rates, strengths)
def test_si_step(w, anchor, importance, path, g, lr, strength):
    c = si.constants(lr, strength, damping=0.5)
    state = si.State(tensor(importance), tensor(anchor), tensor(path))
    new, after = si.step(tensor(w), tensor(g), state, c)
    # d/dw of c Omega (w - w*)^2, which has no half to cancel the two
    pull = 2 * R(strength) * R(importance)
    step = -R(lr) * (R(g) + pull * (R(w) - R(anchor)))
    size = abs(R(w)) + R(lr) * (abs(R(g)) + pull * (abs(R(w)) + abs(R(anchor))))
    close(new.item(), R(w) + step, size)
    close(after.path.item(), R(path) - R(g) * step, abs(R(path)) + abs(R(g)) * size)
    assert (after.importance, after.anchor) == (state.importance, state.anchor)


@given(weights, weights, importances, signed(-6, 6), powers(-6, 1))
def test_si_consolidation(w, anchor, importance, path, damping):
    state = si.State(tensor(importance), tensor(anchor), tensor(path))
    after = si.consolidate(tensor(w), state, si.constants(0.1, 1.0, damping))
    distance, rounding = (R(w) - R(anchor)) ** 2, (abs(R(w)) + abs(R(anchor))) * abs(R(w) - R(anchor))
    gain = max(R(0), R(path) / (distance + R(damping)))
    close(
        after.importance.item(), R(importance) + gain, R(importance) + gain * (1 + rounding / (distance + R(damping)))
    )
    assert after.anchor.item() == w
    assert after.path.item() == 0.0


def test_si_path_is_the_fall_of_the_loss():
    # on a slope that is the same everywhere, what the path collects is exactly how far the loss fell
    c = si.constants(lr=0.25, strength=3.0)
    w = start = tensor(2.0)
    state = si.initial(w)
    for _ in range(8):
        w, state = si.step(w, tensor(1.5), state, c)
    assert state.path.item() == pytest.approx(1.5 * (start - w).item(), rel=1e-14)
    assert si.consolidate(w, state, c).importance.item() == pytest.approx(4.5 / (9.0 + 1.0), rel=1e-14)


# -- optimisers run their rules ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_step", [None, 0.3])
@pytest.mark.parametrize(
    ("optimizer", "settings", "rule"),
    [
        (library.MESU, {"memory": 10.0, "prior_mean": 0.2, "prior_std": 0.7}, mesu.exact),
        (library.MESU, {"memory": 10.0, "lr_mean": 2.0, "lr_std": 0.5, "update": "paper"}, mesu.paper),
        (library.FOOVB, {"lr_mean": 0.5, "lr_std": 2.0}, foovb.step),
        (library.BayesByBackprop, {"lr": 0.1, "weight": 0.2, "prior_std": 0.7}, bayes_by_backprop.step),
        (library.BayesianSynapse, {"tau": 10.0, "prior_mean": 0.2, "prior_std": 0.7}, bayesian_synapse.step),
    ],
)
def test_an_optimiser_moves_by_its_rule(optimizer, settings, rule, max_step):
    start, slope = Gaussian(tensor(0.3), tensor(0.8)), Gaussian(tensor(1.5), tensor(0.9))
    file = {library.FOOVB: foovb, library.BayesByBackprop: bayes_by_backprop, library.BayesianSynapse: bayesian_synapse}
    constants = {name: value for name, value in settings.items() if name != "update"}
    expected = rule(start, slope, file.get(optimizer, mesu).constants(**constants, max_step=max_step))
    mean, std = (torch.nn.Parameter(value.clone()) for value in start)
    mean.grad, std.grad = slope
    optimizer([(mean, std)], **settings, max_step=max_step).step()
    assert (mean.item(), std.item()) == (expected.mean.item(), expected.std.item())
