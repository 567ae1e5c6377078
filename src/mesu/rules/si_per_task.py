"""Synaptic Intelligence with an anchor for each task: the penalty of a task stays where that task ended.

along the way   path  <- path - g * d_theta                                   g: gradient of the loss alone
at a boundary   Omega_k = relu( path / ((theta - theta_{k-1})^2 + xi) ),  theta_k = theta,  path <- 0
loss + c * sum_k Omega_k (theta - theta_k)^2

The gradient of the sum needs only two numbers a weight, however many tasks there are: sum_k Omega_k and sum_k Omega_k theta_k.
"""

from typing import Any, NamedTuple

from mesu.rules import si
from mesu.rules.si import earned, idle


class Constants(si.Constants):
    """SI's constants, in a type of their own: it identifies the rule."""

    __slots__ = ()


class State(NamedTuple):
    """The sum of the penalties, and the path since the last boundary."""

    importance: Any  # sum_k Omega_k
    anchored: Any  # sum_k Omega_k theta_k
    anchor: Any  # theta_k, the weights at the last boundary
    path: Any  # the part of the loss's fall that this weight's movement accounts for


def constants(lr: float, strength: float, damping: float = 1.0) -> Constants:
    """Check the settings a user gives and turn them into `Constants`."""
    return Constants(*si.constants(lr, strength, damping))


def initial(w):
    """No task finished yet: no penalty, and the path begins here."""
    return State(importance=0.0 * w, anchored=0.0 * w, anchor=1.0 * w, path=0.0 * w)


def penalised(w, g, state, c):
    """The gradient of the loss plus all penalties, for any optimiser to follow."""
    return g + 2.0 * c.strength * (state.importance * w - state.anchored)


def followed(w, new, g, state):
    """Add the weight's move from `w` to `new`, whichever optimiser made it, to the path integral."""
    return State(state.importance, state.anchored, state.anchor, state.path - g * (new - w))


def step(w, g, state, c):
    """Gradient descent on the penalised loss."""
    new = w - c.lr * penalised(w, g, state, c)
    return new, followed(w, new, g, state)


def consolidate(w, state, c):
    """A task ended at weights `w`: its path becomes a penalty of its own, and a new path begins."""
    gain = earned(w, state, c)
    return State(state.importance + gain, state.anchored + gain * w, anchor=1.0 * w, path=0.0 * w)


__all__ = ["Constants", "State", "consolidate", "constants", "followed", "idle", "initial", "penalised", "step"]
