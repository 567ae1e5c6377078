"""Layers that draw their pre-activations instead of their weights: the local reparameterisation (Kingma et al., 2015).

For a linear layer fed one example, with independent Gaussian weights, pre-activation j is Gaussian too,

    m_j = sum_i x_i mu_ij        s_j^2 = sum_i x_i^2 sigma_ij^2        a_j = m_j + s_j e_j,   e_j ~ N(0, 1)

and independent of the other outputs. Drawing a is therefore the same in distribution as drawing the weights, at one
normal per output instead of one per weight, and sigma's gradient keeps its mean and loses variance.

Where one weight meets several inputs of the same example (a convolution's positions, a linear layer along a sequence)
each position still has the right mean and variance, but positions are drawn independently, which drawn weights are not.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.autograd.graph import get_gradient_edge

from mesu.posterior.draws import drawn_std
from mesu.posterior.noise import Noise

# Least s^2 under the root: an all-zero input has s = 0, where the derivative of the root is infinite and gradients become NaN.
TINY = 1e-30
# Inputs with at least this many numbers (convolutions, long sequences) take `LeanDraw`: there it saves more than it costs.
LEAN = 65_536
Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]

# The layers that draw in the forward pass under way, each with its noise. A context variable, so that another thread which
# uses the same network has its own.
_noise: ContextVar[Mapping["Local", Noise | None]] = ContextVar("mesu_layer_noise", default=MappingProxyType({}))


class Call(NamedTuple):
    """A call of a layer without noise."""

    x: Tensor
    output: Any  # its edge in the graph
    weight: Tensor
    bias: Tensor | None


_calls: ContextVar[dict["Local", list[Call]] | None] = ContextVar("mesu_layer_calls", default=None)


@contextmanager
def drawing_with(layers: Iterable["Local"], noise: Noise | None) -> Iterator[None]:
    """Let these layers draw their outputs with `noise` inside; with None they are plain layers."""
    token = _noise.set({**_noise.get(), **dict.fromkeys(layers, noise)})
    try:
        yield
    finally:
        _noise.reset(token)


@contextmanager
def recording() -> Iterator[dict["Local", list[Call]]]:
    """Collect, by layer, every call that is made inside without noise."""
    calls: dict[Local, list[Call]] = {}
    token = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(token)


class Local:
    """A layer that draws its outputs inside `drawing_with`, and is the plain layer it was everywhere else."""

    @property
    def noise(self) -> Noise | None:
        """What this layer draws with in this thread now, or None."""
        return _noise.get().get(self)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer's linear map for given weights."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output: drawn if there is noise to draw it with."""
        layer: Any = self
        noise = self.noise
        if noise is None:
            out = self.linear(x, layer.weight, layer.bias)
            calls = _calls.get()
            if calls is not None and out.requires_grad:
                # keep the edge, since an activation may overwrite the output, and the weights, since another thread may
                # put its own drawn ones in their place later
                call = Call(x.detach(), get_gradient_edge(out), layer.weight, layer.bias)
                calls.setdefault(self, []).append(call)
            return out
        inputs = (x, layer.weight, drawn_std(layer, "weight"), layer.bias, drawn_std(layer, "bias"))
        if _may_be_lean(x) and x.numel() >= max(LEAN, layer.weight.numel()):
            return LeanDraw.apply(self.linear, noise, *inputs)
        mean, var = moments(self.linear, *inputs)
        return draw(mean, var, normal(noise, mean))


def moments(linear: Linear, x, weight, weight_std, bias, bias_std) -> tuple[Tensor, Tensor]:
    """The outputs' m and s^2."""
    var = linear(x.square(), weight_std.square(), None if bias_std is None else bias_std.square())
    return linear(x, weight, bias), var


def draw(mean: Tensor, var: Tensor, e: Tensor) -> Tensor:
    """The outputs a. Every way of differentiating in torch works through this function."""
    return torch.addcmul(mean, var.clamp_min(TINY).sqrt(), e)


def normal(noise: Noise, mean: Tensor) -> Tensor:
    """A standard normal for every output, in the memory layout of the outputs: mixed layouts are several times slower."""
    last = mean.movedim(1, -1) if mean.dim() > 2 else mean
    if mean.is_contiguous() or not last.is_contiguous():
        return noise.normal(mean.shape, like=mean)
    return noise.normal(last.shape, like=mean).movedim(-1, 1)


class LeanDraw(torch.autograd.Function):
    """`draw` of `moments` with a backward pass written by hand: it reads and writes about half as much memory as autograd.

    With h = e / s, and g the gradient of the cost with respect to the outputs, the gradients are

        of the means    g, propagated back through the linear map of x and mu
        of sigma        sigma * (g h, propagated back through the linear map of x^2 and sigma^2)
        of x            the sum of both, the second times x

    where the 2 of the squares and the 1/2 of the root have cancelled. Autograd differentiates the linear maps, in a graph
    that is freed after one backward pass. A second backward pass, or one that is itself to be differentiated, uses `draw`.
    Where s^2 is below `TINY`, or below zero by rounding, h is 0.
    """

    @staticmethod
    def forward(ctx, linear: Linear, noise: Noise, x, weight, weight_std, bias, bias_std):  # type: ignore[override]
        """The drawn outputs."""
        needs_x, needs_mean, needs_std, needs_bias, needs_bias_std = ctx.needs_input_grad[2:]
        plain = [_leaf(x, needs_x), _leaf(weight, needs_mean), _leaf(bias, needs_bias)]
        squared = [_leaf(x, needs_x, True), _leaf(weight_std, needs_std, True), _leaf(bias_std, needs_bias_std, True)]
        with torch.enable_grad():
            mean, var = linear(*plain), linear(*squared)
        ctx.linear, ctx.graph = linear, (_edge(mean), plain, _edge(var), squared)
        mean, var = mean.detach(), var.detach()
        h = normal(noise, mean).mul_(F.threshold(var, TINY, float("inf")).rsqrt_())
        ctx.save_for_backward(x, weight, weight_std, bias, bias_std, h)
        return mean.addcmul_(h, var)

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        """The gradients."""
        *inputs, h = ctx.saved_tensors
        graph: Any = None if torch.is_grad_enabled() else ctx.__dict__.pop("graph", None)
        if graph is None:
            return None, None, *_gradients_through_draw(ctx, inputs, h, grad)
        x, _, weight_std, _, bias_std = inputs
        needs_x, needs_mean, needs_std, needs_bias, needs_bias_std = ctx.needs_input_grad[2:]
        mean, plain, var, squared = graph
        to_x, to_mean, to_bias = _gradients(mean, plain, (needs_x, needs_mean, needs_bias), grad)
        to_x2, to_std, to_bias_std = _gradients(var, squared, (needs_x, needs_std, needs_bias_std), grad * h)
        to_x = None if to_x is None else to_x.addcmul_(to_x2, x)
        to_std = None if to_std is None else to_std.mul_(weight_std)
        to_bias_std = None if to_bias_std is None else to_bias_std.mul_(bias_std)
        return None, None, to_x, to_mean, to_std, to_bias, to_bias_std


def _leaf(tensor: Tensor | None, needed: bool, squared: bool = False) -> Any:
    if tensor is None:
        return None
    return (tensor.square() if squared else tensor.detach()).requires_grad_(needed)


def _edge(out: Tensor) -> Any:
    """A reference to `out` in its graph that does not keep its values in memory."""
    return get_gradient_edge(out) if out.requires_grad else None


def _gradients(out: Any, leaves: list, needed: tuple[bool, ...], grad: Tensor) -> list[Any]:
    """Gradients of `out` for those leaves that need one, None for the others."""
    wanted = [leaf for leaf, need in zip(leaves, needed, strict=True) if need]
    found = iter(torch.autograd.grad(out, wanted, grad) if wanted else ())
    return [next(found) if need else None for need in needed]


def _gradients_through_draw(ctx, inputs: list[Any], h: Tensor, grad: Tensor) -> list[Any]:
    """The same gradients by autograd through `draw`; they can be differentiated again if autograd asks for that."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # views: where one input depends on another (a layer called twice), autograd must not follow it back to that other
        own: list[Any] = [each if each is None else each.view_as(each) for each in inputs]
        mean, var = moments(ctx.linear, *own)
        e = h * var.detach().clamp_min(TINY).sqrt()
        wanted = [each for each, needed in zip(own, ctx.needs_input_grad[2:], strict=True) if needed]
        found = iter(torch.autograd.grad(draw(mean, var, e), wanted, grad, create_graph=again))
    return [next(found) if needed else None for needed in ctx.needs_input_grad[2:]]


# The hooks that change what autograd saves (offloading, checkpoints), if any are active. Early versions of torch cannot tell.
hooks_on_saved: Any = getattr(getattr(torch._C, "_autograd", None), "_top_saved_tensors_default_hooks", None)


def _may_be_lean(x: Tensor) -> bool:
    """Whether `LeanDraw` can be used: gradients are needed, and no compiler, transform or hook has to see each operation."""
    return not (
        torch.compiler.is_compiling()
        or not torch.is_grad_enabled()
        or torch.is_autocast_enabled(x.device.type)
        or torch.jit.is_tracing()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or hooks_on_saved is None
        or hooks_on_saved(True) is not None
    )


class LocalLinear(Local, nn.Linear):  # type: ignore[misc]
    """`nn.Linear` with drawn outputs."""

    def linear(self, x, weight, bias):
        return F.linear(x, weight, bias)


class LocalConv1d(Local, nn.Conv1d):  # type: ignore[misc]
    """`nn.Conv1d` with drawn outputs."""

    def linear(self, x, weight, bias):
        return self._conv_forward(x, weight, bias)


class LocalConv2d(Local, nn.Conv2d):  # type: ignore[misc]
    """`nn.Conv2d` with drawn outputs."""

    def linear(self, x, weight, bias):
        return self._conv_forward(x, weight, bias)


class LocalConv3d(Local, nn.Conv3d):  # type: ignore[misc]
    """`nn.Conv3d` with drawn outputs."""

    def linear(self, x, weight, bias):
        return self._conv_forward(x, weight, bias)


LOCAL_TWIN: dict[type, type] = {
    nn.Linear: LocalLinear,
    nn.Conv1d: LocalConv1d,
    nn.Conv2d: LocalConv2d,
    nn.Conv3d: LocalConv3d,
}
