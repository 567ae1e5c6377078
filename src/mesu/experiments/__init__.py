"""Experiments: one file each. An experiment is a stream, learners and measures, and gives one tidy table."""

from mesu.experiments.permuted_digits import PermutedDigits
from mesu.experiments.permuted_mnist import PermutedMNIST

EXPERIMENTS = {"permuted-digits": PermutedDigits, "permuted-mnist": PermutedMNIST}

__all__ = ["EXPERIMENTS", "PermutedDigits", "PermutedMNIST"]
