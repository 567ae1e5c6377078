"""Learners: what an experiment trains. A learner consumes chunks of a stream and predicts with uncertainty."""

from mesu.learners.bayesian import BayesianLearner
from mesu.learners.learner import Learner
from mesu.learners.plain import WeightLearner

__all__ = ["BayesianLearner", "Learner", "WeightLearner"]
