"""Bayes by Backprop (Blundell et al., 2015; eq. blundell1): one learning rate for every mean and every sigma.

    d_sigma = -alpha dC'/dsigma          d_mu = -alpha dC'/dmu

with C' = C + kl_weight * KL[q || prior], the cost of the mini-batch plus its share of the distance to the prior,

    dKL/dmu = (mu - mp) / sp^2           dKL/dsigma = sigma / sp^2 - 1 / sigma

What MESU replaces: here nothing scales a step by the weight's own uncertainty.
"""

from typing import NamedTuple

from mesu.rules import checks
from mesu.rules.bounds import trust_region
from mesu.rules.gaussian import Gaussian


class Constants(NamedTuple):
    """What one step needs besides the posterior and its gradients."""

    lr: float  # alpha
    kl_weight: float  # share of the KL term in one update; 1 / (number of mini-batches) in the original
    prior_mean: float  # mu_prior
    prior_precision: float  # 1 / sigma_prior^2
    max_step: float | None  # trust region in units of sigma; None is off


def constants(
    lr: float,
    kl_weight: float = 0.0,
    prior_mean: float = 0.0,
    prior_std: float = 1.0,
    max_step: float | None = None,
) -> Constants:
    """Check the settings a user gives and turn them into `Constants`."""
    return Constants(
        lr=checks.non_negative("lr", lr),
        kl_weight=checks.non_negative("kl_weight", kl_weight),
        prior_mean=checks.finite("prior_mean", prior_mean),
        prior_precision=checks.precision(prior_std),
        max_step=checks.step_limit(max_step),
    )


def idle(c):
    """Constants that move nothing."""
    return c._replace(lr=0.0, kl_weight=0.0)


def step(q, g, c):
    """Plain gradient descent on C'."""
    mean = q.mean - c.lr * (g.mean + c.kl_weight * c.prior_precision * (q.mean - c.prior_mean))
    std = q.std - c.lr * (g.std + c.kl_weight * (c.prior_precision * q.std - 1.0 / q.std))
    return trust_region(q, Gaussian(mean, std), c.max_step)
