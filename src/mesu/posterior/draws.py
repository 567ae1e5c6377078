"""The standard deviation s that weights are drawn with, which may be smaller than the posterior's sigma.

    1/s^2 = 1/sigma^2 + narrow                                 see `mesu.rules.bounds`

The posterior's sigma, called the belief, is the parameter beside each mean; noise is multiplied by s. By Stein's lemma an
example shows the curvature h = g_s / s, whatever s is, and a rule expects the gradient of the belief, g_sigma = sigma h. So
the gradient that `drawn_std` passes back to sigma is sigma / s times the gradient of s.
"""

from torch import Tensor, nn

from mesu.rules.bounds import drawn

KEPT = "narrow_draws"  # attribute of a module: `narrow` of each of its parameters


def narrow(owner: nn.Module, leaf: str, precision: float) -> None:
    """Draw the parameter `leaf` of a module with less than its sigma: add this to the precision of its draws."""
    vars(owner).setdefault(KEPT, {})[leaf] = precision


def drawn_std(owner: nn.Module, leaf: str) -> Tensor | None:
    """The standard deviation that a parameter is drawn with; None if it has none."""
    std = getattr(owner, leaf + "_std", None)
    precision = vars(owner).get(KEPT, {}).get(leaf)
    if std is None or precision is None:
        return std
    belief = std.detach()
    s = drawn(belief, precision)
    return s + (std - belief) * (belief / s)
