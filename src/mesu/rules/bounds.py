"""How far one step may move a weight, and how wide it may become.

The trust region, in sigmas: the published runs on photographs and conv nets clip both updates to +-max_step * sigma; the paper
does not mention it. With ``max_step < 1`` no step can make sigma negative. ``max_step=None`` is off.

The widest sigma: sigma's gradient is an estimate, and where it is poor (few samples, small batches, a high rate) its noise
makes some sigmas grow, step upon step, until the weight is thrown about by its own rate. ``max_std`` ends that; the
published runs have it too (1 on CIFAR, 0.1 on the animals). ``max_std=None`` is off.
"""

from mesu.rules.gaussian import Gaussian
from mesu.rules.primitives import between


def within(step, max_step):
    """A step in units of sigma, no longer than the trust region reaches."""
    if max_step is None:
        return step
    return between(step, -max_step, max_step)


def near(new, std, max_step):
    """A new sigma, no further from the old one than the trust region reaches."""
    if max_step is None:
        return new
    return between(new, (1.0 - max_step) * std, (1.0 + max_step) * std)


def narrow(std, max_std):
    """A sigma, at most the widest that is allowed."""
    if max_std is None:
        return std
    return between(std, -max_std, max_std)  # a sigma that went negative stays so, and is refused


def trust_region(old, new, max_step):
    """`new`, no further from `old` than the trust region reaches."""
    if max_step is None:
        return new
    reach = max_step * old.std
    return Gaussian(between(new.mean, old.mean - reach, old.mean + reach), near(new.std, old.std, max_step))
