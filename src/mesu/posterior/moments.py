"""Moments: what each kind of layer does to the mean and the variance of independent Gaussian activations.

With weights w = mu + s e, and inputs of mean m and variance v, a linear map has the moments

    mean  sum_i mu_i m_i        variance  sum_i mu_i^2 v_i  +  sum_i s_i^2 (m_i^2 + v_i)

where the second sum is the noise of the layer's own weights. An activation function is averaged over a Gaussian: ReLU and leaky
ReLU in closed form, others by Gauss-Hermite quadrature.

Units are not independent, and two kinds of covariance matter in trained networks. A convolution uses one weight at every
position: `Gaussian.common` is the covariance, from channel to channel, of the average over the positions. Units of one layer
share their inputs: `Gaussian.made` says how they came about, and `mesu.posterior.closed_form` walks it back from the outputs.

One function a kind of layer, found by the exact type: `rule` adds one.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

TINY = 1e-30  # least variance that is divided by, as in mesu.posterior.layers
NODES = 12  # of the Gauss-Hermite quadrature


@dataclass(frozen=True, eq=False)
class Made:
    """How a Gaussian came about: from `parent`, by a linear map, or by slopes of an activation function, or by flattening.

    Attributes:
        parent: What it was made from; None if that was certain.
        weight: Means of a linear map ``[out, in]``.
        own: The variance that the noise of the map's own weights adds ``[B, out]``.
        slope: The expected slope of an activation function, of the shape of its values.
    """

    parent: "Gaussian | None"
    weight: Tensor | None = None
    own: Tensor | None = None
    slope: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Activations ``[B, ...]`` that are known as Gaussians.

    Attributes:
        mean: Their means.
        var: Their variances.
        common: For ``[B, channels, positions...]``, the covariance ``[B, channels, channels]`` of the averages over all
            positions. None where it is not known.
        made: How they came about; None where that does not matter any more.
        work: Multiplications for each row that made their means.
    """

    mean: Tensor
    var: Tensor
    common: Tensor | None = None
    made: Made | None = None
    work: int = 0


class Unknown(TypeError):
    """A module or function whose moments are not known."""


Rule = Callable[[Any, Gaussian], Gaussian]
RULES: dict[type, Rule] = {}


def rule(*kinds: type) -> Callable[[Rule], Rule]:
    """Register a function ``(layer, x) -> Gaussian`` for layers of exactly these types.

    A layer's weights are its attributes, as ever; the variance that predictions draw a weight with stands beside it, as
    ``layer.weight_var``, unless it is deterministic (`variance` gives it or None). The function is only called where `x` is a
    `Gaussian`, and for layers with uncertain weights.

    Example:
        >>> class Double(nn.Module):
        ...     def forward(self, x):
        ...         return 2 * x
        >>> @rule(Double)
        ... def double(layer, x):
        ...     return Gaussian(2 * x.mean, 4 * x.var)
        >>> del RULES[Double]
    """

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(kinds, function))
        return function

    return register


def variance(layer: nn.Module, leaf: str) -> Tensor | None:
    """The variance that a parameter of a layer is drawn with; None where it is deterministic."""
    return getattr(layer, leaf + "_var", None)


def positions(x: Tensor) -> tuple[int, ...]:
    """The axes after batch and channels."""
    return tuple(range(2, x.dim()))


def per_channel(values: Tensor | None, like: Tensor) -> Any:
    """Numbers of channels, ``[C]`` or ``[B, C]``, shaped to go with ``[B, C, ...]``."""
    return values if values is None else values.reshape(*values.shape, *(1,) * (like.dim() - 2))


def diagonal(matrices: Tensor) -> Tensor:
    """The diagonals ``[B, C]`` of ``[B, C, C]``."""
    return torch.diagonal(matrices, dim1=-2, dim2=-1)


def on_diagonal(values: Tensor) -> Tensor:
    """Matrices ``[B, C, C]`` with the values ``[B, C]`` on their diagonals."""
    return values[..., None] * torch.eye(values.shape[-1], dtype=values.dtype, device=values.device)


def scaled(common: Tensor | None, by: Tensor) -> Tensor | None:
    """The common covariance of channels that are multiplied by ``[C]`` or ``[B, C]``."""
    return None if common is None else by[..., :, None] * common * by[..., None, :]


def number(size: Any) -> int:
    """A size that is not the batch's, as a number: `torch.jit.trace` gives tensors, and warns when they are read."""
    if not isinstance(size, Tensor):
        return size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return int(size)


def constant(values: Any, like: Tensor) -> Tensor:
    """Numbers that are the same for every input, with the type and the device of `like`: the trace warns of these too."""
    if not torch.jit.is_tracing():
        return torch.tensor(values, dtype=like.dtype, device=like.device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.tensor(values, dtype=like.dtype, device=like.device)


# -- linear maps --------------------------------------------------------------------------------------------------------


def own_and_passed(
    linear: Callable, layer: Any, mean: Tensor, var: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """The variance that a map's own weights add, and the variance of its inputs passed on; None for none."""
    spread, bias = variance(layer, "weight"), variance(layer, "bias")
    own = None
    if spread is not None:
        own = linear(mean.square() if var is None else mean.square() + var, spread, bias)
    return own, None if var is None else linear(var, layer.weight.square(), None)


@rule(nn.Linear)
def through_linear(layer: nn.Linear, x: Any) -> Gaussian:
    """Along the last axis. The covariance of the outputs can be walked back where they are ``[B, out]``."""
    mean, var, work = (x.mean, x.var, x.work) if isinstance(x, Gaussian) else (x, None, 0)
    own, passed = own_and_passed(F.linear, layer, mean, var)
    out = F.linear(mean, layer.weight, layer.bias)
    if own is None and variance(layer, "bias") is not None:
        own = variance(layer, "bias").expand_as(out)  # type: ignore[union-attr]
    own = torch.zeros_like(out) if own is None else own
    made = Made(x if isinstance(x, Gaussian) else None, layer.weight, own) if out.dim() == 2 else None
    return Gaussian(out, own if passed is None else own + passed, None, made, work + number(layer.weight.numel()))


@rule(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def through_convolution(layer: Any, x: Any) -> Gaussian:
    """Every position by itself, and the average over all of them with the channels' covariances.

    The average of the outputs is a linear map of the averages of the inputs, except near borders: each weight of the kernel
    counts as often as it meets an input and not padding.
    """
    mean, var, common, work = (x.mean, x.var, x.common, x.work) if isinstance(x, Gaussian) else (x, None, None, 0)
    linear = layer._conv_forward
    spread, bias = variance(layer, "weight"), variance(layer, "bias")
    out = linear(mean, layer.weight, layer.bias)
    if var is None:
        total = torch.zeros_like(out) if spread is None else linear(mean.square(), spread, bias)
    else:
        total = linear(var, layer.weight.square() if spread is None else layer.weight.square() + spread, bias)
        total = total if spread is None else total + linear(mean.square(), spread, None)
    met = coverage(layer, mean, out)
    average = mean.mean(positions(mean))
    square = average.square() if common is None else average.square() + diagonal(common)
    added = out.new_zeros(out.shape[:2])
    if spread is not None:
        added = F.linear(square, dense(layer, (spread * met.square()).flatten(2).sum(2)), bias)
    covariance = on_diagonal(added)
    if common is not None:
        weight = dense(layer, (layer.weight * met).flatten(2).sum(2))
        covariance = covariance + weight @ common @ weight.T
    elif var is not None:
        covariance = None  # uncertain inputs, and how they vary together is not known
    return Gaussian(out, total, covariance, None, work + number(layer.weight.numel()) * number(out[0, 0].numel()))


def coverage(layer: Any, x: Tensor, out: Tensor) -> Tensor:
    """How large a share of the outputs have an input, and not padding, under each weight of the kernel."""
    share = torch.ones((), dtype=x.dtype, device=x.device)
    padding = layer._reversed_padding_repeated_twice[::-2] if isinstance(layer.padding, str) else layer.padding
    for axis, kernel in enumerate(layer.kernel_size):
        size, outs = number(x.shape[2 + axis]), number(out.shape[2 + axis])
        first = np.arange(outs) * layer.stride[axis] - padding[axis]
        at = first + np.arange(kernel)[:, None] * layer.dilation[axis]
        inside = ((at >= 0) & (at < size)) | (layer.padding_mode != "zeros")
        share = share[..., None] * constant(inside.mean(1).tolist(), x)
    return share


def dense(layer: Any, weight: Tensor) -> Tensor:
    """The matrix ``[out, in]`` of a grouped convolution's ``[out, in / groups]``."""
    if layer.groups == 1:
        return weight
    return torch.block_diag(*weight.chunk(layer.groups))


@rule(nn.Embedding)
def through_embedding(layer: nn.Embedding, x: Any) -> Gaussian:
    """The rows that are looked up."""
    if isinstance(x, Gaussian):
        raise Unknown("an embedding needs certain indices")
    spread = variance(layer, "weight")
    mean = F.embedding(x, layer.weight)
    return Gaussian(mean, torch.zeros_like(mean) if spread is None else F.embedding(x, spread))


# -- activation functions -----------------------------------------------------------------------------------------------


def relu_moments(mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance and expected slope of max(0, a), for a ~ N(mean, var).

    With z = m / s, h = phi(z) - z Phi(-z), which is E max(0, -a) / s, and g = h + z:

        mean  s g        variance  s^2 (Phi(z) - g h)        slope  Phi(z)

    No digits are lost where z is large, of either sign.
    """
    std = var.clamp_min(TINY).sqrt()
    z = mean / std
    above = torch.erfc(z * -(0.5**0.5)) * 0.5
    h = torch.addcmul(torch.exp(z.square() * -0.5) * 0.3989422804014327, z, above - 1)
    g = h + z
    return std * g, var * torch.addcmul(above, g, h, value=-1).clamp_min(0), above


def quadrature(function: Callable[[Tensor], Tensor], mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance and expected slope of a smooth function of a ~ N(mean, var), by Gauss-Hermite quadrature.

    The slope is E[f(a) e] / s with a = m + s e (Stein's lemma), so that no derivative is needed.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    std = var.clamp_min(TINY).sqrt()
    first, values, slope = torch.zeros_like(mean), [], torch.zeros_like(mean)
    center = function(mean)
    for e, w in zip(nodes.tolist(), (weights / weights.sum()).tolist(), strict=True):
        value = function(mean + e * std) - center  # the distance to f(m): no digits are lost where s is small
        first = first + w * value
        slope = slope + (w * e) * value
        values.append((w, value))
    spread = sum((w * (value - first).square() for w, value in values), start=torch.zeros_like(mean))
    return center + first, spread, slope / std


def through_function(moments: Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]], x: Gaussian) -> Gaussian:
    """A function of each activation, by its mean, variance and expected slope."""
    mean, var, slope = moments(x.mean, x.var)
    common = x.common
    if common is not None:
        axes = positions(x.var)
        common = scaled(common, (slope * x.var).mean(axes) / x.var.mean(axes).clamp_min(TINY))
    return Gaussian(mean, var, common, Made(x, slope=slope), x.work)


def leaky(slope: float) -> Callable:
    """Moments of max(0, a) + slope * min(0, a), whose parts are those of a and of max(0, a)."""

    def moments(mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        up, up_var, inside = relu_moments(mean, var)
        down = up - mean  # E max(0, -a); and the product of both parts is always 0
        down_var = (mean.square() + var - up_var - up.square() - down.square()).clamp_min(0)
        return up - slope * down, up_var + slope**2 * down_var + 2 * slope * up * down, inside + slope * (1 - inside)

    return moments


@rule(nn.ReLU)
def through_relu(layer: Any, x: Gaussian) -> Gaussian:
    """In closed form."""
    return through_function(relu_moments, x)


@rule(nn.LeakyReLU)
def through_leaky_relu(layer: nn.LeakyReLU, x: Gaussian) -> Gaussian:
    """In closed form."""
    return through_function(leaky(layer.negative_slope), x)


@rule(nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.Softplus)
def through_smooth(layer: nn.Module, x: Gaussian) -> Gaussian:
    """By quadrature of the layer itself."""
    if getattr(layer, "inplace", False):
        layer = type(layer)(layer.alpha) if isinstance(layer, nn.ELU) else type(layer)()  # type: ignore[call-arg]
    return through_function(lambda mean, var: quadrature(layer, mean, var), x)


# -- pooling ------------------------------------------------------------------------------------------------------------


def share_in_common(x: Gaussian) -> Tensor:
    """The correlation ``[B, C]`` of two positions of a channel that fits the variance of the average over all of them."""
    if x.common is None:
        raise Unknown("how the positions vary together is not known here")
    average = x.var.clamp_min(TINY).sqrt().mean(positions(x.var))
    return (diagonal(x.common) / average.square().clamp_min(TINY)).clamp(0, 1)


@rule(nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
def through_average(layer: Any, x: Gaussian) -> Gaussian:
    """Neighbours vary together, for they share weights and most of their inputs.

    In the average over all positions, what these have in common stays, and the rest is divided by their number.
    """
    mean = layer(x.mean)
    var = layer(x.var.clamp_min(0).add(TINY).sqrt()).square()
    if number(mean[0, 0].numel()) == 1:
        together, many = per_channel(share_in_common(x), mean), number(x.mean[0, 0].numel())
        var = together * var + (1 - together) * layer(x.var) / many
    return Gaussian(mean, var, x.common, None, x.work)


@rule(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
def through_maximum(layer: Any, x: Gaussian) -> Gaussian:
    """The mean and the variance of the activation whose mean is the largest.

    Neighbours vary together, for they share weights and most of their inputs; the maximum of independent ones (Clark's
    formula) would be too large and too certain.
    """
    pool = {nn.MaxPool1d: F.max_pool1d, nn.MaxPool2d: F.max_pool2d, nn.MaxPool3d: F.max_pool3d}[type(layer)]
    settings = (layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode)
    mean, index = pool(x.mean, *settings, return_indices=True)
    var = x.var.flatten(2).gather(2, index.flatten(2)).reshape(mean.shape)
    before, after = (v.clamp_min(TINY).sqrt().mean(positions(v)) for v in (x.var, var))
    return Gaussian(mean, var, scaled(x.common, after / before), None, x.work)


# -- normalisation ------------------------------------------------------------------------------------------------------


@rule(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
def through_frozen_batchnorm(layer: Any, x: Gaussian) -> Gaussian:
    """With fixed averages it is one multiplication and one addition a channel."""
    if layer.running_var is None:
        raise Unknown("batch normalisation without running averages mixes the examples of a batch")
    scale = (layer.running_var + layer.eps).rsqrt()
    scale = scale if layer.weight is None else scale * layer.weight
    var = x.var * per_channel(scale.square(), x.var)
    return Gaussian(layer(x.mean), var, scaled(x.common, scale), None, x.work)


@rule(nn.GroupNorm)
def through_group_norm(layer: nn.GroupNorm, x: Gaussian) -> Gaussian:
    """Normalised by the expected spread of each group; what its activations have in common is taken out of their variance.

    To first order, normalisation r (a - mean) changes by r (I - 1 1^T / n - z z^T / n) da, with z the normalised means.
    """
    mean, var, groups = x.mean, x.var, layer.num_groups
    batch, channels = mean.shape[:2]
    each = channels // groups
    within = mean.reshape(batch, groups, -1)
    if x.common is None:
        raise Unknown("how the positions vary together is not known here")
    blocks = x.common.reshape(batch, groups, each, groups, each).diagonal(dim1=1, dim2=3)
    of_center = blocks.sum((1, 2)) / each**2  # variance of each group's mean
    center = within.mean(-1)
    spread = (within - center[:, :, None]).square().mean(-1) + var.reshape(batch, groups, -1).mean(-1) - of_center
    r = (spread.clamp_min(0) + layer.eps).rsqrt()
    r, center = (t[:, :, None].expand(-1, -1, each).reshape(batch, channels) for t in (r, center))
    z = (mean.mean(positions(mean)) - center) * r
    eye = torch.eye(channels, dtype=mean.dtype, device=mean.device)
    same = eye.reshape(channels, groups, each).sum(2) @ eye.reshape(channels, groups, each).sum(2).T
    jacobian = r[:, :, None] * (eye - same / each * (1 + z[:, :, None] * z[:, None, :]))
    common = jacobian @ x.common @ jacobian.transpose(1, 2)
    together = share_in_common(x)
    kept = diagonal(common) / (r.square() * diagonal(x.common)).clamp_min(TINY)
    factor = r.square() * (1 - together + together * kept)
    return affine(layer, x, r, -center * r, factor, common, z)


def affine(
    layer: Any, x: Gaussian, scale: Tensor, shift: Tensor, factor: Tensor, common: Tensor, z: Tensor
) -> Gaussian:
    """The normalised activations ``mean * scale + shift``, of variance ``var * factor``, times the layer's gains.

    Factors of a channel are multiplied first: activations are read as few times as possible.
    """
    like, work = x.mean, x.work
    if layer.weight is None:
        normal = like * per_channel(scale, like) + per_channel(shift, like)
        return Gaussian(normal, x.var * per_channel(factor, like), common, None, work)
    gain, gain_var, bias_var = layer.weight, variance(layer, "weight"), variance(layer, "bias")
    mean = like * per_channel(scale * gain, like) + per_channel(shift * gain + layer.bias, like)
    factor = factor * (gain.square() if gain_var is None else gain.square() + gain_var)
    total: Any = scaled(common, gain)
    start = torch.zeros_like(z)
    if bias_var is not None:
        start = start + bias_var
        total = total + on_diagonal(start)
    var = x.var * per_channel(factor, like) + per_channel(start, like)
    if gain_var is not None:
        spread = gain_var.sqrt()
        from_gain = like * per_channel(scale * spread, like) + per_channel(shift * spread, like)
        var = torch.addcmul(var, from_gain, from_gain)
        total = total + on_diagonal(gain_var * (z.square() + diagonal(common)))
    return Gaussian(mean, var, total, None, work)


@rule(nn.LayerNorm)
def through_layer_norm(layer: nn.LayerNorm, x: Gaussian) -> Gaussian:
    """As group normalisation, of activations that vary independently."""
    axes = tuple(range(-len(layer.normalized_shape), 0))
    center = x.mean.mean(axes, keepdim=True)
    many = 1.0
    for size in layer.normalized_shape:
        many *= size
    spread = (x.mean - center).square().mean(axes, keepdim=True) + x.var.mean(axes, keepdim=True) * (1 - 1 / many)
    r = (spread + layer.eps).rsqrt()
    z = (x.mean - center) * r
    # row i of the Jacobian is r (delta_ij - (1 + z_i z_j) / n)
    sums = [(x.var * power).sum(axes, keepdim=True) for power in (torch.ones_like(z), z, z.square())]
    others = (sums[0] + 2 * z * sums[1] + z.square() * sums[2]) / many**2
    var = r.square() * (x.var * (1 - 2 / many * (1 + z.square())) + others).clamp_min(0)
    if layer.weight is None:
        return Gaussian(z, var, None, None, x.work)
    gain_var, bias_var = variance(layer, "weight"), variance(layer, "bias")
    mean = z * layer.weight if layer.bias is None else z * layer.weight + layer.bias
    total = var * layer.weight.square()
    if gain_var is not None:
        total = total + gain_var * (z.square() + var)
    return Gaussian(mean, total if bias_var is None else total + bias_var, None, None, x.work)


# -- the rest -----------------------------------------------------------------------------------------------------------


def reshaped(x: Gaussian, change: Callable[[Tensor], Tensor], in_order: bool = False) -> Gaussian:
    """Another shape, selection or order of the same activations; `in_order` if it is only another shape."""
    mean = change(x.mean)
    flat = in_order and mean.dim() == 2 and number(mean.shape[1]) == number(x.mean[0].numel())
    return Gaussian(mean, change(x.var), None, Made(x) if flat else None, x.work)


@rule(nn.Flatten, nn.Unflatten)
def through_reshape(layer: nn.Module, x: Gaussian) -> Gaussian:
    """The same activations, in another shape."""
    if isinstance(layer, nn.Flatten) and x.mean.dim() == 2:
        return x
    return reshaped(x, layer, in_order=True)


@rule(nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
def through_identity(layer: nn.Module, x: Gaussian) -> Gaussian:
    """Unchanged: dropout is off while predicting."""
    return x


def added(x: Any, y: Any) -> Gaussian:
    """A sum. The branches of a residual block are taken to be independent."""
    if not isinstance(x, Gaussian):
        x, y = y, x
    if not isinstance(y, Gaussian):
        return replace(x, mean=x.mean + y, var=torch.zeros_like(x.mean + y) + x.var, made=None)
    common = None
    if x.common is not None and y.common is not None:
        common = x.common + y.common
    return Gaussian(x.mean + y.mean, x.var + y.var, common, None, x.work + y.work)


def multiplied(x: Gaussian, factor: Any) -> Gaussian:
    """A product with a number; tensors have no known covariance left."""
    if isinstance(factor, Tensor):
        return Gaussian(x.mean * factor, x.var * factor**2, None, None, x.work)
    common = None if x.common is None else x.common * factor**2
    return Gaussian(x.mean * factor, x.var * factor**2, common, None, x.work)
