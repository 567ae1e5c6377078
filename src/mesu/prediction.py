"""Predictions and what is not known about them: total, aleatoric and epistemic uncertainty (eq. mth18).

    total      TU = H[ mean_s p_s ]           entropy of the averaged prediction
    aleatoric  AU = mean_s H[ p_s ]           what stays uncertain however well the weights are known
    epistemic  EU = TU - AU                   mutual information of label and weights: what more data could settle

Entropies are in nats. For regression the same split is one of variances: EU is the spread of the drawn means, AU the
noise of the observations.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mesu.posterior.bayesian import Bayesian
from mesu.posterior.likelihood import GaussianNoise, describe_bad
from mesu.posterior.noise import Noise

# Rows times samples that one vectorised pass may hold; more is cut into chunks.
BUDGET = 1 << 17


@dataclass(frozen=True)
class Prediction:
    """Class probabilities ``[B, C]`` and the uncertainty ``[B]`` of each, in nats.

    Where a network gives classes for every pixel, they are ``[B, C, ...]`` and ``[B, ...]``.
    """

    probs: Tensor
    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor

    @property
    def labels(self) -> Tensor:
        """The most probable class of each row."""
        return self.probs.argmax(1)

    @classmethod
    def from_scores(cls, scores: Tensor) -> "Prediction":
        """Average drawn class scores ``[S, B, C, ...]`` (before softmax) into one prediction.

        Worked in logarithms throughout, so that certain predictions give zeros and not NaN.
        """
        if scores.dim() < 3:
            raise ValueError(
                f"the network gave outputs of shape {tuple(scores.shape[1:])}: a classifier must give [batch, classes], and "
                "needs a batch of inputs (x[None] for one)"
            )
        log_p = scores.log_softmax(2)
        log_mean = log_p.logsumexp(0) - math.log(scores.shape[0])
        total = _entropy(log_mean, 1)
        aleatoric = torch.minimum(_entropy(log_p, 2).mean(0), total)  # Jensen's inequality, past rounding
        return cls(log_mean.exp(), total, aleatoric, total - aleatoric)


@dataclass(frozen=True)
class RegressionPrediction:
    """The predictive mean and the variances that make it uncertain, all with the shape of the output."""

    mean: Tensor
    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor

    @property
    def std(self) -> Tensor:
        """The predictive standard deviation: the root of the total variance."""
        return self.total.sqrt()

    @classmethod
    def from_means(cls, means: Tensor, noise_var: float) -> "RegressionPrediction":
        """Average drawn means ``[S, B, ...]`` observed with a noise of variance `noise_var`."""
        epistemic = means.var(0, correction=0)
        aleatoric = torch.full_like(epistemic, noise_var)
        return cls(means.mean(0), epistemic + aleatoric, aleatoric, epistemic)


def _entropy(log_p: Tensor, classes: int) -> Tensor:
    # p log p is 0 at p = 0, where the logarithm is -inf
    return -torch.where(log_p > -math.inf, log_p.exp() * log_p, 0.0).sum(classes)


def summarise(net: nn.Module, out: Tensor) -> Prediction | RegressionPrediction:
    """Drawn outputs ``[S, B, ...]`` of a network as a prediction, by its likelihood."""
    likelihood = getattr(net, "likelihood", None)
    if isinstance(likelihood, GaussianNoise):
        return RegressionPrediction.from_means(out, likelihood.noise_std**2)
    return Prediction.from_scores(out)


def predict(net: nn.Module, x: Tensor, samples: int = 100, *, seed: int = 0, chunk: int | None = None, **kwargs) -> Any:
    """Predict with uncertainty, averaging over `samples` draws of all weights.

    The draws come from `seed`, not from the network's own noise: predicting never changes what training will do, and the
    same call gives the same answer. All rows see the same draws of the weights. Dropout is off while predicting.

    Args:
        net: A `Bayesian`; a plain module works too and has no epistemic uncertainty.
        x: Inputs ``[B, ...]``. Large ones are worked through in chunks.
        samples: Draws of the weights.
        seed: Where the draws begin.
        chunk: Rows at a time; by default as many as fit a fixed budget.
        **kwargs: Passed on to the network's forward (a head's name, say).

    Returns:
        A `Prediction` (`probs`, `total`, `aleatoric`, `epistemic`) or, for a Gaussian likelihood, a
        `RegressionPrediction` (`mean` and the same three as variances).

    Raises:
        ValueError: for an input that is empty, or not finite, or does not fit a `Bayesian`.

    Example:
        >>> net = mesu.Bayesian(nn.Linear(4, 3), seed=0)
        >>> p = mesu.predict(net, torch.zeros(2, 4), samples=10)
        >>> p.probs.shape, bool((p.total >= p.epistemic).all())
        (torch.Size([2, 3]), True)
    """
    if not isinstance(samples, int) or samples < 1:
        raise ValueError(f"samples must be a whole number, 1 or more, got {samples!r}")
    if not isinstance(x, Tensor):
        raise TypeError(f"inputs must be a tensor, got {type(x).__name__}: take torch.as_tensor(x)")
    if x.dim() == 0 or x.shape[0] == 0:
        raise ValueError(f"there is nothing to predict: got an input of shape {tuple(x.shape)}")
    if x.is_floating_point() and not torch.isfinite(x).all():
        raise ValueError(f"inputs must be finite, got {describe_bad(x)}: drop or fill those rows first")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be 1 row or more, got {chunk!r}")
    rows = chunk or max(1, BUDGET // samples)
    parts = []
    modes = {module: module.training for module in net.modules()}
    net.eval()
    try:
        with torch.no_grad():
            for part in x.split(rows):
                if isinstance(net, Bayesian):
                    # the same seed for every chunk: every row meets the same draws of the weights
                    out = net.sample(part, samples=samples, noise=Noise(seed), estimator="weights", **kwargs)
                else:
                    out = net(part, **kwargs)
                    out = out[None] if isinstance(out, Tensor) else out
                if not isinstance(out, Tensor):
                    raise TypeError(
                        f"the network gives a {type(out).__name__}, and a prediction wants one tensor: wrap it in a module "
                        "that gives its scores alone"
                    )
                parts.append(summarise(net, out))
    finally:
        for module, mode in modes.items():
            module.training = mode
    kind = type(parts[0])
    return kind(*(torch.cat([getattr(part, field) for part in parts]) for field in kind.__dataclass_fields__))
