"""MESU: each weight's variance is its own learning rate, and old evidence fades over a memory of N updates.

With v = sigma^2, prior N(mp, sp^2) and all right-hand sides from the old values, the paper's rule (eq. 9-10) is

    d_sigma = lr_std  * 1/2 * ( -v * g_sigma + sigma * (sp^2 - v) / (N * sp^2) )          eq. 9
    d_mu    = lr_mean *       ( -v * g_mu    + v * (mp - mu)      / (N * sp^2) )          eq. 10

It is the first order of two implicit equations (Methods, "Update rules") that have a closed-form solution, which is
`exact`: let the precision decay by 1/N towards the prior's, then solve the quadratic in the new sigma,

    a      = (1 - 1/N) / sigma^2 + 1 / (N * sp^2)
    sigma' = 2 / ( g_sigma + sqrt(g_sigma^2 + 4 a) )                                      > 0 for every gradient
    mu'    = mu - lr_mean * V * ( g_mu + (mu - mp) / (N * sp^2) )

with V = 1/a, the variance before the example (`exact_plain`; with no forgetting this is FOO-VB Diagonal), or
V = min(1/a, sigma'^2), the smaller of the variances before and after it, as a Kalman filter does (`exact`): the mean
then cannot overshoot where the example itself says that the curvature is high. A learning rate L on sigma enters as
g_sigma -> L * g_sigma and 1/N -> L/N.

Where the curvature of the cost is known, and not drawn, `mesu.rules.curvature` has the step (`for_curvature`).
"""

from math import inf
from typing import NamedTuple

from mesu.rules import checks, curvature
from mesu.rules.bounds import narrower, near, no_wider, reach, within
from mesu.rules.gaussian import Gaussian
from mesu.rules.primitives import between, root

# One example may change sigma by at most a factor of about 2e9: keeps h*h inside float32.
LIMIT = 1e9


class Constants(NamedTuple):
    """What one MESU step needs besides the posterior and its gradients."""

    lr_mean: float  # alpha_mu; 1 in the Bayesian derivation
    lr_std: float  # alpha_sigma, in front of eq. 9 with its half; 1 in the Bayesian derivation
    prior_mean: float  # mu_prior, where an unused mean relaxes to
    forget: float  # 1/N, the share of the evidence released by one update
    pull: float  # 1/(N sigma_prior^2), the precision gained back from the prior by one update
    max_step: float | None  # trust region in units of sigma; None is off
    max_std: float | None  # sigma is never wider; None is off
    narrow: float | None = None  # precision that narrows the trust region of the mean (`bounds.reach`); None: in sigmas
    pull_start: float = 0.0  # as pull, for a prior as wide as each weight's start: in units of that start's precision


def constants(
    memory: float,
    prior_mean: float = 0.0,
    prior_std: float | str = 1.0,
    lr_mean: float = 1.0,
    lr_std: float = 1.0,
    max_step: float | None = None,
    max_std: float | None = None,
    narrowing: float = 1.0,
) -> Constants:
    """Check the settings a user gives and turn them into `Constants`.

    A prior_std of ``"start"`` and a narrowing other than 1 depend on where each weight started: they are given in units of that
    start's precision, and `scaled` makes them those of a weight.

    Raises:
        ValueError: naming the setting, its value and what it should be.
    """
    memory = checks.memory_window(memory)
    at_start = isinstance(prior_std, str) and prior_std == "start"
    if isinstance(prior_std, str) and not at_start:
        raise ValueError(f"prior_std must be a number, got {prior_std!r}: 'start' is the only word that it knows")
    precision = 1.0 if at_start else checks.precision(prior_std)  # type: ignore[arg-type]
    lr_mean = checks.non_negative("lr_mean", lr_mean)
    lr_std = checks.non_negative("lr_std", lr_std)
    if max(lr_mean, lr_std) >= memory:
        raise ValueError(
            f"memory must be greater than lr_mean and lr_std, or one update would forget everything: "
            f"got memory={memory!r}, lr_mean={lr_mean!r}, lr_std={lr_std!r}"
        )
    pull = 0.0 if memory == inf else precision / memory
    if checks.finite("narrowing", narrowing) < 1:
        raise ValueError(f"narrowing must be 1 (draws as wide as sigma) or more, got {narrowing!r}")
    return Constants(
        lr_mean=lr_mean,
        lr_std=lr_std,
        prior_mean=checks.finite("prior_mean", prior_mean),
        forget=0.0 if memory == inf else 1.0 / memory,
        pull=0.0 if at_start else pull,
        max_step=checks.step_limit(max_step),
        max_std=checks.widest(max_std),
        narrow=None if narrowing == 1 else float(narrowing) - 1.0,
        pull_start=pull if at_start else 0.0,
    )


def scaled(c, precision):
    """The constants of a weight that started with this precision, 1/sigma_0^2."""
    return Constants(
        c.lr_mean,
        c.lr_std,
        c.prior_mean,
        c.forget,
        c.pull + c.pull_start * precision,
        c.max_step,
        c.max_std,
        narrower(c.narrow, precision),
        0.0,
    )


def for_curvature(c):
    """The constants of the step for a curvature that is known (`mesu.rules.curvature`), of the `exact` form."""
    return curvature.Constants(
        c.lr_mean,
        c.lr_std,
        1.0 - c.lr_std * c.forget,
        c.lr_mean * c.pull,
        c.lr_std * c.pull,
        c.prior_mean,
        c.max_step,
        c.max_std,
        c.narrow,
    )


def idle(c):
    """Constants that move nothing: rates of zero, and no bound that a sigma could meet."""
    return c._replace(lr_mean=0.0, lr_std=0.0, max_std=None if c.max_std is None else inf)


def keeps_positive(reach, c):
    """Whether no sigma can turn negative while sigma * g_sigma is between 0 and `reach`: eq. 9 takes half of it off."""
    return 0.5 * c.lr_std * reach < 0.5


def paper(q, g, c):
    """Eq. 9 and 10 as printed. Large gradients can make sigma negative: see `exact`, or set `max_step` below 1."""
    # eq. 10: the mean moves by its own variance; forgetting pulls it to the prior
    d_mean = c.lr_mean * q.std * (g.mean + (q.mean - c.prior_mean) * c.pull)
    # eq. 9: evidence narrows sigma, forgetting widens it again towards the prior's
    d_std = 0.5 * c.lr_std * (q.std * g.std + c.pull * (q.std * q.std) - c.forget)
    std = no_wider(q.std - q.std * within(d_std, c.max_step), c.max_std)
    return Gaussian(q.mean - q.std * within(d_mean, reach(q.std, c.max_step, c.narrow)), std)


def solve(q, g, c):
    """The new sigma of the implicit equation, and the smaller variance of before and after in units of the old one.

    In units of the old sigma, with h = sigma * g_sigma / 2 and a the precision after forgetting, the new sigma is
    1 / (h + sqrt(h^2 + a)). Written with k = |h| + sqrt(h^2 + a), nothing cancels: it is k / e with e = a + (h + |h|) k, and
    the smaller variance, min(1/a, sigma'^2), is 1 / e.
    """
    a = 1.0 - c.lr_std * c.forget + c.lr_std * c.pull * (q.std * q.std)
    h = between(0.5 * c.lr_std * q.std * g.std, -LIMIT, LIMIT)  # a product that overflows is past the limit too
    k = abs(h) + root(h * h + a)
    var = 1.0 / (a + (h + abs(h)) * k)
    std = near(q.std * k * var, q.std, c.max_step)  # sigma first: small changes then round weight by weight
    return no_wider(std, c.max_std), var


def exact(q, g, c):
    """The closed form, its mean damped by the variance after the example. The library's default."""
    std, var = solve(q, g, c)
    d_mean = c.lr_mean * (q.std * var) * (g.mean + (q.mean - c.prior_mean) * c.pull)
    return Gaussian(q.mean - q.std * within(d_mean, reach(q.std, c.max_step, c.narrow)), std)


def exact_plain(q, g, c):
    """The closed form as the implicit equations have it: the mean moves by the variance before the example."""
    std, _ = solve(q, g, c)
    a = 1.0 - c.lr_mean * c.forget + c.lr_mean * c.pull * (q.std * q.std)
    d_mean = c.lr_mean * q.std / a * (g.mean + (q.mean - c.prior_mean) * c.pull)
    return Gaussian(q.mean - q.std * within(d_mean, reach(q.std, c.max_step, c.narrow)), std)


step = exact  # the form that `Constants` stand for; those of `mesu_paper`, `foovb` and `newton` stand for the others
