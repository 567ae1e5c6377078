"""The trust region: how far one step may move a mean or a sigma, in sigmas.

The published runs on photographs and conv nets clip both updates to +-max_step * sigma; the paper does not mention it. With
``max_step < 1`` no step can make sigma negative. ``max_step=None`` is off.
"""

from mesu.rules.gaussian import Gaussian
from mesu.rules.primitives import between


def within(x, centre, max_step):
    """`x`, in units of sigma, no further from `centre` than the trust region reaches."""
    if max_step is None:
        return x
    return between(x, centre - max_step, centre + max_step)


def trust_region(old, new, max_step):
    """`new`, no further from `old` than the trust region reaches."""
    if max_step is None:
        return new
    reach = max_step * old.std
    return Gaussian(
        between(new.mean, old.mean - reach, old.mean + reach), between(new.std, old.std - reach, old.std + reach)
    )
