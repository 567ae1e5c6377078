"""MESU in deep networks, for a known curvature: Bayes' rule for sigma, and means that keep a pace.

In a deep network a weight's own curvature says little about how far the weight may go: all weights of all layers move at once,
and between layers gradients differ by orders of magnitude. The prior says nothing about either, so its precision has no part in
the rate of the mean. With p = 1/sigma'^2 the precision after the step (`mesu.rules.curvature`), p_0 = 1/sigma_0^2 where the
weight began, and n the number of updates that the memory still holds,

    E    = p - p_0                             the evidence: the sum of the n curvatures that are held
    r    = sqrt(E / n)                         the size of a typical gradient: a curvature is the mean of squared ones
    mu'  = mu - g_mu / ( E + r / (pace * sigma_0) )            at most 3 * pace * sigma_0 away
                - sigma'^2 * (mu - mp) / (N sp^2)              forgetting, as ever

While little is known, a typical gradient moves its weight by pace * sigma_0, in every layer alike. Once E is larger than
r / (pace * sigma_0), the step is that of Bayes' rule with a prior that says nothing.

The gradients of successive updates agree in the directions in which the cost falls, and cancel in those across the valley: the
mean makes the average of its last moves, of which each counts `momentum` times as much as the one after it.
"""

from typing import Any, NamedTuple

from mesu.rules import checks, mesu
from mesu.rules.bounds import no_wider
from mesu.rules.curvature import LIMIT
from mesu.rules.gaussian import Gaussian
from mesu.rules.primitives import between, root

FURTHEST = 3.0  # typical steps that one step may be long
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
    held: Any  # updates that the memory holds


def constants(
    memory: float,
    prior_mean: float = 0.0,
    prior_std: float | str = "start",
    lr_mean: float = 1.0,
    lr_std: float = 1.0,
    max_std: float | None = None,
    pace: float = 0.015,
    momentum: float = 0.9,
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
    """At rest, with nothing held."""
    return State(velocity=0.0 * q.mean, held=0.0 * q.mean)


def step(q, g, state, c):
    """The step for a curvature ``g.std``, which must not be negative: it cannot make sigma negative."""
    var = q.std * q.std
    kept = 1.0 - c.lr_std * c.forget
    gained = between(kept + c.lr_std * (g.std + c.pull) * var, 1.0 / LIMIT, LIMIT)
    std = no_wider(q.std / root(gained), c.max_std)
    held = kept * state.held + c.lr_std
    # in units of the first sigma: the evidence, at least that of this update, whatever rounding leaves of the sum
    evidence = larger(gained / (var * c.start) - 1.0, c.lr_std * g.std / c.start)
    first = 1.0 / root(c.start)
    slowness = c.pace * evidence + root(evidence / (held + TINY)) + TINY
    move = first * between(c.pace * first * g.mean / slowness, -FURTHEST * c.pace, FURTHEST * c.pace)
    pulled = std * std * c.pull * (q.mean - c.prior_mean)
    velocity = c.momentum * state.velocity - (1.0 - c.momentum) * c.lr_mean * (move + pulled)
    return Gaussian(q.mean + velocity, std), State(velocity, held)


def larger(a, b):
    """The larger of two numbers."""
    return 0.5 * (a + b + abs(a - b))
