"""MESU in deep networks, for a known curvature: Bayes' rule for sigma, and means that keep a pace.

In a deep network a weight's own curvature says little about how far the weight may go: all weights of all layers move at once,
and between layers gradients differ by orders of magnitude. The prior says nothing about either, so its precision has no part in
the rate of the mean. With p = 1/sigma'^2 the precision after the step (`mesu.rules.curvature`), and p_0 = 1/sigma_0^2 where the
weight began,

    E    = p - p_0                                       the evidence that the memory holds: a sum of curvatures
    mu'  = mu - g_mu / ( E + sqrt(E) / (pace * sigma_0) )                 at most FURTHEST * sigma_0 away
              - sigma'^2 * (mu - mp) / (N sp^2)                           forgetting, as ever

A curvature is the mean of squared gradients, so E is what gradients of typical size add up to in squares. While little is
known, the t-th typical gradient moves its weight by pace * sigma_0 / sqrt(t) in every layer, as with AdaGrad. Once sqrt(E)
is larger than 1 / (pace * sigma_0), the step is that of Bayes' rule with a prior that says nothing. What is held slows a weight
down, and what is forgotten makes it faster again.

Gradients of successive updates agree in the directions in which the cost falls, and cancel in those across the valley: the mean
makes the average of its last moves, of which each counts `momentum` times as much as the one after it.
"""

from typing import Any, NamedTuple

from mesu.rules import checks, mesu
from mesu.rules.bounds import no_wider
from mesu.rules.curvature import LIMIT
from mesu.rules.gaussian import Gaussian
from mesu.rules.primitives import between, root

FURTHEST = 0.045  # first sigmas that one step may be long: the first typical ones, and single outliers, would be longer
TINY = 1e-30  # keeps 0 / 0 from being NaN, for weights that no example has reached


class Constants(NamedTuple):
    """What one step needs besides the posterior, the gradient, the curvature and the state."""

    lr_mean: Any  # how many times the gradient counts
    lr_std: Any  # how many times the curvature counts
    prior_mean: Any  # where an unused mean relaxes to
    forget: Any  # 1/N
    pull: Any  # 1/(N sigma_prior^2)
    max_std: Any  # sigma is never wider; None is off
    pull_start: Any  # as pull, for a prior as wide as each weight's start: in units of that start's precision
    pace: Any  # length of a typical first step, in first sigmas
    momentum: Any  # 0 makes each move at once
    start: Any  # the precision that the weight began with, 1/sigma_0^2


class State(NamedTuple):
    """What is remembered of each weight."""

    velocity: Any  # the average of the mean's last moves


def constants(
    memory: float,
    prior_mean: float = 0.0,
    prior_std: float | str = "start",
    lr_mean: float = 1.0,
    lr_std: float = 1.0,
    max_std: float | None = None,
    pace: float = 0.1,
    momentum: float = 0.8,
) -> Constants:
    """Check the settings a user gives and turn them into `Constants`; those that `mesu.rules.mesu` has are the same there.

    Raises:
        ValueError: naming the setting, its value and what it should be.
    """
    c = mesu.constants(memory, prior_mean, prior_std, lr_mean, lr_std, max_std=max_std)
    if not 0 <= checks.finite("momentum", momentum) < 1:
        raise ValueError(f"momentum must be at least 0 and less than 1, got {momentum!r}")
    pace = checks.positive("pace", pace)
    return Constants(
        c.lr_mean, c.lr_std, c.prior_mean, c.forget, c.pull, c.max_std, c.pull_start, pace, float(momentum), 1.0
    )


def scaled(c, precision):
    """The constants of a weight that started with this precision, 1/sigma_0^2."""
    return c._replace(pull=c.pull + c.pull_start * precision, pull_start=0.0, start=precision)


def for_curvature(c):
    """The step is one for a curvature already."""
    return c


def initial(q):
    """At rest."""
    return State(velocity=0.0 * q.mean)


def step(q, g, state, c):
    """The step for a curvature ``g.std``, which must not be negative: it cannot make sigma negative."""
    var = q.std * q.std
    keep = 1.0 - c.lr_std * c.forget
    gained = between(keep + c.lr_std * (g.std + c.pull) * var, 1.0 / LIMIT, LIMIT)
    std = no_wider(q.std / root(gained), c.max_std)
    # in units of the first sigma; at least the evidence of this update, whatever rounding leaves of the sum
    evidence = larger(gained / (var * c.start) - 1.0, c.lr_std * g.std / c.start)
    first = 1.0 / root(c.start)
    slowness = c.pace * evidence + root(evidence) + TINY
    move = first * between(c.pace * first * g.mean / slowness, -FURTHEST, FURTHEST)
    pulled = std * std * c.pull * (q.mean - c.prior_mean)
    velocity = c.momentum * state.velocity - (1.0 - c.momentum) * c.lr_mean * (move + pulled)
    return Gaussian(q.mean + velocity, std), State(velocity)


def larger(a, b):
    """The larger of two numbers."""
    return 0.5 * (a + b + abs(a - b))
