"""FOO-VB Diagonal (Zeno et al., 2021): online variational Bayes that never forgets.

    d_mu   = -sigma^2 g_mu
    sigma' = sigma * ( sqrt(1 + (sigma g_sigma / 2)^2) - sigma g_sigma / 2 )

This is MESU's exact form with the plain mean and an infinite memory, so it *is* that function here.
"""

from math import inf

from mesu.rules import mesu
from mesu.rules.mesu import exact_plain as step
from mesu.rules.mesu import idle, keeps_positive


class Constants(mesu.Constants):
    """MESU's constants, in a type of their own: it identifies the rule."""

    __slots__ = ()


def constants(lr_mean: float = 1.0, lr_std: float = 1.0, max_step: float | None = None) -> Constants:
    """MESU's constants with nothing forgotten; there is no prior to relax to."""
    return Constants(*mesu.constants(memory=inf, lr_mean=lr_mean, lr_std=lr_std, max_step=max_step))


__all__ = ["Constants", "constants", "idle", "keeps_positive", "step"]
