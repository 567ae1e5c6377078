"""MESU as the paper prints it (eq. 9-10): the first order of the implicit equations. See `mesu.rules.mesu`.

Large gradients can make sigma negative: `mesu.rules.mesu` is the closed form that no gradient can break, or set `max_step`
below 1.
"""

from mesu.rules import mesu
from mesu.rules.mesu import idle, keeps_positive
from mesu.rules.mesu import paper as step


class Constants(mesu.Constants):
    """MESU's constants, in a type that says which form they are for."""

    __slots__ = ()


def constants(
    memory: float,
    prior_mean: float = 0.0,
    prior_std: float = 1.0,
    lr_mean: float = 1.0,
    lr_std: float = 1.0,
    max_step: float | None = None,
    max_std: float | None = None,
) -> Constants:
    """Check the settings a user gives and turn them into `Constants`."""
    if isinstance(prior_std, str):
        raise ValueError(f"prior_std must be a number, got {prior_std!r}: a prior at the start needs update='exact'")
    return Constants(*mesu.constants(memory, prior_mean, prior_std, lr_mean, lr_std, max_step, max_std))


__all__ = ["Constants", "constants", "idle", "keeps_positive", "step"]
