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

The gradient of sigma is sigma h, so that those of several costs add up; an optimiser makes of the sum what a rule asks for
(`mesu.rules.curvature`). What the examples' being kept apart cannot see: a use of the layer's weight outside of the layer.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mesu.posterior.layers import Call
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
    single = [made[0] for layer, made in (calls or {}).items() if _keeps_examples_apart(layer, made)]
    apart = {id(parameter) for call in single for parameter in (call.weight, call.bias)}
    others = [pair.mean for pair in pairs if pair.mean.requires_grad and id(pair.mean) not in apart]
    curvatures: dict[int, Tensor] = {}  # by the id of the mean

    def add(mean: Tensor, curvature: Tensor) -> None:
        known = curvatures.get(id(mean))
        curvatures[id(mean)] = curvature / labels if known is None else known + curvature / labels

    for _ in range(labels):
        drawn = likelihood.nll(out[None], likelihood.sample(out.detach(), noise))
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
    carried = cost.new_zeros(())  # nothing is added to the cost, and its slope to every sigma
    for pair in pairs:
        if pair.mean.requires_grad and id(pair.mean) in curvatures:
            std = pair.std.detach()
            carried = carried + ((pair.std - std) * (std * curvatures[id(pair.mean)])).sum().to(cost.device)
    return cost + carried


def _keeps_examples_apart(layer: Any, made: Sequence[Call]) -> bool:
    """Whether these calls of a layer are a single one on a batch of vectors."""
    return isinstance(layer, nn.Linear) and len(made) == 1 and made[0].x.dim() == 2
