"""The Bayesian synapse against its equation, worked in sixty digits."""

from math import isnan, log10

import pytest
import torch
from hypothesis import assume, given
from tests.equations.cases import Case, R, agree, cases, moved, powers, real, signed, tensor, total

import mesu as library
from mesu.rules import bayesian_synapse


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
