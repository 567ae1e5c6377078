"""A posterior is a module: any network as a mean-field Gaussian over its weights, how it starts, and what its output means."""

from mesu.posterior.bayesian import Bayesian, Pair
from mesu.posterior.likelihood import (
    Bernoulli,
    Categorical,
    GaussianNoise,
    HeteroscedasticGaussian,
    Likelihood,
    Poisson,
)
from mesu.posterior.noise import Noise
from mesu.posterior.results import MultiLabelPrediction, Prediction, RegressionPrediction, Uncertainty

__all__ = [
    "Bayesian",
    "Bernoulli",
    "Categorical",
    "GaussianNoise",
    "HeteroscedasticGaussian",
    "Likelihood",
    "MultiLabelPrediction",
    "Noise",
    "Pair",
    "Poisson",
    "Prediction",
    "RegressionPrediction",
    "Uncertainty",
]
