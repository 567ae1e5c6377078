"""EWC Stream: EWC Online with every example a task of its own, so that no boundary is needed.

loss + lambda/2 * F (w - w*)^2          after every step:  F <- gamma F + g^2,  w* <- the weights before the step
"""

from typing import Any, NamedTuple

from mesu.rules import ewc_online
from mesu.rules.ewc_online import idle, penalised


class Constants(ewc_online.Constants):
    """EWC Online's constants, in a type of their own: it identifies the rule."""

    __slots__ = ()


class State(NamedTuple):
    """The one quadratic penalty, renewed at every step."""

    importance: Any  # F, a running sum of squared gradients of the loss alone
    anchor: Any  # w*, the weights before the last step


def constants(lr: float, strength: float, decay: float) -> Constants:
    """Check the settings a user gives and turn them into `Constants`."""
    return Constants(*ewc_online.constants(lr, strength, decay))


def initial(w):
    """No example seen yet: no penalty."""
    return State(importance=0.0 * w, anchor=1.0 * w)


def step(w, g, state, c):
    """Gradient descent on the penalised loss; the example then becomes part of the penalty."""
    new = w - c.lr * penalised(w, g, state, c)
    return new, State(importance=c.decay * state.importance + g * g, anchor=1.0 * w)


__all__ = ["Constants", "State", "constants", "idle", "initial", "penalised", "step"]
