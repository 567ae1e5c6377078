"""Inputs that do not fit: refused before a forward pass, or explained after one that failed."""

import re
from math import prod

import torch
from torch import Tensor, nn

from mesu.posterior.likelihood import describe_bad

CONVOLUTION = (nn.modules.conv._ConvNd,)
# The messages of torch when shapes do not fit.
MISFIT = re.compile(
    r"shapes cannot be multiplied|size mismatch|expected input.* to have|must match the size|shape '.*' is invalid"
)


def check_batch(x: Tensor, y: Tensor) -> None:
    """Refuse inputs and targets that are no batch, or inputs that are not finite.

    Raises:
        TypeError: if one of them is not a tensor.
        ValueError: if they are empty, of different lengths, or the inputs have NaN or infinity in them.
    """
    for name, value in (("inputs", x), ("targets", y)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(value).__name__}: take torch.as_tensor")
    if x.dim() == 0 or y.dim() == 0:
        raise ValueError("got a single number where a batch was expected: give inputs and targets a first axis")
    if x.shape[0] == 0 or x.shape[0] != y.shape[0]:
        raise ValueError(f"got {x.shape[0]} inputs and {y.shape[0]} targets: there must be as many, and some")
    if x.is_floating_point() and not torch.isfinite(x).all():
        raise ValueError(f"inputs must be finite, got {describe_bad(x)}: drop or fill those rows first")


def first_layer(module: nn.Module) -> tuple[str, nn.Linear | nn.modules.conv._ConvNd | None]:
    """The first linear or convolutional layer and its name, by the order in which the module names its parts."""
    layers = ((n, m) for n, m in module.named_modules() if isinstance(m, (nn.Linear, *CONVOLUTION)))
    return next(layers, ("", None))


def explain_failure(module: nn.Module, args: tuple, message: str) -> None:
    """Raise a clear `ValueError` if a forward pass failed because its input has the wrong width; else do nothing.

    Args:
        module: The network.
        args: What it was called with.
        message: What torch said.
    """
    x = args[0] if args and isinstance(args[0], Tensor) else None
    name, first = first_layer(module)
    if x is None or first is None:
        return
    if isinstance(first, nn.Linear):
        fits = x.dim() > 0 and first.in_features in (x.shape[-1], prod(x.shape[1:]))
        wanted = f"{first.in_features} features"
    else:
        axis = -len(first.kernel_size) - 1
        fits = x.dim() >= -axis and x.shape[axis] == first.in_channels
        wanted = f"{first.in_channels} channels"
    if not fits or MISFIT.search(message):
        raise ValueError(
            f"an input of shape {tuple(x.shape)} does not fit: the first layer ({name or type(first).__name__!r}) "
            f"takes {wanted}"
        ) from None
