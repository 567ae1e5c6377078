"""The Newton form against eq. 13 and 14, and MESU as its special case."""

from math import log10

from hypothesis import given
from hypothesis import strategies as st
from tests.equations.cases import R, agree, by_eq_9_and_10, cases, moved, powers, total

from mesu.rules import newton


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
