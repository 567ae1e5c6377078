"""What a prediction is: an average over drawn networks, and its uncertainty split in two (eq. mth18).

    total      TU = H[ mean_s p_s ]           entropy of the averaged prediction
    aleatoric  AU = mean_s H[ p_s ]           what stays uncertain however well the weights are known
    epistemic  EU = TU - AU                   mutual information of label and weights: what more data could settle

Entropies are in nats. For regression the same split is one of variances: EU is the spread of the drawn means, AU the
noise of the observations. The fields are torch tensors (from `mesu.predict`) or NumPy arrays (from the online models).
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Uncertainty(NamedTuple):
    """How uncertain each prediction is: entropies in nats, or variances in the target's units."""

    total: Any
    aleatoric: Any  # what stays, however much is learned
    epistemic: Any  # what more data could settle


@dataclass(frozen=True)
class Prediction:
    """Class probabilities ``[B, C]`` and the uncertainty ``[B]`` of each, in nats.

    Where a network gives classes for every pixel, they are ``[B, C, ...]`` and ``[B, ...]``.
    """

    probs: Any
    total: Any
    aleatoric: Any
    epistemic: Any

    @property
    def labels(self) -> Any:
        """The most probable class of each row."""
        return self.probs.argmax(1)

    @property
    def uncertainty(self) -> Uncertainty:
        """The three uncertainties as one tuple."""
        return Uncertainty(self.total, self.aleatoric, self.epistemic)

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
        total = _entropy(log_mean).sum(1)
        aleatoric = torch.minimum(_entropy(log_p).sum(2).mean(0), total)  # Jensen's inequality, past rounding
        return cls(log_mean.exp(), total, aleatoric, total - aleatoric)


@dataclass(frozen=True)
class RegressionPrediction:
    """The predictive mean and the variances that make it uncertain, all with the shape of the output."""

    mean: Any
    total: Any
    aleatoric: Any
    epistemic: Any

    @property
    def std(self) -> Any:
        """The predictive standard deviation: the root of the total variance."""
        return self.total**0.5

    @property
    def uncertainty(self) -> Uncertainty:
        """The three uncertainties as one tuple."""
        return Uncertainty(self.total, self.aleatoric, self.epistemic)

    @classmethod
    def from_means(cls, means: Tensor, noise_var: float) -> "RegressionPrediction":
        """Average drawn means ``[S, B, ...]`` observed with a noise of variance `noise_var`."""
        epistemic = means.var(0, correction=0)
        aleatoric = torch.full_like(epistemic, noise_var)
        return cls(means.mean(0), epistemic + aleatoric, aleatoric, epistemic)


@dataclass(frozen=True)
class MultiLabelPrediction:
    """For each of several labels the probability that a row has it, and how uncertain that is, in nats: all ``[B, K]``."""

    probs: Any
    total: Any
    aleatoric: Any
    epistemic: Any

    @property
    def labels(self) -> Any:
        """Which labels each row is more likely to have than not."""
        return self.probs > 0.5

    @property
    def uncertainty(self) -> Uncertainty:
        """The three uncertainties as one tuple."""
        return Uncertainty(self.total, self.aleatoric, self.epistemic)

    @classmethod
    def from_scores(cls, scores: Tensor) -> "MultiLabelPrediction":
        """Average drawn scores ``[S, B, ...]`` (before the sigmoid), each label for itself."""
        both = torch.stack([scores, torch.zeros_like(scores)], 2)  # the sigmoid of s is the softmax of s and 0
        split = Prediction.from_scores(both)
        return cls(split.probs[:, 0], *split.uncertainty)


def _entropy(log_p: Tensor) -> Tensor:
    """What each class adds to the entropy: -p log p, which is 0 at p = 0, where the logarithm is -inf."""
    return -torch.where(log_p > -math.inf, log_p.exp() * log_p, 0.0)
