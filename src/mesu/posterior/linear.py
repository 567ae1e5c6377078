"""The estimator "linear": the gradient and the curvature at the means, without a draw of the weights.

For sigma, Stein's lemma gives g_sigma = sigma E[H], with H the Hessian of the cost. Here H is its Gauss-Newton part at the
means,

    h_w = sum_b ( G_b^T Lambda_b G_b )_ww        G_b = d outputs / d weights,  Lambda_b the curvature of the likelihood

which is never negative. One backward pass finds its diagonal for any module: for a label y~ drawn from the model itself, the
gradient of the cost has the covariance Lambda, and labels drawn for different examples are independent. So

    h_w = E[ ( d/dw sum_b C(outputs_b, y~_b) )^2 ]

and the square of a single pass is an unbiased estimate. Neither the mean's gradient nor the prediction is noisy.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mesu.posterior.noise import Noise


def cost_with_curvature(
    likelihood: Any, out: Tensor, y: Tensor, pairs: Sequence[Any], labels: int, noise: Noise
) -> Tensor:
    """The cost of outputs ``[B, ...]`` at the means, whose backward pass also gives every sigma its gradient sigma h.

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
    carried = cost.new_zeros(())
    for _ in range(labels):
        drawn = likelihood.nll(out[None], likelihood.sample(out.detach(), noise))
        slopes = torch.autograd.grad(drawn, means, retain_graph=True, allow_unused=True)
        for pair, slope in zip(pairs, slopes, strict=True):
            if slope is not None:
                gradient = pair.std.detach() * slope.square() / labels
                carried = carried + (pair.std * gradient).sum()
    return cost + (
        carried - carried.detach()
    )  # adds nothing to the cost, and to the gradient of every sigma what it should be
