"""The Bayesian synapse of Aitchison et al. (2021; eq. aitchison): the neuroscience relative of MESU.

    d_mu      = -sigma^2 * x f / s_delta^2    - 1/tau (mu      - mp)
    d_sigma^2 = -sigma^4 * x^2 / s_delta^2    - 2/tau (sigma^2 - sp^2)

In a network, x f / s_delta^2 is the gradient g_mu of the cost, and x^2 / s_delta^2 its curvature, which by Stein's
lemma is g_sigma / sigma. Unlike MESU, forgetting runs on a fixed clock tau, whatever sigma is.
"""

from typing import NamedTuple

from mesu.rules import checks
from mesu.rules.bounds import trust_region
from mesu.rules.gaussian import Gaussian
from mesu.rules.primitives import root


class Constants(NamedTuple):
    """What one step needs besides the posterior and its gradients."""

    rate: float  # 1/tau, the share of the way to the prior taken by one update
    prior_mean: float  # mu_prior
    prior_var: float  # sigma_prior^2
    max_step: float | None  # trust region in units of sigma; None is off


def constants(
    tau: float,
    prior_mean: float = 0.0,
    prior_std: float = 1.0,
    max_step: float | None = None,
) -> Constants:
    """Check the settings a user gives and turn them into `Constants`."""
    if not checks.number("tau", tau) > 2:
        raise ValueError(f"tau must be greater than 2 updates, or sigma^2 would jump past the prior's: got {tau!r}")
    return Constants(
        rate=1.0 / tau,
        prior_mean=checks.finite("prior_mean", prior_mean),
        prior_var=1.0 / checks.precision(prior_std),
        max_step=checks.step_limit(max_step),
    )


def idle(c):
    """Constants that move nothing where there is no gradient: an endless clock."""
    return c._replace(rate=0.0)


def step(q, g, c):
    """Both lines of eq. aitchison, the second on the variance. A large gradient can make the variance negative."""
    var = q.std * q.std
    mean = q.mean - var * g.mean - c.rate * (q.mean - c.prior_mean)
    new_var = var - var * q.std * g.std - 2.0 * c.rate * (var - c.prior_var)
    return trust_region(q, Gaussian(mean, root(new_var)), c.max_step)
