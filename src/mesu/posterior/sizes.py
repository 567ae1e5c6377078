"""Inputs of any size: the first batch tells how large they are, and the layers that they enter start as wide as suits them.

A layer starts with sigma = 3 / sqrt(fan_in), and torch's own weights are of that order too. Both are meant for inputs of size
one. Where inputs are s times as large, both are divided by s: units then begin, and learn, as they would from inputs of size
one. Biases stay, as they meet no input.

Which layers these are shows in the pass itself: their inputs come from no weight that learns. So inputs that the network
normalises, or that a frozen part of it has made, are measured as the layer gets them.
"""

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from mesu.posterior.inputs import CONVOLUTION

# Within this factor of size one, networks were found to learn as well as from size one: nothing is changed there.
FAR = 4.0
# Fewer numbers than this may be small by chance, all of them. That they are large is seldom chance.
FEW = 16
MOST = 30  # powers of two: with larger factors, the squares of sigmas would leave single precision
ENOUGH = 32  # weights by which torch's own start is told


def size_of(x: Tensor) -> float:
    """Root mean square of some inputs; 0 if they are all zero, or there are none."""
    if x.numel() == 0:
        return 0.0
    x = x.detach()
    x = x.to(torch.float64 if x.device.type != "mps" else torch.float32)
    return float(x.square().mean().sqrt())


def is_far(size: float, count: int) -> bool:
    """Whether the size of that many inputs is far from one, and not by chance."""
    return math.isfinite(size) and (size > FAR or (0 < size < 1 / FAR and count >= FEW))


def divisor(size: float, count: int) -> float:
    """What weights are divided by for inputs of this size: 1 for sizes near one, else the nearest power of two.

    A power of two rounds nothing: inputs that are 2^k times as large teach exactly the same.
    """
    return 2.0 ** max(-MOST, min(MOST, round(math.log2(size)))) if is_far(size, count) else 1.0


def entries(module: nn.Module) -> tuple[str, ...]:
    """Names of the parameters that a layer multiplies its inputs with; none for layers of another kind."""
    if isinstance(module, NonDynamicallyQuantizableLinear):  # attention uses its weight, and never calls it
        return ()
    if isinstance(module, (nn.Linear, *CONVOLUTION)):
        return ("weight",)
    if isinstance(module, nn.RNNBase):
        return tuple(name for name in ("weight_ih_l0", "weight_ih_l0_reverse") if hasattr(module, name))
    return ()


def as_torch_made(weight: Tensor, bound: float) -> bool:
    """Whether these weights look as torch makes them, uniform between -bound and bound.

    A layer that has learned has some weights beyond the bound, or all of them well below it. When in doubt, the answer is no.
    """
    count = weight.numel()
    if count < ENOUGH or not weight.is_floating_point():
        return False
    largest = float(weight.detach().abs().max()) / bound
    spread = float(weight.detach().double().square().mean().sqrt()) * math.sqrt(3) / bound
    # of `count` uniform numbers, the largest is below the first limit in one case of 20,000; 0.45 / sqrt(count) is the
    # relative error of their root mean square
    return 1 - 10 / count < largest < 1 + 1e-3 and abs(spread - 1) < 2 / math.sqrt(count)


def torch_bound(layer: nn.Module, leaf: str) -> float:
    """The largest weight that torch starts this parameter of a layer with."""
    if isinstance(layer, nn.RNNBase):
        return layer.hidden_size**-0.5
    weight = getattr(layer, leaf)
    return (weight.numel() / weight.shape[0]) ** -0.5


@contextmanager
def watching(layers: Iterable[tuple[str, nn.Module]], told: Callable[[str, Tensor], Any]) -> Iterator[None]:
    """Inside, call `told(name, x)` before a layer works on its input x, in this thread, while gradients are on."""
    mine = threading.get_ident()

    def hook(name: str) -> Any:
        def before(_: nn.Module, given: tuple) -> None:
            if threading.get_ident() == mine and torch.is_grad_enabled() and given and isinstance(given[0], Tensor):
                told(name, given[0])

        return before

    handles = [layer.register_forward_pre_hook(hook(name)) for name, layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def may_measure() -> bool:
    """Whether numbers can be looked at here: not while torch compiles, traces or transforms what is run."""
    return not (torch.compiler.is_compiling() or torch.jit.is_tracing() or torch._C._are_functorch_transforms_active())


def several_processes() -> bool:
    """Whether this process is one of several that learn together: each sees other inputs, and all must start alike."""
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
