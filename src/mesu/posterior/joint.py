"""The estimator "joint", for one number: a step at the means that all weights make together, as in a Kalman filter.

With the residual r = output - y, the slopes J_w = d output / d w at the means, and the noise n of the target,

    S = n^2 + sum_w sigma_w^2 J_w^2           how far off the target may be, as believed before it is seen
    mu_w     <- mu_w - sigma_w^2 J_w r / S
    sigma_w^2 <- sigma_w^2 (1 - sigma_w^2 J_w^2 / S)

which is the exact posterior of a linear network, but for the covariances. However wide the beliefs, the step cannot
overshoot: all weights share one residual, where the estimator "linear" lets each of them take it for its own.

A residual counts as at most `FURTHEST` of what was believed, sqrt(S): a broken target cannot throw the weights about.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mesu.posterior.likelihood import GaussianNoise
from mesu.rules.curvature import FURTHEST, share_of_joint_step


def cost_with_joint_step(
    likelihood: Any, out: Tensor, y: Tensor, pairs: Sequence[Any], others: Sequence[Tensor] = ()
) -> Tensor:
    """The cost of an output ``[1, 1]`` at the means; its backward pass gives means and sigmas the gradients of a joint step.

    Args:
        likelihood: Gaussian noise.
        out: Output of the network at its means.
        y: The target.
        pairs: The covered parameters, each with its `mean` and `std`.
        others: Parameters that are not covered; they get the gradient of the cost.

    Raises:
        ValueError: for several examples or outputs, for another likelihood, and for a second cost before the step.
    """
    if not isinstance(likelihood, GaussianNoise) or out.shape != (1, 1):
        raise ValueError(
            f"estimator='joint' learns one number of one example at a time with likelihood='gaussian', got outputs of shape "
            f"{tuple(out.shape)} and likelihood {type(likelihood).__name__}: use estimator='linear'"
        )
    full = likelihood.nll(out[None], y)
    cost = full.detach()
    moving = [pair for pair in pairs if pair.mean.requires_grad]
    if not moving or not out.requires_grad:
        return full
    if any(pair.mean.grad is not None and bool(pair.mean.grad.any()) for pair in moving):
        raise ValueError(
            "estimator='joint' makes the step of one example, and the gradient of another is still there: call "
            "optimizer.step() and zero_grad() after each, or use estimator='linear', whose costs add up"
        )
    slopes = torch.autograd.grad(out.sum(), [pair.mean for pair in moving], retain_graph=True, allow_unused=True)
    learning = [parameter for parameter in others if parameter.requires_grad]
    for parameter, slope in zip(
        learning, torch.autograd.grad(full, learning, allow_unused=True) if learning else (), strict=True
    ):
        if slope is not None:
            cost = cost + ((parameter - parameter.detach()) * slope).sum()
    known = [(pair, pair.std.detach(), slope) for pair, slope in zip(moving, slopes, strict=True) if slope is not None]
    believed = likelihood.noise_std**2 + sum((std * slope).square().sum() for _, std, slope in known)
    residual = (out - y).detach().squeeze()
    furthest = FURTHEST * believed.sqrt()
    r = torch.minimum(torch.maximum(residual, -furthest), furthest) / believed
    for pair, std, slope in known:
        g = share_of_joint_step(std, r * slope, slope.square() / believed)
        # nothing is added to the cost, and its slopes to the mean and to sigma
        carried = ((pair.mean - pair.mean.detach()) * g.mean).sum() + ((pair.std - std) * (std * g.std)).sum()
        cost = cost + carried
    return cost
