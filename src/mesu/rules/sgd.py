"""Stochastic gradient descent, plain: w' = w - lr g. The baseline that remembers nothing on purpose."""

from typing import NamedTuple

from mesu.rules import checks


class Constants(NamedTuple):
    """What one step needs besides the weight and its gradient."""

    lr: float  # alpha


class State(NamedTuple):
    """SGD carries nothing from one step to the next."""


def constants(lr: float) -> Constants:
    """Check the learning rate."""
    return Constants(lr=checks.non_negative("lr", lr))


def idle(c):
    """Constants that move nothing."""
    return c._replace(lr=0.0)


def initial(w):
    """Nothing to remember."""
    return State()


def step(w, g, state, c):
    """One step down the gradient."""
    return w - c.lr * g, state
