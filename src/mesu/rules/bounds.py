"""How far one step may move a weight, and how wide its sigma may become.

The trust region, in sigmas: the published runs on photographs and conv nets clip both updates to +-max_step * sigma; the paper
does not mention it. With ``max_step < 1`` no step can make sigma negative. ``max_step=None`` is off.

The widest sigma: sigma's gradient is an estimate, and where it is poor (few samples, small batches, a high rate) its noise
makes some sigmas grow, step after step, until sigma^2, the weight's learning rate, is far too large. ``max_std`` is the limit;
the published runs have it too (1 on CIFAR, 0.1 on the animals). ``max_std=None`` is off.

Weights may be drawn with less than the posterior's sigma: see `drawn`. The mean's trust region is then in units of the smaller
one, since the network has been evaluated at that scale.
"""

from mesu.rules.gaussian import Gaussian
from mesu.rules.primitives import between, root


def drawn(std, narrow):
    """The sigma that weights are drawn with: 1/s^2 = 1/sigma^2 + narrow. Where sigma is small, s is nearly the same.

    With a wide sigma a weight moves fast, but draws as wide would drown a deep network in noise. A weight that starts at
    sigma_0 with narrow = (n - 1) / sigma_0^2 is drawn with a variance n times smaller; s approaches sigma as evidence comes in.
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
    """`narrow` of a weight, from its value in units of the precision that the weight started with; None stays None."""
    if narrow is None:
        return None
    return narrow * precision


def reach(std, max_step, narrow):
    """The trust region of the mean in units of sigma, where `max_step` is in units of a sigma made smaller as in `drawn`."""
    if max_step is None or narrow is None:
        return max_step
    return max_step / root(1.0 + narrow * (std * std))


def within(step, max_step):
    """A step in units of sigma, no longer than the trust region reaches."""
    if max_step is None:
        return step
    return between(step, -max_step, max_step)


def close_by(new, mean, std, max_step, narrow):
    """A new mean, no further from the old one than the trust region reaches."""
    if max_step is None:
        return new
    furthest = std * reach(std, max_step, narrow)
    return between(new, mean - furthest, mean + furthest)


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
