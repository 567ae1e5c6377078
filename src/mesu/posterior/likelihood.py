"""What the network's output means: class scores (softmax), several yes-or-no scores (sigmoid), or a regression mean.

A likelihood says three things of drawn outputs ``[S, B, ...]``: which targets it can score (`check`), what they cost the
posterior that learns (`nll`), and which prediction they are together (`summarise`). Anything with these three methods is one;
the estimator "linear" needs a fourth, ``sample(out, noise)``, which draws targets from outputs ``[B, ...]``:
pass it as ``mesu.Bayesian(net, likelihood=MyLikelihood())``, or give it a name with `register`.
"""

import math
from inspect import signature
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from mesu.posterior.noise import Noise
from mesu.posterior.results import MultiLabelPrediction, Prediction, RegressionPrediction
from mesu.registry import Registry
from mesu.rules.checks import positive


class Likelihood(Protocol):
    """What a likelihood has to say of outputs that were drawn `S` times for `B` examples."""

    def check(self, y: Tensor) -> None:
        """Raise a `ValueError` for targets that cannot be scored, before anything is learned."""
        ...

    def nll(self, out: Tensor, y: Tensor) -> Tensor:
        """The negative log-likelihood of the targets under outputs ``[S, B, ...]``: summed over `B`, averaged over `S`."""
        ...

    def summarise(self, out: Tensor) -> Any:
        """The prediction that outputs ``[S, B, ...]`` are together: a tensor ``[B, ...]``, or a dataclass of such tensors."""
        ...


LIKELIHOODS = Registry("likelihood", "mesu.likelihoods")
register = LIKELIHOODS.register


@register("categorical")
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

    def sample(self, out: Tensor, noise: Noise) -> Tensor:
        """A label for each row of outputs ``[B, C, ...]``, drawn with the probabilities that they give."""
        share = out.softmax(1).cumsum(1)
        drawn = (noise.uniform(share[:, :1]) + 1) / 2 * share[:, -1:]  # rounding may leave the last sum below 1
        return (share < drawn).sum(1).clamp_max(out.shape[1] - 1)

    def summarise(self, out: Tensor) -> Prediction:
        """The mean of the drawn class probabilities, and how uncertain it is."""
        return Prediction.from_scores(out)


@register("gaussian")
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
        _refuse_other_shape(out, y)
        error = (out - y) / self.noise_std
        constant = math.log(self.noise_std) + 0.5 * math.log(2 * math.pi)
        return (0.5 * error.square() + constant).sum() / out.shape[0]

    def sample(self, out: Tensor, noise: Noise) -> Tensor:
        """A target for each output, drawn with the noise of the observations."""
        return out + self.noise_std * noise.normal(out.shape, like=out)

    def summarise(self, out: Tensor) -> RegressionPrediction:
        """The mean of the drawn means, and the variances around it."""
        return RegressionPrediction.from_means(out, self.noise_std**2)


@register("bernoulli")
class Bernoulli:
    """Outputs ``[S, B, K]`` are scores of K labels, any number of which a row may have; targets ``[B, K]`` are 0 or 1."""

    def check(self, y: Tensor) -> None:
        """Refuse targets that are neither 0 nor 1."""
        wrong = (y != 0) & (y != 1)
        if wrong.any():
            where = tuple(int(i) for i in wrong.nonzero()[0])
            raise ValueError(
                f"each label must be 0 or 1, got {y[where].item()} at index {where}: "
                "make a column of 0 and 1 for every label"
            )

    def nll(self, out: Tensor, y: Tensor) -> Tensor:
        """Binary cross-entropy, summed over batch and labels and averaged over the samples."""
        _refuse_other_shape(out, y)
        wanted = y.to(out.dtype).expand_as(out)
        return F.binary_cross_entropy_with_logits(out, wanted, reduction="sum") / out.shape[0]

    def sample(self, out: Tensor, noise: Noise) -> Tensor:
        """Labels for each row, each one drawn with its probability."""
        return ((noise.uniform(out) + 1) / 2 < out.sigmoid()).to(out.dtype)

    def summarise(self, out: Tensor) -> MultiLabelPrediction:
        """The mean of the drawn probabilities of each label, and how uncertain it is."""
        return MultiLabelPrediction.from_scores(out)


def named(likelihood: str | Likelihood, noise_std: float = 1.0) -> Likelihood:
    """The likelihood that a user asked for, by its name or as an object.

    A registered likelihood is called without arguments, except that one with a parameter `noise_std` is given it.
    """
    if isinstance(likelihood, str):
        if likelihood not in LIKELIHOODS:
            raise ValueError(
                f"likelihood must be {', '.join(map(repr, LIKELIHOODS))}, or an object with check, nll and summarise, "
                f"got {likelihood!r}"
            )
        make = LIKELIHOODS[likelihood]
        return make(noise_std=noise_std) if "noise_std" in signature(make).parameters else make()
    if isinstance(likelihood, type):
        raise TypeError(f"likelihood must be an object, got the class {likelihood.__name__}: call it first")
    missing = [name for name in ("check", "nll", "summarise") if not callable(getattr(likelihood, name, None))]
    if missing:
        raise TypeError(
            f"likelihood must have the methods check, nll and summarise, and {type(likelihood).__name__} has no {missing[0]}"
        )
    return likelihood


def describe_bad(x: Tensor) -> str:
    """How many values are not finite and where the first is, for an error message."""
    bad = ~torch.isfinite(x)
    where = tuple(int(i) for i in bad.nonzero()[0])
    return f"{x[where].item()} at index {where} ({int(bad.sum())} of {x.numel()} values are not finite)"


def _refuse_other_shape(out: Tensor, y: Tensor) -> None:
    if out.shape[1:] != y.shape:
        raise ValueError(
            f"targets of shape {tuple(y.shape)} do not match the network's outputs {tuple(out.shape[1:])}: "
            "reshape the targets (y[:, None] for one output)"
        )
