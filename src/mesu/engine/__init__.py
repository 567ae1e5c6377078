"""Compiled code for the CPU: the same rules as `mesu.optim`, in loops with no Python between examples."""

from mesu.engine.compiled import compiled
from mesu.engine.run import PosteriorEngine, WeightEngine, learn_together
from mesu.engine.supports import EngineFallback, why_not

__all__ = ["EngineFallback", "PosteriorEngine", "WeightEngine", "compiled", "learn_together", "why_not"]
