"""What the network's output means: scores of classes, scores of several labels, the mean of a number (and its noise), a count.

A likelihood says three things of drawn outputs ``[S, B, ...]``: which targets it can score (`check`), what they cost the
posterior that learns (`nll`), and which prediction they give together (`summarise`). Any object with these three methods is a
likelihood: pass it as ``mesu.Bayesian(net, likelihood=MyLikelihood())``, or give it a name with `register`.

The estimator "linear" needs a fourth, ``sample(out, noise)``, which draws targets from outputs ``[B, ...]`` as the likelihood
has them. The slope of their cost then has mean 0, and the curvature of the likelihood as its covariance. Where `nll` is not
the logarithm of the probability that `sample` draws with (it weighs some targets, say), a fifth,
``drawn_nll(out, y, noise)``, gives a cost of drawn targets of which both is true.
"""

import math
from collections.abc import Sequence
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
        """One prediction from drawn outputs ``[S, B, ...]``: a tensor ``[B, ...]``, or a dataclass of such tensors."""
        ...


LIKELIHOODS = Registry("likelihood", "mesu.likelihoods")
register = LIKELIHOODS.register


@register("categorical")
class Categorical:
    """Outputs ``[S, B, C]`` are scores of C classes; targets are class numbers ``[B]``.

    For pictures and sequences the classes stay on that axis, as for `torch.nn.functional.cross_entropy`: outputs
    ``[S, B, C, ...]`` and targets ``[B, ...]``.

    Args:
        ignore_index: Targets of this value teach nothing: padding, or pixels without a label. None is no such value.
        class_weights: One number a class: an example of a class of weight 2 is evidence as if it had been seen twice.
        label_smoothing: Share of each target that is spread over all classes.
    """

    def __init__(
        self,
        ignore_index: int | None = None,
        class_weights: Tensor | Sequence[float] | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        if ignore_index is not None and int(ignore_index) != ignore_index:
            raise ValueError(f"ignore_index must be a whole number or None, got {ignore_index!r}")
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must be 0 or greater and below 1, got {label_smoothing!r}")
        self.ignore_index = None if ignore_index is None else int(ignore_index)
        self.class_weights = None if class_weights is None else _checked_weights(class_weights)
        self.label_smoothing = float(label_smoothing)

    @property
    def plain(self) -> bool:
        """Whether every example counts alike, at its own label."""
        return self.ignore_index is None and self.class_weights is None and self.label_smoothing == 0

    def check(self, y: Tensor) -> None:
        """Refuse targets that are not class numbers."""
        if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
            raise ValueError(
                f"class labels must be integers, got {y.dtype}: convert them with y.long(), "
                "or use Bayesian(..., likelihood='gaussian') for regression"
            )
        y = self._scored(y)
        if y.numel() and int(y.min()) < 0:
            raise ValueError(
                f"class labels must be 0 or greater, got {int(y.min())}: for rows without a label, take "
                f"Bayesian(..., likelihood=mesu.posterior.Categorical(ignore_index={int(y.min())}))"
            )

    def nll(self, out: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy, summed over the batch and averaged over the samples: weights are not divided by their sum."""
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
        scored = y if torch.compiler.is_compiling() else self._scored(y)
        if not torch.compiler.is_compiling() and scored.numel() and int(scored.max()) >= out.shape[2]:
            only = ", and two for a choice of two" if out.shape[2] == 1 else ""
            raise ValueError(
                f"label {int(scored.max())} is outside the head, which has {out.shape[2]} classes "
                f"(0 to {out.shape[2] - 1}): give the last layer an output for every class{only}"
            )
        repeated = y.long().expand(out.shape[0], *y.shape).flatten(0, 1)
        cost = F.cross_entropy(
            out.flatten(0, 1),
            repeated,
            self._weights(out, 2),
            ignore_index=-100 if self.ignore_index is None else self.ignore_index,
            reduction="sum",
            label_smoothing=self.label_smoothing,
        )
        return cost / out.shape[0]

    def sample(self, out: Tensor, noise: Noise) -> Tensor:
        """A label for each row of outputs ``[B, C, ...]``, drawn with the probabilities that they give."""
        share = out.softmax(1).cumsum(1)
        drawn = (noise.uniform(share[:, :1]) + 1) / 2 * share[:, -1:]  # rounding may leave the last sum below 1
        return (share < drawn).sum(1).clamp_max(out.shape[1] - 1)

    def drawn_nll(self, out: Tensor, y: Tensor, noise: Noise) -> Tensor:
        """The cost of drawn labels, each at the root of its example's share in the curvature.

        A target that puts the mass m on all classes together costs m times the curvature of one label, whichever they are.
        """
        drawn = self.sample(out.detach(), noise)
        if self.plain:
            return F.cross_entropy(out, drawn, reduction="sum")
        return (F.cross_entropy(out, drawn, reduction="none") * self._mass(out, y).sqrt()).sum()

    def _mass(self, out: Tensor, y: Tensor) -> Tensor:
        """How much each target weighs."""
        kept = torch.ones_like(y, dtype=torch.bool) if self.ignore_index is None else y != self.ignore_index
        weights = self._weights(out, 1)
        if weights is None:
            return kept.to(out.dtype)
        own = weights[torch.where(kept, y, 0).long()]
        smooth = self.label_smoothing
        return kept * ((1 - smooth) * own + smooth * weights.mean())

    def _weights(self, out: Tensor, axis: int) -> Tensor | None:
        """The weights of the classes, which are on this axis of the outputs."""
        if self.class_weights is None:
            return None
        if len(self.class_weights) != out.shape[axis]:
            raise ValueError(
                f"there are {len(self.class_weights)} class_weights for {out.shape[axis]} classes: give one for each output"
            )
        return self.class_weights.to(out.device, out.dtype)

    def _scored(self, y: Tensor) -> Tensor:
        """The targets that count."""
        return y if self.ignore_index is None else y[y != self.ignore_index]

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


@register("heteroscedastic")
class HeteroscedasticGaussian:
    """A number and its noise: outputs ``[S, B, 2 K, ...]`` are K means and K log noise stds of targets ``[B, K, ...]``.

    The network learns for each input how much its targets scatter, which `GaussianNoise` has to be told.
    """

    def check(self, y: Tensor) -> None:
        """Refuse targets that are not finite real numbers."""
        GaussianNoise().check(y)

    def nll(self, out: Tensor, y: Tensor) -> Tensor:
        """Negative log density, summed over the batch and averaged over the samples."""
        mean, log_std = self._halves(out, 2)
        if mean.shape[1:] != y.shape:
            raise ValueError(
                f"targets of shape {tuple(y.shape)} do not match the network's outputs {tuple(out.shape[1:])}: there must be "
                "two outputs for each target, its mean and the logarithm of its noise's standard deviation (y[:, None] for "
                "one target a row)"
            )
        error = (mean - y) * torch.exp(-log_std)
        return (0.5 * error.square() + log_std + 0.5 * math.log(2 * math.pi)).sum() / out.shape[0]

    def sample(self, out: Tensor, noise: Noise) -> Tensor:
        """A target for each pair of outputs ``[B, 2 K, ...]``."""
        mean, log_std = self._halves(out, 1)
        return mean + torch.exp(log_std) * noise.normal(mean.shape, like=out)

    def summarise(self, out: Tensor) -> RegressionPrediction:
        """The mean of the drawn means, their variance, and the mean of the drawn noise variances."""
        mean, log_std = self._halves(out, 2)
        return _regression(mean, torch.exp(2 * log_std))

    def _halves(self, out: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        if out.dim() <= axis or out.shape[axis] % 2:
            raise ValueError(
                f"the network gave outputs of shape {tuple(out.shape[axis - 1 :])}: there must be two for each target, "
                "[batch, 2 * targets], first the means and then the logarithms of the noise's standard deviations"
            )
        mean, log_std = out.chunk(2, axis)
        return mean, log_std


@register("poisson")
class Poisson:
    """Outputs ``[S, B, ...]`` are logarithms of rates; targets ``[B, ...]`` are counts."""

    def check(self, y: Tensor) -> None:
        """Refuse targets that are no counts."""
        wrong = ~(torch.isfinite(y) & (y >= 0) & (y == y.floor()) if y.is_floating_point() else y >= 0)
        if wrong.any():
            where = tuple(int(i) for i in wrong.nonzero()[0])
            raise ValueError(f"counts must be whole and 0 or greater, got {y[where].item()} at index {where}")

    def nll(self, out: Tensor, y: Tensor) -> Tensor:
        """Negative log probability, summed over the batch and averaged over the samples."""
        _refuse_other_shape(out, y)
        y = y.to(out.dtype)
        return (out.exp() - y * out + torch.lgamma(y + 1)).sum() / out.shape[0]

    def sample(self, out: Tensor, noise: Noise) -> Tensor:
        """A count for each output."""
        return noise.poisson(out.exp())

    def summarise(self, out: Tensor) -> RegressionPrediction:
        """The mean of the drawn rates, which is the noise of a count too, and their variance."""
        rate = out.exp()
        return _regression(rate, rate)


def drawn_cost(likelihood: Any, out: Tensor, y: Tensor, noise: Noise) -> Tensor:
    """A cost of targets drawn for outputs ``[B, ...]``, whose slope squares to the curvature of the likelihood on average.

    The likelihood's own `drawn_nll`, unless a subclass has replaced the `nll` that it belongs to.
    """
    for kind in type(likelihood).__mro__:
        if "drawn_nll" in vars(kind):
            return likelihood.drawn_nll(out, y, noise)
        if "nll" in vars(kind):
            break
    return likelihood.nll(out[None], likelihood.sample(out.detach(), noise))


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


def _regression(means: Tensor, noise_vars: Tensor) -> RegressionPrediction:
    """Drawn means, each with the variance of its noise, as one prediction."""
    epistemic, aleatoric = means.var(0, correction=0), noise_vars.mean(0)
    return RegressionPrediction(means.mean(0), epistemic + aleatoric, aleatoric, epistemic)


def _checked_weights(weights: Tensor | Sequence[float]) -> Tensor:
    weights = torch.as_tensor(weights, dtype=torch.float64).detach()
    if weights.dim() != 1 or not torch.isfinite(weights).all() or (weights < 0).any() or not (weights > 0).any():
        raise ValueError(f"class_weights must be one number for each class, none negative and not all 0, got {weights}")
    return weights
