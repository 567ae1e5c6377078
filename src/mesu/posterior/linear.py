"""The estimator "linear": the gradient and the curvature at the means, without a draw of the weights.

For sigma, Stein's lemma gives g_sigma = sigma E[H], with H the Hessian of the cost. Here H is its Gauss-Newton part, at the
means,

    h_w = sum_b ( G_b^T Lambda_b G_b )_ww        G_b = d outputs / d weights,  Lambda_b the curvature of the likelihood

which is never negative. One backward pass finds its diagonal for any module: for a label y~ drawn from the model itself, the
gradient of the cost has the covariance Lambda, and labels drawn for different examples are independent. So

    h_w = E[ ( d/dw sum_b C(outputs_b, y~_b) )^2 ]

and the square of a single pass is an unbiased estimate. Neither the mean's gradient nor the prediction is noisy. For a linear
layer that is called once on a batch of vectors x_b, with slopes d_b at its outputs, the examples are kept apart,

    h_kj = sum_b d_bk^2 x_bj^2

which has the same mean, less noise, and costs less than the gradient of the weights.

The gradient of sigma is sigma h, so the gradients of several costs add up. From their sum an optimiser works out the gradient
that a rule expects (`mesu.rules.curvature`). Where examples are kept apart, uses of a weight outside of its layer are not seen.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from mesu.posterior.layers import Call
from mesu.posterior.likelihood import drawn_cost
from mesu.posterior.noise import Noise


def cost_with_curvature(
    likelihood: Any,
    out: Tensor,
    y: Tensor,
    pairs: Sequence[Any],
    labels: int,
    noise: Noise,
    calls: Mapping[Any, Sequence[Call]] | None = None,
) -> Tensor:
    """The cost of outputs ``[B, ...]`` at the means; its backward pass gives every sigma its gradient, too.

    Args:
        likelihood: What the outputs mean; it needs a method `sample`.
        out: Outputs of the network at its means.
        y: Targets.
        pairs: The covered parameters, each with its `mean` and `std`.
        labels: Drawn labels that the curvature is averaged over.
        noise: Source of the drawn labels.
        calls: The inputs and outputs of layers, as `mesu.posterior.layers.recording` collects them.
    """
    cost = likelihood.nll(out[None], y)
    if not cost.requires_grad:
        return cost
    if not hasattr(likelihood, "sample"):
        raise TypeError(
            f"estimator='linear' draws labels, and {type(likelihood).__name__} has no sample(out, noise): give it one, or "
            "use estimator='local'"
        )
    single = [made[0] for layer, made in (calls or {}).items() if _keeps_examples_apart(layer, made, len(out))]
    apart = {id(parameter) for call in single for parameter in (call.weight, call.bias)}
    others = [pair.mean for pair in pairs if pair.mean.requires_grad and id(pair.mean) not in apart]
    curvatures: dict[int, Tensor] = {}  # by the id of the mean

    def add(mean: Tensor, curvature: Tensor) -> None:
        known = curvatures.get(id(mean))
        curvatures[id(mean)] = curvature / labels if known is None else known + curvature / labels

    for _ in range(labels):
        drawn = drawn_cost(likelihood, out, y, noise)
        ends = [call.output for call in single]
        slopes = torch.autograd.grad(drawn, [*ends, *others], retain_graph=True, allow_unused=True)
        for call, slope in zip(single, slopes, strict=False):
            if slope is not None:
                square = slope.square()
                add(call.weight, square.T @ call.x.square())
                if call.bias is not None:
                    add(call.bias, square.sum(0))
        for mean, slope in zip(others, slopes[len(ends) :], strict=True):
            if slope is not None:
                add(mean, slope.square())
    taught = [pair for pair in pairs if pair.mean.requires_grad and id(pair.mean) in curvatures]
    slopes = [pair.std.detach() * curvatures[id(pair.mean)] for pair in taught]
    return _WithSlopes.apply(cost, slopes, *(pair.std for pair in taught))


class _WithSlopes(torch.autograd.Function):
    """The cost as it is; its backward pass gives the further inputs the slopes that are known already."""

    @staticmethod
    def forward(ctx, cost: Tensor, slopes: list[Tensor], *inputs: Tensor) -> Tensor:  # type: ignore[override]
        """The cost."""
        ctx.slopes = slopes
        return cost.view_as(cost)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        """The gradients."""
        wanted = zip(ctx.slopes, ctx.needs_input_grad[2:], strict=True)
        return grad, None, *(slope * grad.to(slope.device) if needed else None for slope, needed in wanted)


def _keeps_examples_apart(layer: Any, made: Sequence[Call], examples: int) -> bool:
    """Whether these calls of a layer are a single one on a batch of vectors, one for each example."""
    return isinstance(layer, nn.Linear) and len(made) == 1 and made[0].x.dim() == 2 and len(made[0].x) == examples
