"""Rules compiled for scalars. Nothing is rewritten: numba compiles the functions of `mesu.rules` themselves.

Python's numbers are doubles, and one double among single-precision numbers makes the whole expression double. So the
literals of a rule (0.5, 1.0, ...) are given the precision of the weights before it is compiled: `in_precision`.
"""

import math
import types as python_types
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba.extending import overload

from mesu import rules

# Sums may be reordered and multiply-adds fused, which is what vectorises; NaN and infinity keep their meaning. Loops that
# make no arrays need not count references to them (_nrt): at one example an update, the counting was a tenth of the time.
FLAGS: Any = {"fastmath": {"reassoc", "contract", "nsz", "arcp"}, "error_model": "numpy", "nogil": True, "_nrt": False}


def _precision(value) -> type:
    """The numpy type of a numba type: what literals beside it should be."""
    return np.float32 if value == numba.float32 else np.float64


def in_precision(function: Callable, precision: type) -> Callable:
    """The same function with its literals, and the numbers it names, in another precision."""
    code = function.__code__
    constants = tuple(precision(c) if isinstance(c, float) else c for c in code.co_consts)
    names = {
        name: precision(value) if isinstance(value, float) and math.isfinite(value) else value
        for name, value in function.__globals__.items()
    }
    return python_types.FunctionType(code.replace(co_consts=constants), names, function.__name__)


@overload(rules.primitives.between, jit_options=FLAGS)
def _between(x, low, high):
    # NaN stays NaN, as with clamp: both comparisons are false for it. One after the other, each is a single instruction.
    def clamp(x, low, high):
        raised = low if x < low else x
        return high if raised > high else raised

    return clamp


@overload(rules.primitives.root, jit_options=FLAGS)
def _root(x):
    return lambda x: np.sqrt(x)


def _callable_from_rules(function: Callable, number: Callable) -> None:
    """Let compiled rules call a helper by its name; `number` picks, from the helper's arguments, one of the weights."""

    @overload(function, jit_options=FLAGS, strict=False)
    def typed(*arguments):
        return in_precision(function, _precision(number(*arguments)))


_callable_from_rules(rules.bounds.trust_region, lambda old, new, max_step: old[0])
_callable_from_rules(rules.bounds.within, lambda step, max_step: step)
_callable_from_rules(rules.bounds.near, lambda new, std, max_step: new)
_callable_from_rules(rules.bounds.narrow, lambda std, max_std: std)
_callable_from_rules(rules.mesu.solve, lambda q, g, c: q[0])
for _file in (rules.ewc, rules.ewc_online, rules.si, rules.si_per_task):
    _callable_from_rules(_file.penalised, lambda w, g, state, c: w)
for _file in (rules.si, rules.si_per_task):
    _callable_from_rules(_file.followed, lambda w, new, g, state: w)


@cache
def compiled(function: Callable, precision: type = np.float64) -> Callable:
    """A rule's `step` or `consolidate` as machine code on scalars.

    Example:
        >>> from mesu.rules import sgd
        >>> compiled(sgd.step)(1.0, 2.0, sgd.State(), sgd.constants(lr=0.5))
        (0.0, State())
    """
    return numba.njit(in_precision(function, precision), **FLAGS)
