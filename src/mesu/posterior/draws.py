"""How widely weights are drawn, told apart from what is believed of them: 1/s^2 = 1/sigma^2 + narrow (`mesu.rules.bounds`).

The belief sigma is the parameter, beside the mean; what draws take part with is s. By Stein's lemma the curvature that an
example shows is h = g_s / s, however widely weights are drawn, and a rule is given the gradient that it means for the belief,
g_sigma = sigma h. So the gradient that reaches sigma through `drawn_std` is sigma / s times that of s.
"""

from torch import Tensor, nn

from mesu.rules.bounds import drawn

KEPT = "narrow_draws"  # attribute of a module: by how much precision each of its parameters' draws are narrower


def narrow(owner: nn.Module, leaf: str, precision: float) -> None:
    """Draw the parameter `leaf` of a module narrower than believed, by this much precision."""
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
