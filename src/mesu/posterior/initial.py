"""Where a posterior starts: the paper's two initialisations by name, or a network's own weights.

    "keep"    mu = the weights the module came with,  sigma = 1/sqrt(fan_in)        a trained or freshly made network
    "mnist"   mu ~ U(+-4/sqrt(fan_in)),  sigma = 2/sqrt(fan_in)                     the paper's MNIST and Permuted MNIST runs
    "cifar"   mu ~ U(+-sqrt(2/fan_in)),  sigma = 1/(2 sqrt(fan_out))                the paper's CIFAR and Animals runs

A bias has the fans of its weight. Gains and other vectors that belong to no weight keep their means under every name. Under
"keep" the first layer's sigma is divided by the size of the inputs, so that its units start with the same noise at any size.
"""

from typing import NamedTuple

from torch import Tensor, nn

from mesu.posterior.noise import Noise
from mesu.rules.checks import positive

# With this sigma the noise of a unit does not depend on the width of the network: inputs of size one give noise of size one.
# sigma^2 is also the first learning rate. At this scale one example moves the output of a unit by about its gradient, which
# suits short streams and streams that keep changing. docs/start.md measures other scales and says when to use them. The
# default estimator, which draws nothing while it learns, starts three times as wide (`mesu.posterior.bayesian`).
KEEP_SCALE = 1.0


class Start(NamedTuple):
    """One named initialisation; the fans are divided under a square root."""

    mean_scale: float | None  # half-width of the uniform means, times sqrt(fan_in); None keeps the module's own
    std_scale: float  # sigma, times sqrt(fan)
    std_fan: str  # which fan sigma is divided by


STARTS = {
    "keep": Start(None, KEEP_SCALE, "in"),
    "mnist": Start(4.0, 2.0, "in"),
    "cifar": Start(2.0**0.5, 0.5, "out"),
}


def fans(owner: nn.Module, name: str) -> tuple[int, int] | None:
    """Inputs and outputs of the weight that parameter `name` of `owner` is, or is the bias of; None if there is none.

    A kernel counts in both: a 3x3 convolution from 16 to 32 channels has fan_in 144 and fan_out 288.
    """
    weight = getattr(owner, name)
    if weight.dim() < 2:
        weight = getattr(owner, name.replace("bias", "weight"), None)
    if weight is None or weight.dim() < 2:
        return None
    kernel = weight[0, 0].numel()
    return weight.shape[1] * kernel, weight.shape[0] * kernel


def start(
    owner: nn.Module,
    name: str,
    init: str,
    init_std: float | None,
    noise: Noise,
    init_scale: float = 1.0,
    input_scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The first mean and standard deviation of one parameter.

    Args:
        owner: The module that holds the parameter.
        name: Its name there.
        init: A key of `STARTS`.
        init_std: The same sigma for every weight, instead of the named one.
        noise: Source of random means.
        init_scale: Factor on the named sigma.
        input_scale: Size (root mean square) of the owner's inputs; used by "keep" only, since the paper's starts ignore it.
    """
    if init not in STARTS:
        raise ValueError(f"init must be one of {', '.join(map(repr, STARTS))}, got {init!r}")
    if init_std is not None:
        positive("init_std", init_std)
    mean = getattr(owner, name).detach().clone()
    named = STARTS[init]
    fan = fans(owner, name)
    if fan is not None and named.mean_scale is not None:
        mean = noise.uniform(mean) * (named.mean_scale / fan[0] ** 0.5)
    fan_in, fan_out = fan or (max(mean.numel(), 1),) * 2
    sigma = init_scale * named.std_scale / (fan_in if named.std_fan == "in" else fan_out) ** 0.5
    if init == "keep":
        sigma /= input_scale
    return mean, mean.new_full(mean.shape, sigma if init_std is None else init_std)
