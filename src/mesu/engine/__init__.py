"""Compiled code for the CPU: the same rules as `mesu.optim`, on scalars."""

from mesu.engine.compiled import compiled

__all__ = ["compiled"]
