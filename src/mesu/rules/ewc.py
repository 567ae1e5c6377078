"""Elastic Weight Consolidation (Kirkpatrick et al., 2017): every finished task leaves its own quadratic penalty.

    loss + lambda/2 * sum_k F_k (w - w_k)^2        F_k: Fisher diagonal of task k, w_k: the weights at its end

The gradient of the sum needs only two numbers a weight, however many tasks there are: sum_k F_k and sum_k F_k w_k.
"""

from typing import Any, NamedTuple

from mesu.rules import checks


class Constants(NamedTuple):
    """What one step needs besides the weight, its gradient and the state."""

    lr: float  # alpha
    strength: float  # lambda


class State(NamedTuple):
    """The sum of the penalties of all finished tasks."""

    importance: Any  # sum_k F_k
    anchored: Any  # sum_k F_k w_k


def constants(lr: float, strength: float) -> Constants:
    """Check the settings a user gives and turn them into `Constants`."""
    return Constants(lr=checks.non_negative("lr", lr), strength=checks.non_negative("strength", strength))


def idle(c):
    """Constants that move nothing."""
    return c._replace(lr=0.0)


def initial(w):
    """No task finished yet: no penalty."""
    return State(importance=0.0 * w, anchored=0.0 * w)


def penalised(w, g, state, c):
    """The gradient of the loss plus all penalties, for any optimiser to follow."""
    return g + c.strength * (state.importance * w - state.anchored)


def step(w, g, state, c):
    """Gradient descent on the penalised loss."""
    return w - c.lr * penalised(w, g, state, c), state


def consolidate(w, state, fisher, c):
    """A task ended at weights `w` with Fisher diagonal `fisher` (mean over its examples of g^2): add its penalty."""
    return State(importance=state.importance + fisher, anchored=state.anchored + fisher * w)
