"""What the network's output means: class scores (softmax) or a regression mean with Gaussian noise.

A likelihood turns drawn outputs ``[S, B, ...]`` and targets into the cost that the posterior learns from, and refuses
targets that it cannot score before anything is learned. `mesu.prediction` turns the same outputs into uncertainty.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from mesu.rules.checks import positive


class Categorical:
    """Outputs ``[S, B, C]`` are scores of C classes; targets are class numbers ``[B]``.

    For pictures and sequences the classes stay on that axis, as for `torch.nn.functional.cross_entropy`: outputs
    ``[S, B, C, ...]`` and targets ``[B, ...]``.
    """

    def check(self, y: Tensor) -> None:
        """Refuse targets that are not class numbers."""
        if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
            raise ValueError(
                f"class labels must be integers, got {y.dtype}: convert them with y.long(), "
                "or use Bayesian(..., likelihood='gaussian') for regression"
            )
        if y.numel() and int(y.min()) < 0:
            raise ValueError(f"class labels must be 0 or greater, got {int(y.min())}")

    def nll(self, out: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy, summed over the batch and averaged over the samples."""
        if out.dim() < 3 or out.shape[1] != y.shape[0]:
            raise ValueError(
                f"the network gave outputs of shape {tuple(out.shape[1:])} for {y.shape[0]} labels: "
                "a classifier must give [batch, classes]"
            )
        if out.shape[3:] != y.shape[1:]:
            raise ValueError(
                f"labels of shape {tuple(y.shape)} do not fit outputs of shape {tuple(out.shape[1:])}: classes are on the "
                "second axis, as for torch's cross_entropy, so that [batch, classes, ...] goes with labels [batch, ...]"
            )
        if not torch.compiler.is_compiling() and y.numel() and int(y.max()) >= out.shape[2]:
            only = ", and two for a choice of two" if out.shape[2] == 1 else ""
            raise ValueError(
                f"label {int(y.max())} is outside the head, which has {out.shape[2]} classes "
                f"(0 to {out.shape[2] - 1}): give the last layer an output for every class{only}"
            )
        repeated = y.long().expand(out.shape[0], *y.shape).flatten(0, 1)
        return F.cross_entropy(out.flatten(0, 1), repeated, reduction="sum") / out.shape[0]


class GaussianNoise:
    """Outputs ``[S, B, ...]`` are means of real-valued targets ``[B, ...]``, observed with noise of a fixed std."""

    def __init__(self, noise_std: float = 1.0) -> None:
        self.noise_std = positive("noise_std", noise_std)

    def check(self, y: Tensor) -> None:
        """Refuse targets that are not finite real numbers."""
        if not torch.isfinite(y).all():
            raise ValueError(f"targets must be finite, got {describe_bad(y)}: drop or fill those rows first")

    def nll(self, out: Tensor, y: Tensor) -> Tensor:
        """Negative log density, summed over the batch and averaged over the samples."""
        if out.shape[1:] != y.shape:
            raise ValueError(
                f"targets of shape {tuple(y.shape)} do not match the network's outputs {tuple(out.shape[1:])}: "
                "reshape the targets (y[:, None] for one output)"
            )
        error = (out - y) / self.noise_std
        constant = math.log(self.noise_std) + 0.5 * math.log(2 * math.pi)
        return (0.5 * error.square() + constant).sum() / out.shape[0]


Likelihood = Categorical | GaussianNoise


def named(likelihood: str | Likelihood, noise_std: float) -> Likelihood:
    """The likelihood a user asked for by name."""
    if not isinstance(likelihood, str):
        return likelihood
    if likelihood == "categorical":
        return Categorical()
    if likelihood == "gaussian":
        return GaussianNoise(noise_std)
    raise ValueError(f"likelihood must be 'categorical' or 'gaussian', got {likelihood!r}")


def describe_bad(x: Tensor) -> str:
    """How many values are not finite and where the first is, for an error message."""
    bad = ~torch.isfinite(x)
    where = tuple(int(i) for i in bad.nonzero()[0])
    return f"{x[where].item()} at index {where} ({int(bad.sum())} of {x.numel()} values are not finite)"
