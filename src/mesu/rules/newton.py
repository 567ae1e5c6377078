"""The Newton form (eq. 13-14): a diagonal Newton step on the free energy of N i.i.d. mini-batches, rate gamma.

    d_sigma = gamma N / 2 * ( -sigma^2 g_sigma + sigma   (sp^2 - sigma^2) / (N sp^2) )    eq. 13
    d_mu    = gamma N     * ( -sigma^2 g_mu    + sigma^2 (mp - mu)        / (N sp^2) )    eq. 14

This is MESU's rule with lr_mean = lr_std = gamma * N, and MESU itself at gamma = 1/N: a parametrisation, not a rule.
"""

from mesu.rules import checks, mesu
from mesu.rules.mesu import idle, keeps_positive
from mesu.rules.mesu import paper as step


class Constants(mesu.Constants):
    """MESU's constants, in a type of their own: it identifies the rule."""

    __slots__ = ()


def constants(
    gamma: float,
    memory: float,
    prior_mean: float = 0.0,
    prior_std: float = 1.0,
    max_step: float | None = None,
) -> Constants:
    """MESU's constants for a Newton step of size `gamma` (less than 1) on `memory` mini-batches."""
    if checks.finite("memory", memory) <= 1:
        raise ValueError(f"memory must be greater than 1 mini-batch, got {memory!r}")
    if not 0 < checks.number("gamma", gamma) < 1:
        raise ValueError(f"gamma must be between 0 and 1 (1/memory is MESU itself), got {gamma!r}")
    rate = gamma * memory
    return Constants(*mesu.constants(memory, prior_mean, prior_std, lr_mean=rate, lr_std=rate, max_step=max_step))


__all__ = ["Constants", "constants", "idle", "keeps_positive", "step"]
