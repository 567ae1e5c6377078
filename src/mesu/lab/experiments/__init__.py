"""Experiments: one file each. An experiment is a stream, learners and measures, and gives one tidy table."""

import sys

from mesu.lab.experiments.animals.experiment import AnimalFamilies
from mesu.lab.experiments.cifar.experiment import CIFAR, SplitCIFAR10
from mesu.lab.experiments.dynamics.experiment import Dynamics
from mesu.lab.experiments.hessian.experiment import Hessian
from mesu.lab.experiments.permuted.digits import PermutedDigits
from mesu.lab.experiments.permuted.mnist import PermutedMNIST
from mesu.lab.experiments.vanishing.experiment import Vanishing

EXPERIMENTS = {
    kind.name: kind
    for kind in (PermutedDigits, PermutedMNIST, Vanishing, Hessian, Dynamics, AnimalFamilies, SplitCIFAR10, CIFAR)
}


def about(name: str) -> str:
    """What an experiment shows, in a sentence: its own, or else the one that its file begins with."""
    kind = EXPERIMENTS[name]
    file = (sys.modules[kind.__module__].__doc__ or "").strip()
    return getattr(kind, "about", "") or file.partition("\n")[0]


__all__ = [
    "CIFAR",
    "EXPERIMENTS",
    "AnimalFamilies",
    "Dynamics",
    "Hessian",
    "PermutedDigits",
    "PermutedMNIST",
    "SplitCIFAR10",
    "Vanishing",
    "about",
]
