"""The estimator "linear": the gradient and the curvature at the means, without a draw of the weights.

For sigma, Stein's lemma gives g_sigma = sigma E[H], with H the Hessian of the cost. Here H is its Gauss-Newton part, at the
means,

    h_w = sum_b ( G_b^T Lambda_b G_b )_ww        G_b = d outputs / d weights,  Lambda_b the curvature of the likelihood

which is never negative. One backward pass finds its diagonal for any module: for a label y~ drawn from the model itself, the
gradient of the cost has the covariance Lambda, and labels drawn for different examples are independent. So

    h_w = E[ ( d/dw sum_b C(outputs_b, y~_b) )^2 ]

and the square of a single pass is an unbiased estimate. Neither the mean's gradient nor the prediction is noisy.

A rule solves implicit equations: the gradient that it asks for is the one at the sigma after the step. Drawn gradients are only
known at the old sigma. A curvature is the same at both, so here it can be given, and the step is Bayes' rule,

    g_sigma = sigma' h        1/sigma'^2 = 1/sigma^2 + h
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mesu.posterior.noise import Noise


def gradient_of_sigma(std: Tensor, curvature: Tensor) -> Tensor:
    """The gradient at the sigma that the evidence leaves."""
    return std * curvature / (1 + std.square() * curvature).sqrt()


def cost_with_curvature(
    likelihood: Any, out: Tensor, y: Tensor, pairs: Sequence[Any], labels: int, noise: Noise
) -> Tensor:
    """The cost of outputs ``[B, ...]`` at the means; its backward pass gives every sigma its gradient, too.

    Args:
        likelihood: What the outputs mean; it needs a method `sample`.
        out: Outputs of the network at its means.
        y: Targets.
        pairs: The covered parameters, each with its `mean` and `std`.
        labels: Drawn labels that the curvature is averaged over.
        noise: Source of the drawn labels.
    """
    cost = likelihood.nll(out[None], y)
    if not cost.requires_grad:
        return cost
    if not hasattr(likelihood, "sample"):
        raise TypeError(
            f"estimator='linear' draws labels, and {type(likelihood).__name__} has no sample(out, noise): give it one, or "
            "use estimator='local'"
        )
    means = [pair.mean for pair in pairs]
    curvatures: dict[int, Tensor] = {}
    for _ in range(labels):
        drawn = likelihood.nll(out[None], likelihood.sample(out.detach(), noise))
        slopes = torch.autograd.grad(drawn, means, retain_graph=True, allow_unused=True)
        for index, slope in enumerate(slopes):
            if slope is not None:
                square = slope.square() / labels
                curvatures[index] = curvatures[index] + square if index in curvatures else square
    carried = cost.new_zeros(())
    for index, curvature in curvatures.items():
        std = pairs[index].std
        carried = carried + (std * gradient_of_sigma(std.detach(), curvature)).sum()
    return cost + (carried - carried.detach())  # the cost is as it was; the gradients of the sigmas are added to it
