"""The trust region: how far one step may move a mean or a sigma."""

from mesu.rules.gaussian import Gaussian
from mesu.rules.primitives import between


def trust_region(old, new, max_step):
    """`new`, no further from `old` than `max_step` standard deviations in the mean and in the std.

    The published runs on photographs and conv nets clip both updates to +-max_step * sigma; the paper does not mention
    it. With ``max_step < 1`` no step can make sigma negative. ``max_step=None`` is off.
    """
    if max_step is None:
        return new
    reach = max_step * old.std
    return Gaussian(
        between(new.mean, old.mean - reach, old.mean + reach), between(new.std, old.std - reach, old.std + reach)
    )
