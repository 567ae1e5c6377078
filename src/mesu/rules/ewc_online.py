"""EWC Online (Schwarz et al., 2018): one running penalty, older tasks fading by gamma at each boundary.

loss + lambda/2 * F (w - w*)^2          at a boundary:  F <- gamma F + F_task,  w* <- w
"""

from typing import Any, NamedTuple

from mesu.rules import checks


class Constants(NamedTuple):
    """What one step needs besides the weight, its gradient and the state."""

    lr: float  # alpha
    strength: float  # lambda
    decay: float  # gamma, the share of the old importance kept


class State(NamedTuple):
    """The one quadratic penalty."""

    importance: Any  # F
    anchor: Any  # w*


def constants(lr: float, strength: float, decay: float) -> Constants:
    """Check the settings a user gives and turn them into `Constants`."""
    return Constants(
        lr=checks.non_negative("lr", lr),
        strength=checks.non_negative("strength", strength),
        decay=checks.non_negative("decay", decay),
    )


def idle(c):
    """Constants that move nothing."""
    return c._replace(lr=0.0)


def initial(w):
    """No task finished yet: no penalty."""
    return State(importance=0.0 * w, anchor=1.0 * w)


def penalised(w, g, state, c):
    """The gradient of the loss plus the penalty, for any optimiser to follow."""
    return g + c.strength * state.importance * (w - state.anchor)


def step(w, g, state, c):
    """Gradient descent on the penalised loss."""
    return w - c.lr * penalised(w, g, state, c), state


def consolidate(w, state, fisher, c):
    """A task ended at weights `w` with Fisher diagonal `fisher` (mean over its examples of g^2)."""
    return State(importance=c.decay * state.importance + fisher, anchor=1.0 * w)
