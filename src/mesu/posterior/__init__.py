"""A posterior is a module: any network as a mean-field Gaussian over its weights, how it starts, and what its output means."""

from mesu.posterior.bayesian import Bayesian, Pair
from mesu.posterior.likelihood import Categorical, GaussianNoise, Likelihood
from mesu.posterior.noise import Noise

__all__ = ["Bayesian", "Categorical", "GaussianNoise", "Likelihood", "Noise", "Pair"]
