"""Experiments: one file each. An experiment is a stream, learners and measures, and gives one tidy table."""

from mesu.experiments.permuted_digits import PermutedDigits

EXPERIMENTS = {"permuted-digits": PermutedDigits}

__all__ = ["EXPERIMENTS", "PermutedDigits"]
