"""Inputs that do not fit the network: refused before a forward pass, or explained after one that failed."""

import re
from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from mesu.posterior.likelihood import describe_bad

CONVOLUTION = (nn.modules.conv._ConvNd,)
# The messages of torch when shapes do not fit.
MISFIT = re.compile(
    r"shapes cannot be multiplied|size mismatch|expected input.* to have|must match the size|shape '.*' is invalid"
)


def check_batch(x: Tensor, y: Tensor) -> None:
    """Refuse inputs and targets that are not a batch, and inputs that are not finite.

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
    # a sum is quicker than a look at every number, and shows each that is not finite
    if x.is_floating_point() and not torch.isfinite(x.sum()) and not torch.isfinite(x).all():
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


def refuse_misfit(own: Mapping[str, Tensor], given: Mapping[str, Any]) -> None:
    """Refuse values that do not fit a network's own, by name.

    Raises:
        ValueError: with every name that is missing, unexpected, of another shape, or not finite.
    """
    wrong = [f"{name!r} is missing" for name in own if name not in given]
    wrong += [f"{name!r} is unexpected" for name in given if name not in own]
    for name in own.keys() & given.keys():
        value = given[name]
        if not isinstance(value, Tensor):
            wrong.append(f"{name!r} is a {type(value).__name__}, not a tensor")
        elif value.shape != own[name].shape:
            wrong.append(f"{name!r} has shape {tuple(value.shape)}, and the network's has {tuple(own[name].shape)}")
        elif value.is_floating_point() and not torch.isfinite(value).all():
            wrong.append(f"{name!r} is not finite: {describe_bad(value)}")
    if wrong:
        more = f", and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise ValueError(
            f"the state_dict does not fit: {'; '.join(wrong[:5])}{more}. Nothing was loaded: it must be of a network of the "
            "kind that was wrapped, with the names of net.mean_network().state_dict()"
        )
