"""Streams as `mesu.streams`; they live in `mesu.lab.streams`."""

from mesu.lab.streams import Domains, FirstExamples, InTurn, MultiHead, Permuted, Splits, Stationary, Stream, Task

__all__ = ["Domains", "FirstExamples", "InTurn", "MultiHead", "Permuted", "Splits", "Stationary", "Stream", "Task"]
