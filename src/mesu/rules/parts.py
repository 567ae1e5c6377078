"""The parts of a rule's module, and which rule a type of constants belongs to.

A rule is a module. Its `Constants` type identifies it: whoever holds the constants of a step finds the step. So a rule needs
no register, and one that is defined outside of this package is as good as those inside. Required are

    Constants         a NamedTuple of numbers (or None), defined in this module and in no other rule's
    constants(...)    checks the settings that a user gives and returns `Constants`
    step              ``step(q, g, c)`` of a posterior rule, ``step(w, g, state, c)`` of a weight rule
    State, initial    of a weight rule: a NamedTuple of what it remembers of a weight, and ``initial(w)`` to start from. A
                      posterior rule may have them too, ``initial(q)``: its step is then ``step(q, g, state, c)``, which returns
                      both, and only torch runs it

and optional are

    idle(c)           constants under which a step with zero gradients moves nothing, to the bit. The compiled engine then fuses
                      the first layer's update with the next example's product, which is faster
    keeps_positive(reach, c)
                      of a posterior rule: whether no sigma can turn negative while ``sigma * g_sigma`` lies between 0 and
                      `reach` (of either sign). Where it says so, the engine need not look at every sigma after every step
    scaled(c, precision)
                      of a posterior rule with constants in units of each weight's start: the constants of a weight that started
                      with this precision, 1/sigma_0^2
    for_curvature(c)  of a posterior rule that has a step for a curvature that is known, and not drawn: the constants of that
                      step, of a type that stands for a rule of its own (``step(q, g, c)``, with the curvature, never negative,
                      in place of sigma's gradient; it must leave sigma positive). Other rules are given the gradient of sigma
                      that `mesu.rules.curvature` makes of a curvature
    uncut_step, may_be_cut
                      of such a rule for a curvature: ``uncut_step(q, g, c)`` is its step without bounds, which the engine runs
                      where ``may_be_cut(q, g, c)``, told the largest |mean|, sigma, |gradient| and curvature of a row of
                      weights, says that no bound can cut the step of any of them
    consolidate       of a weight rule that is told of task boundaries: ``consolidate(w, state, c)``, or
                      ``consolidate(w, state, fisher, c)`` if it needs the Fisher diagonal of the task
    penalised, followed
                      of a weight rule that only adds a penalty to the gradient: see `mesu.rules`
"""

import inspect
import sys
from functools import lru_cache
from typing import Any


def rule_of(kind: type) -> Any:
    """The module of the rule that a type of constants belongs to.

    Raises:
        ValueError: if the type is not the `Constants` of a module with a `step`.
    """
    module = sys.modules.get(kind.__module__)
    if getattr(module, "Constants", None) is not kind or not callable(getattr(module, "step", None)):
        raise ValueError(
            f"{kind.__module__}.{kind.__qualname__} does not identify a rule: define a class Constants in the rule's own "
            "module, beside its step"
        )
    return module


def idle_constants(c: Any) -> Any | None:
    """Constants of the same rule that move nothing, or None if the rule has none."""
    idle = getattr(rule_of(type(c)), "idle", None)
    return None if idle is None else idle(c)


def scaled_constants(c: Any, precision: Any) -> Any:
    """The constants of weights that started with this precision (a number, or one for each weight)."""
    scaled = getattr(rule_of(type(c)), "scaled", None)
    return c if scaled is None else scaled(c, precision)


def curvature_constants(c: Any) -> Any | None:
    """The constants of the step for a curvature that is known, or None if the rule has no such step."""
    for_curvature = getattr(rule_of(type(c)), "for_curvature", None)
    return None if for_curvature is None else for_curvature(c)


def remembers(c: Any) -> bool:
    """Whether the rule of these constants remembers more of a weight than its value."""
    return hasattr(rule_of(type(c)), "State")


def consolidates(file: Any) -> bool:
    """Whether a rule does something at a task boundary."""
    return hasattr(file, "consolidate")


def uses_fisher(file: Any) -> bool:
    """Whether a rule needs the Fisher diagonal of a task that ended."""
    return consolidates(file) and "fisher" in setting_names(file.consolidate)


@lru_cache(maxsize=256)
def setting_names(function: Any) -> tuple[str, ...]:
    """Names of a function's arguments: of a rule's `constants`, the settings that its users give."""
    return tuple(inspect.signature(function).parameters)
