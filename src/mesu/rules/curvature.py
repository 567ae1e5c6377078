"""Where the curvature h of the cost is known, and not drawn: the estimator "linear".

By Stein's lemma g_sigma = sigma E[H]. A rule solves implicit equations: the gradient that it asks for is the one at the sigma
after the step. Drawn gradients are only known at the old sigma. A curvature is the same at both. Any rule can be given

    g_sigma = sigma' h        1/sigma'^2 = 1/sigma^2 + h                                   (`gradient_of_sigma`)

MESU need not go that way (`step`). With g_sigma = sigma' h, its implicit equations are linear in the precision,

    1/sigma'^2 = (1 - L/N) / sigma^2 + L / (N sp^2) + L h          L = lr_std
    mu'        = mu - lr_mean * sigma'^2 * ( g_mu + (mu - mp) / (N sp^2) )

which with rates of 1 is Bayes' rule on a linear regression, with forgetting too. A rate L on sigma has the meaning that it has
in `mesu.rules.mesu`: h -> L h and 1/N -> L/N, as if sigma saw every example L times.

`step` takes h, which must not be negative, in place of sigma's gradient. Its constants are those of another rule, by whose part
`for_curvature` they are made.
"""

from typing import Any, NamedTuple

from mesu.rules.bounds import close_by, near, no_wider
from mesu.rules.gaussian import Gaussian
from mesu.rules.primitives import between, root

# One update changes a precision by at most this factor: sigma by 1e9, as in `mesu.rules.mesu`
LIMIT = 1e18


class Constants(NamedTuple):
    """What one step needs besides the posterior, the gradient and the curvature; rates are multiplied in, once for a layer."""

    rate_mean: Any  # how many times the gradient counts: lr_mean
    rate_std: Any  # how many times the curvature counts: lr_std
    keep: Any  # share of its precision that sigma keeps: 1 - lr_std / N
    pull_mean: Any  # lr_mean / (N sigma_prior^2)
    pull_std: Any  # precision gained back from the prior: lr_std / (N sigma_prior^2)
    prior_mean: Any  # where an unused mean relaxes to
    max_step: Any  # trust region, as in `mesu.rules.bounds`; None is off
    max_std: Any  # sigma is never wider; None is off
    narrow: Any  # precision that narrows the trust region of the mean; None: in sigmas


def gradient_of_sigma(std, h):
    """The gradient at the sigma that the evidence leaves."""
    evidence = between(std * std * h, 0.0, LIMIT)
    return evidence / (std * root(1.0 + evidence))


def gain(std, h, c):
    """The precision after the step, in units of that before it."""
    return c.keep + (c.rate_std * h + c.pull_std) * (std * std)


def moved(q, g, c, gained):
    """Bayes' rule, for a precision that has changed by the factor `gained`."""
    std = q.std / root(gained)
    slope = c.rate_mean * g.mean + c.pull_mean * (q.mean - c.prior_mean)
    return Gaussian(q.mean - std * std * slope, std)


def step(q, g, c):
    """The step of MESU for a curvature ``g.std``, within the trust region. No curvature makes sigma negative."""
    new = moved(q, g, c, between(gain(q.std, g.std, c), 1.0 / LIMIT, LIMIT))
    std = no_wider(near(new.std, q.std, c.max_step), c.max_std)
    return Gaussian(close_by(new.mean, q.mean, q.std, c.max_step, c.narrow), std)


def uncut_step(q, g, c):
    """The same without bounds, which takes less time: for weights of which `may_be_cut` says that none is near a bound."""
    return moved(q, g, c, gain(q.std, g.std, c))


def may_be_cut(q, g, c):
    """Whether a bound may cut the step of a weight whose |mean|, sigma, |gradient| and curvature are at most these numbers.

    The precision is multiplied by at least `keep` and at most by the `gain` of these numbers, and the mean moves by at most
    sigma^2 / keep times the largest slope. All of it is compared in squares.
    """
    var, most = q.std * q.std, gain(q.std, g.std, c)
    slope = c.rate_mean * g.mean + c.pull_mean * (q.mean + abs(c.prior_mean))
    furthest = var * slope * slope * widening(var, c.narrow)  # in drawn sigmas, squared, times keep^2
    free = most <= LIMIT and c.keep * LIMIT >= 1.0
    free = free and stays_near(most, c.keep, furthest, c.max_step) and stays_below(var, c.keep, c.max_std)
    return not free  # NaN is not free


def widening(var, narrow):
    """How many times greater a variance is than that which weights are drawn with."""
    if narrow is None:
        return 1.0
    return 1.0 + narrow * var


def stays_near(most, least, furthest, max_step):
    """Whether the trust region holds all steps that change the precision by such factors and move the mean so far."""
    if max_step is None:
        return True
    shrunk = 0.5 * (1.0 - max_step + abs(1.0 - max_step))  # a max_step of 1 or more lets sigma shrink to nothing
    grown, limit = 1.0 + max_step, max_step * least
    return most * shrunk * shrunk <= 1.0 and least * grown * grown >= 1.0 and furthest <= limit * limit


def stays_below(var, least, max_std):
    """Whether a variance that grows by this much stays that of a sigma below the widest."""
    if max_std is None:
        return True
    return var <= max_std * max_std * least


# A residual counts as at most this many standard deviations of what was believed of it: with less, the real errors of skewed
# streams are cut off (river flow, prices); see benchmarks/streams
FURTHEST = 5.0
# The most that one weight may have of the variance of an output: all of it would leave it without any of its own
MOST = 1.0 - 1e-6


def share_of_joint_step(std, g_mean, h):
    """What to give an elementwise rule so that each weight makes its part of a joint step on all of them.

    A joint step on an output of variance S moves a mean by sigma^2 g_mu and leaves the variance sigma^2 (1 - sigma^2 h), with
    both gradients divided by S. A rule divides by 1 + sigma^2 h' by itself; with h' = h / (1 - sigma^2 h) that is the same.
    """
    alone = 1.0 / (1.0 - between(std * std * h, 0.0, MOST))
    return Gaussian(g_mean * alone, h * alone)
