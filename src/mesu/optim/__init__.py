"""Rules as ordinary `torch.optim.Optimizer`s, for any module on any device.

A step is all or nothing: new values of every parameter are computed first, checked, and only then written, so a refused
step leaves the network as it was.
"""

from mesu.optim.posterior import FOOVB, MESU, BayesByBackprop, BayesianSynapse, PosteriorOptimizer
from mesu.optim.steps import StepRefused
from mesu.optim.weights import EWC, SGD, SI, EWCOnline, EWCStream, SIPerTask, WeightOptimizer

__all__ = [
    "EWC",
    "FOOVB",
    "MESU",
    "SGD",
    "SI",
    "BayesByBackprop",
    "BayesianSynapse",
    "EWCOnline",
    "EWCStream",
    "PosteriorOptimizer",
    "SIPerTask",
    "StepRefused",
    "WeightOptimizer",
]
