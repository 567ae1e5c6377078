"""Synaptic Intelligence (Zenke et al., 2017): a weight is as important as its movement was for the fall of the loss.

along the way   path  <- path - g * d_theta                       g: gradient of the loss alone
at a boundary   Omega <- Omega + relu( path / ((theta - theta*)^2 + xi) ),  theta* <- theta,  path <- 0
loss + c * Omega (theta - theta*)^2
"""

from typing import Any, NamedTuple

from mesu.rules import checks


class Constants(NamedTuple):
    """What one step needs besides the weight, its gradient and the state."""

    lr: float  # alpha
    strength: float  # c
    damping: float  # xi, keeps the importance of a weight that did not move finite


class State(NamedTuple):
    """The penalty, and the path since the last boundary."""

    importance: Any  # Omega
    anchor: Any  # theta*, the weights at the last boundary
    path: Any  # the part of the loss's fall that this weight's movement accounts for


def constants(lr: float, strength: float, damping: float = 1.0) -> Constants:
    """Check the settings a user gives and turn them into `Constants`."""
    return Constants(
        lr=checks.non_negative("lr", lr),
        strength=checks.non_negative("strength", strength),
        damping=checks.positive("damping", damping),
    )


def idle(c):
    """Constants that move nothing."""
    return c._replace(lr=0.0)


def initial(w):
    """No task finished yet: no penalty, and the path begins here."""
    return State(importance=0.0 * w, anchor=1.0 * w, path=0.0 * w)


def penalised(w, g, state, c):
    """The gradient of the loss plus the penalty, for any optimiser to follow."""
    return g + 2.0 * c.strength * state.importance * (w - state.anchor)


def followed(w, new, g, state):
    """Add the weight's move from `w` to `new`, whichever optimiser made it, to the path integral."""
    return State(state.importance, state.anchor, state.path - g * (new - w))


def step(w, g, state, c):
    """Gradient descent on the penalised loss."""
    new = w - c.lr * penalised(w, g, state, c)
    return new, followed(w, new, g, state)


def earned(w, state, c):
    """The importance that a weight earned on its way to `w`: none if its path raised the loss."""
    moved = w - state.anchor
    gain = state.path / (moved * moved + c.damping)
    return (gain > 0) * gain


def consolidate(w, state, c):
    """A task ended at weights `w`: turn its path into importance and begin a new one."""
    return State(importance=state.importance + earned(w, state, c), anchor=1.0 * w, path=0.0 * w)
