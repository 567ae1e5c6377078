"""Bayes by Backprop against its equations, worked in sixty digits."""

from hypothesis import given
from tests.equations.cases import R, agree, cases, moved, powers, total

from mesu.rules import bayes_by_backprop


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
