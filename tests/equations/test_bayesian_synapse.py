"""The Bayesian synapse against its equation, worked in sixty digits."""

from math import isnan, log10

import pytest
import torch
from hypothesis import assume, given
from tests.equations.cases import Case, R, agree, cases, moved, powers, real, signed, tensor, total

import mesu as library
from mesu.rules import Gaussian, bayesian_synapse, mesu


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


@pytest.mark.parametrize("sigma", [0.02, 0.3, 2.0])
def test_mesu_is_a_bayesian_synapse_whose_clock_is_its_own_variance_with_half_the_pull_on_it(sigma):
    # without gradients, 1/tau = sigma^2 / (N sp^2): the means agree, the variance is pulled half as hard, to first order
    memory, prior_mean, prior_std = 1e6, -0.4, 0.8
    q, none = Gaussian(tensor(0.7), tensor(sigma)), Gaussian(tensor(0.0), tensor(0.0))
    tau = memory * prior_std**2 / sigma**2
    ours = mesu.paper(q, none, mesu.constants(memory, prior_mean, prior_std))
    theirs = bayesian_synapse.step(q, none, bayesian_synapse.constants(tau, prior_mean, prior_std))
    assert ours.mean.item() - 0.7 == pytest.approx(theirs.mean.item() - 0.7, rel=1e-6)
    moved_by = [new.std.item() ** 2 - sigma**2 for new in (ours, theirs)]
    assert abs(moved_by[0]) > 1e-12
    assert 2 * moved_by[0] == pytest.approx(moved_by[1], rel=1e-4)
