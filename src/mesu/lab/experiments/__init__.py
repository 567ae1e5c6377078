"""Experiments: one folder each. An experiment is a stream, learners and measures, and gives one tidy table."""

import sys

from mesu.lab.experiments.animals.experiment import AnimalFamilies
from mesu.lab.experiments.cifar.experiment import CIFAR, SplitCIFAR10
from mesu.lab.experiments.dynamics.experiment import Dynamics
from mesu.lab.experiments.hessian.experiment import Hessian
from mesu.lab.experiments.permuted.digits import PermutedDigits
from mesu.lab.experiments.permuted.mnist import PermutedMNIST
from mesu.lab.experiments.vanishing.experiment import Vanishing
from mesu.lab.registry import experiments

for _kind in (PermutedDigits, PermutedMNIST, Vanishing, Hessian, Dynamics, AnimalFamilies, SplitCIFAR10, CIFAR):
    experiments.register(_kind.name)(_kind)  # in the order of `mesu list`


def about(name: str) -> str:
    """What an experiment shows, in a sentence: its own, else the first of its module's docstring, else of its own."""
    kind = experiments[name]
    docstring = sys.modules[kind.__module__].__doc__ or kind.__doc__ or ""
    return getattr(kind, "about", "") or docstring.strip().partition("\n")[0]


__all__ = [
    "CIFAR",
    "AnimalFamilies",
    "Dynamics",
    "Hessian",
    "PermutedDigits",
    "PermutedMNIST",
    "SplitCIFAR10",
    "Vanishing",
    "about",
    "experiments",
]
