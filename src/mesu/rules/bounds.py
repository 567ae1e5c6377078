"""How far one step may move a weight, and how wide it may become.

The trust region, in sigmas: the published runs on photographs and conv nets clip both updates to +-max_step * sigma; the paper
does not mention it. With ``max_step < 1`` no step can make sigma negative. ``max_step=None`` is off.

The widest sigma: sigma's gradient is an estimate, and where it is poor (few samples, small batches, a high rate) its noise
makes some sigmas grow, step upon step, until the weight is thrown about by its own rate. ``max_std`` ends that; the
published runs have it too (1 on CIFAR, 0.1 on the animals). ``max_std=None`` is off.

How widely weights are drawn is told apart from what is believed of them: see `drawn`. A trust region of the mean is in units of
what is drawn, for that is the scale on which the network has been seen to be smooth.
"""

from mesu.rules.gaussian import Gaussian
from mesu.rules.primitives import between, root


def drawn(std, narrow):
    """The sigma that weights are drawn with: 1/s^2 = 1/sigma^2 + narrow. Where much is known, it is the believed one.

    A wide belief lets a weight move fast; drawn as widely, it drowns a deep network in noise. With narrow = (n - 1) / sigma_0^2
    a weight that starts at sigma_0 is drawn with a variance n times smaller, and the two become one as evidence comes in.
    """
    if narrow is None:
        return std
    return std / root(1.0 + narrow * (std * std))


def believed(s, narrow):
    """The inverse of `drawn`."""
    if narrow is None:
        return s
    return s / root(1.0 - narrow * (s * s))


def narrower(narrow, precision):
    """What is given in units of a start's precision, times that precision; None stays None."""
    if narrow is None:
        return None
    return narrow * precision


def reach(std, max_step, narrow):
    """The trust region of the mean, in believed sigmas: `max_step` times a sigma that is narrowed as those of draws are."""
    if max_step is None or narrow is None:
        return max_step
    return max_step / root(1.0 + narrow * (std * std))


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


def no_wider(std, max_std):
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
