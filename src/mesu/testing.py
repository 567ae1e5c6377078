"""Contract checks that other people run on their own rules, learners and streams, as this project runs them on its own.

`check_rule`, which is here, holds a rule's module to what `mesu.optim` and `mesu.engine` rely on. It raises `ContractBroken`,
which names the contract, at the first one that is broken. `check_learner` and `check_stream` (which needs ``mesu[lab]``) can be
imported from here, too.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numba.core.errors import NumbaError
from torch import Tensor

from mesu.engine.compiled import NotCompilable, compiled, typed
from mesu.engine.compiled import in_precision as _in_precision
from mesu.rules import Gaussian
from mesu.rules.curvature import gradient_of_sigma
from mesu.rules.parts import consolidates, curvature_constants, idle_constants, rule_of, setting_names, uses_fisher

ELSEWHERE = {"check_learner": "mesu.learners.contract", "check_stream": "mesu.lab.stream_contract"}
PRECISIONS: tuple[tuple[torch.dtype, Any, float], ...] = (
    (torch.float64, np.float64, 1e-11),  # tensors, scalars, and how far rounding may set them apart, relatively
    (torch.float32, np.float32, 1e-4),
)
# Means or weights; standard deviations; gradients of both. Of both signs and of usual sizes.
MEANS = (0.3, -1.2, 0.05, 2.0, -0.4, 0.9)
STDS = (0.05, 0.8, 0.3, 0.02, 0.11, 0.5)
SLOPES = (0.7, -3.0, 0.02, -0.4, 1.5, -0.06)
STD_SLOPES = (0.2, -0.4, 1.1, 0.9, -0.05, 0.01)
FISHER = (0.5, 2.0, 0.0, 0.3, 1.1, 0.04)
EXTREME = {torch.float64: 1e100, torch.float32: 1e15}  # gradients that a rule with `always_sound` survives


def __getattr__(name: str) -> Any:
    if name not in ELSEWHERE:
        raise AttributeError(f"module 'mesu.testing' has no attribute {name!r}")
    try:
        return getattr(import_module(ELSEWHERE[name]), name)
    except ImportError as error:  # says which package to install; an attribute must not raise anything else
        raise AttributeError(str(error)) from error


class ContractBroken(AssertionError):
    """A rule does not keep what the library relies on.

    Attributes:
        contract: The name of the contract, a key of `CONTRACTS`.
    """

    def __init__(self, rule: Any, contract: str, problem: str) -> None:
        self.contract = contract
        super().__init__(f"{getattr(rule, '__name__', rule)} breaks the contract {contract!r}: {problem}")


class _Broken(Exception):
    """A problem, without the names that `check_rule` adds."""


@dataclass(frozen=True)
class _Case:
    """A rule with settings to check it with."""

    rule: Any
    settings: Mapping[str, Any]
    always_sound: bool

    @property
    def posterior(self) -> bool:
        """Whether it is a posterior rule, ``step(q, g, c)``, and not a weight rule, ``step(w, g, state, c)``."""
        return len(setting_names(self.rule.step)) == 3

    @property
    def constants(self) -> Any:
        return self.rule.constants(**self.settings)


def check_rule(rule: Any, settings: Mapping[str, Any], *, always_sound: bool = False) -> None:
    """Check that a rule's module keeps every contract that the optimisers and the compiled engine rely on.

    The contracts, in this order:

    - *parts*: the module has its own `Constants`, a `constants` that builds them, a `step`, and what else its kind needs;
    - *settings*: `constants` refuses NaN and text for every setting, with a `ValueError` that names it;
    - *state*: `initial`, `step` and `consolidate` give a `State` with tensors of the weight's shape and precision;
    - *pure*: a step changes none of its arguments, and gives the same result twice;
    - *elementwise*: what happens to one weight does not depend on the others;
    - *precision*: single precision gives single precision, close to what double precision gives;
    - *zero gradient*: a gradient of zero leaves everything finite, and sigma positive;
    - *sound*: usual gradients leave everything finite; any finite gradient does, and sigma is positive, if `always_sound`;
    - *compiled*: as machine code on scalars, the rule gives what it gives on tensors, in the same precision;
    - *idle*: the constants that `idle` returns move nothing, to the bit;
    - *keeps positive*: no sigma turns negative where `keeps_positive` says so;
    - *curvature*: the step for a known curvature (`for_curvature`) is close to the step for the gradient of sigma that a small
      curvature gives, leaves sigma positive for every curvature, moves nothing where `idle` says so, and is `uncut_step`
      where `may_be_cut` says that no bound cuts it. *Pure* to *compiled* hold for it, too.

    Args:
        rule: The rule's module.
        settings: Settings that its `constants` takes, of sizes that are usual.
        always_sound: Whether the rule promises that no finite gradient breaks it, however large.

    Raises:
        ContractBroken: naming the rule, the contract and what is wrong.

    A posterior rule that has a state (`mesu.rules.paced`) is not checked.

    Example:
        >>> from mesu.rules import ewc
        >>> check_rule(ewc, {"lr": 0.1, "strength": 2.0})
    """
    case = _Case(rule, settings, always_sound)
    for name, check in CONTRACTS.items():
        try:
            check(case)
        except _Broken as broken:
            raise ContractBroken(rule, name, str(broken)) from broken.__cause__
        except Exception as error:
            raise ContractBroken(rule, name, f"it raises {type(error).__name__}: {error}") from error


# -- the contracts ----------------------------------------------------------------------------------------------------


def _check_parts(case: _Case) -> None:
    rule = case.rule
    for name in ("Constants", "constants", "step"):
        if not callable(getattr(rule, name, None)):
            raise _Broken(f"it has no {name}")
    arguments = len(setting_names(rule.step))
    if arguments not in (3, 4):
        raise _Broken(f"step takes (q, g, c) or (w, g, state, c), and this one takes {arguments} arguments")
    if arguments == 4 and "q" in setting_names(rule.step):
        raise _Broken(
            "step takes (q, g, state, c): posterior rules that remember more than mean and sigma are not checked here"
        )
    if not case.posterior:
        for name in ("State", "initial"):
            if not callable(getattr(rule, name, None)):
                raise _Broken(f"a weight rule needs {name}, and it has none")
    if sys.modules.get(rule.__name__) is not rule:
        raise _Broken(f"it is not the module that is imported as {rule.__name__!r}: import it, do not execute it")
    try:
        owner = rule_of(rule.Constants)
    except ValueError as error:
        raise _Broken(str(error)) from error
    if owner is not rule:
        raise _Broken(f"its Constants are those of {owner.__name__}: derive a class of its own from them")
    constants = case.constants
    if type(constants) is not rule.Constants:
        raise _Broken(f"constants(...) returns {type(constants).__name__}, not its own Constants")
    for name, value in zip(constants._fields, constants, strict=True):
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise _Broken(f"the constant {name} is {value!r}: every constant is a number or None")


def _check_settings(case: _Case) -> None:
    for name in case.settings:
        for bad in (math.nan, "text"):
            try:
                case.rule.constants(**{**case.settings, name: bad})
            except ValueError as error:
                if name not in str(error):
                    raise _Broken(f"the refusal of {name}={bad!r} does not name {name!r}: {error}") from error
            except Exception as error:
                raise _Broken(f"{name}={bad!r} raises {type(error).__name__}, not a ValueError: {error}") from error
            else:
                raise _Broken(f"constants takes {name}={bad!r}: refuse it with a ValueError (mesu.rules.checks)")


def _check_pure(case: _Case) -> None:
    for name, run, arguments in _functions(case, torch.float64):
        before = [value.clone() for value in _leaves(arguments)]
        first = [value.clone() for value in _leaves(run(*arguments))]
        if not _same(before, _leaves(arguments)):
            raise _Broken(f"{name} changes its arguments: compute new values, without operations in place")
        if not _same(first, _leaves(run(*arguments))):
            raise _Broken(f"{name} gives another result when it is called again with the same arguments")


def _check_elementwise(case: _Case) -> None:
    for name, run, arguments in _functions(case, torch.float64):
        whole = _leaves(run(*arguments))
        for index in range(len(MEANS)):
            alone = _leaves(run(*_at(arguments, slice(index, index + 1))))
            for value, part in zip(whole, alone, strict=True):
                if value.shape != (len(MEANS),) or part.shape != (1,):
                    raise _Broken(
                        f"{name} gives shapes {tuple(value.shape)} and {tuple(part.shape)} for 6 weights and 1"
                    )
                if not _close([value[index : index + 1]], [part], 1e-12):
                    raise _Broken(
                        f"{name} gives {part.item():.6g} for a weight alone and {value[index].item():.6g} among others"
                    )


def _check_precision(case: _Case) -> None:
    for (name, run, double), (_, _, single) in zip(
        _functions(case, torch.float64), _functions(case, torch.float32), strict=True
    ):
        for dtype, arguments in ((torch.float64, double), (torch.float32, single)):
            for value in _leaves(run(*arguments)):
                if value.dtype != dtype:
                    raise _Broken(f"{name} gives {value.dtype} for {dtype}")
        if not _close([v.double() for v in _leaves(run(*single))], _leaves(run(*double)), PRECISIONS[1][2]):
            raise _Broken(f"{name} in single precision is far from double precision: something cancels or overflows")


def _check_zero_gradient(case: _Case) -> None:
    for dtype, _, _ in PRECISIONS:
        _check_outcome(case, dtype, 0.0, positive=True)


def _check_sound(case: _Case) -> None:
    for dtype, _, _ in PRECISIONS:
        _check_outcome(case, dtype, 1e-3, positive=True)
        _check_outcome(case, dtype, 1.0, positive=case.always_sound)
        if case.always_sound:
            for scale in (1e3, -1e3, EXTREME[dtype], -EXTREME[dtype]):
                _check_outcome(case, dtype, scale, positive=True)


def _check_outcome(case: _Case, dtype: torch.dtype, scale: float, positive: bool) -> None:
    """Whether a step with gradients of some size is finite."""
    arguments = _step_arguments(case, dtype, scale)
    new = case.rule.step(*arguments)
    what = f"with gradients of size {scale:g} in {str(dtype).removeprefix('torch.')}"
    bad_sigma = case.posterior and not bool((new.std > 0).all())
    if not all(bool(torch.isfinite(value).all()) for value in _leaves(new)) and (positive or not case.posterior):
        raise _Broken(f"{what}, step gives NaN or infinity")
    if positive and bad_sigma:
        raise _Broken(f"{what}, step gives a sigma that is not positive: {new.std.min().item():.3g}")


def _check_state(case: _Case) -> None:
    if case.posterior:
        return
    for dtype, _, _ in PRECISIONS:
        w, g = (torch.tensor(values, dtype=dtype) for values in (MEANS, SLOPES))
        state = case.rule.initial(w)
        _check_one_state(case, "initial", state, w)
        state = case.rule.step(w, g, state, case.constants)[1]
        _check_one_state(case, "step", state, w)
        if consolidates(case.rule):
            fisher = (torch.tensor(FISHER, dtype=dtype),) if uses_fisher(case.rule) else ()
            state = case.rule.consolidate(w, state, *fisher, case.constants)
            _check_one_state(case, "consolidate", state, w)


def _check_one_state(case: _Case, name: str, state: Any, w: Tensor) -> None:
    if type(state) is not case.rule.State:
        raise _Broken(f"{name} gives {type(state).__name__}, not its State")
    for field, value in zip(state._fields, state, strict=True):
        shape = tuple(getattr(value, "shape", ()))
        if not isinstance(value, Tensor) or value.dtype != w.dtype or shape != tuple(w.shape):
            raise _Broken(f"{field} of {name} has shape {shape}, not the weight's {tuple(w.shape)} in {w.dtype}")
        if not torch.isfinite(value).all():
            raise _Broken(f"{field} of {name} is not finite")


def _check_compiled(case: _Case) -> None:
    for dtype, scalar, tolerance in PRECISIONS:
        for name, run, arguments in _functions(case, dtype):
            fast: Any = _machine_code(name, run, scalar)
            slow = _leaves(run(*arguments))
            for index in range(len(MEANS)):
                results = list(_scalars(_called(name, fast, _at(arguments, index), scalar)))
                mine = [torch.tensor(value, dtype=dtype) for value in results]
                if not _close(mine, [value[index] for value in slow], tolerance):
                    raise _Broken(
                        f"compiled {name} gives {[float(v) for v in mine]} and on tensors "
                        f"{[float(v[index]) for v in slow]} in {str(dtype).removeprefix('torch.')}"
                    )
            wide = "float64" if scalar is np.float32 else "float32"
            if wide in str(fast.nopython_signatures[-1].return_type):
                raise _Broken(
                    f"compiled {name} gives {wide} for {scalar.__name__}: a number in it has the wrong precision"
                )


def _check_idle(case: _Case) -> None:
    c = case.constants
    idle = idle_constants(c)
    if idle is None:
        return
    if type(idle) is not type(c) or [v is None for v in idle] != [v is None for v in c]:
        raise _Broken("idle must return Constants that are None where those it is given are")
    for dtype, scalar, _ in PRECISIONS:
        for zero in (0.0, -0.0):
            arguments = (*_step_arguments(case, dtype, zero)[:-1], idle)
            old, new = (_moved(case, value) for value in (arguments[0], case.rule.step(*arguments)))
            if not _same(old, new):
                raise _Broken(f"with a gradient of {zero} they move a weight on tensors of {dtype}")
            fast = _machine_code("step", case.rule.step, scalar)
            for index in range(len(MEANS)):
                result = _moved(case, _called("step", fast, _at(arguments, index), scalar))
                if any(scalar(value) != scalar(start[index]) for value, start in zip(result, old, strict=True)):
                    raise _Broken(f"with a gradient of {zero} they move a weight in compiled {scalar.__name__}")


def _check_keeps_positive(case: _Case) -> None:
    promise = getattr(case.rule, "keeps_positive", None)
    if not case.posterior or promise is None:
        return
    c = case.constants
    std = torch.tensor(STDS, dtype=torch.float64)
    zero = torch.zeros_like(std)
    for reach in [sign * 2.0**power for power in range(-8, 9) for sign in (1, -1)]:
        for share in (1.0, 0.5, 0.01):
            if bool(promise(reach, c)):
                new = case.rule.step(Gaussian(zero, std), Gaussian(zero, share * reach / std), c)
                if not bool((new.std > 0).all()):
                    raise _Broken(
                        f"it promises so for {reach:g}, and sigma * g_sigma = {share * reach:g} makes one negative"
                    )


def _check_curvature(case: _Case) -> None:
    if not case.posterior or curvature_constants(case.constants) is None:
        return
    for dtype, _, _ in PRECISIONS:
        name, step, (q, g, c) = next(_for_curvature(case, dtype))
        none, small = Gaussian(g.mean, 0.0 * g.std), Gaussian(g.mean, 1e-2 * g.std)
        through = Gaussian(g.mean, gradient_of_sigma(q.std, small.std))
        narrowed = step(q, none, c).std - step(q, small, c).std
        wanted = case.rule.step(q, none, case.constants).std - case.rule.step(q, through, case.constants).std
        if dtype == torch.float64 and bool(((narrowed - wanted).abs() > 0.3 * wanted.abs() + 1e-12).any()):
            raise _Broken(f"for small curvatures it narrows sigma by {narrowed.tolist()}, step by {wanted.tolist()}")
        for size in (0.0, 1.0, 1e3, EXTREME[dtype]):
            new = step(q, Gaussian(g.mean, size * g.std), c)
            if not (bool((new.std > 0).all()) and all(bool(torch.isfinite(value).all()) for value in new)):
                raise _Broken(
                    f"with curvatures of size {size:g}, {name} leaves a weight not finite or its sigma not positive"
                )
        _check_uncut(case, dtype)
        idle = idle_constants(case.constants)
        nothing = Gaussian(0.0 * g.mean, 0.0 * g.std)
        if idle is not None and not _same(list(q), list(step(q, nothing, curvature_constants(idle)))):
            raise _Broken("with constants made of idle ones it moves a weight")


def _check_uncut(case: _Case, dtype: torch.dtype) -> None:
    """Whether a step without bounds is the step, where the rule says so: for all weights together, and for each."""
    for scale in (1.0, 1e-2, 1e-4):
        (_, step, (q, g, c)), *more = _for_curvature(case, dtype, scale)
        for _, uncut, _ in more:
            whole, free = step(q, g, c), uncut(q, g, c)
            for index in (slice(None), *(slice(i, i + 1) for i in range(len(MEANS)))):
                most = [Gaussian(*(float(part[index].abs().max()) for part in value)) for value in (q, g)]
                one, other = ([value[index] for value in new] for new in (whole, free))
                if not rule_of(type(c)).may_be_cut(*most, c) and not _close(one, other, 1e-5):
                    raise _Broken(f"may_be_cut says that no bound cuts {most}, and uncut_step is not the step")


CONTRACTS: dict[str, Callable[[_Case], None]] = {
    "parts": _check_parts,
    "settings": _check_settings,
    "state": _check_state,
    "pure": _check_pure,
    "elementwise": _check_elementwise,
    "precision": _check_precision,
    "zero gradient": _check_zero_gradient,
    "sound": _check_sound,
    "compiled": _check_compiled,
    "idle": _check_idle,
    "keeps positive": _check_keeps_positive,
    "curvature": _check_curvature,
}


# -- what they are checked on -----------------------------------------------------------------------------------------


def _step_arguments(case: _Case, dtype: torch.dtype, scale: float = 1.0) -> tuple[Any, ...]:
    """Arguments of `step` for six weights, the gradients multiplied by `scale`."""
    mean, std, g_mean, g_std = (torch.tensor(v, dtype=dtype) for v in (MEANS, STDS, SLOPES, STD_SLOPES))
    if case.posterior:
        return Gaussian(mean, std), Gaussian(g_mean * scale, g_std * scale), case.constants
    return mean, g_mean * scale, _some_state(case, mean), case.constants


def _for_curvature(
    case: _Case, dtype: torch.dtype, scale: float = 1.0
) -> Iterator[tuple[str, Callable, tuple[Any, ...]]]:
    """The steps for a known curvature, with arguments; the gradients multiplied by `scale`."""
    c = curvature_constants(case.constants)
    if c is None:
        return
    q, g, _ = _step_arguments(case, dtype, scale)
    known = rule_of(type(c))
    for name in ("step", "uncut_step"):
        if hasattr(known, name):
            yield f"{name} for a curvature", getattr(known, name), (q, Gaussian(g.mean, g.std.abs()), c)


def _some_state(case: _Case, w: Tensor) -> Any:
    """A state that the rule came to by itself: by a step from elsewhere and, if it has boundaries, a consolidation."""
    start = w - 0.1
    start, state = case.rule.step(start, 0.5 * torch.ones_like(w), case.rule.initial(start), case.constants)
    if consolidates(case.rule):
        fisher = (torch.tensor(FISHER, dtype=w.dtype),) if uses_fisher(case.rule) else ()
        state = case.rule.consolidate(start, state, *fisher, case.constants)
    return state


def _consolidate_arguments(case: _Case, dtype: torch.dtype) -> tuple[Any, ...]:
    w, _, state, c = _step_arguments(case, dtype)
    fisher = (torch.tensor(FISHER, dtype=dtype),) if uses_fisher(case.rule) else ()
    return (w, state, *fisher, c)


def _functions(case: _Case, dtype: torch.dtype) -> Iterator[tuple[str, Callable, tuple[Any, ...]]]:
    """What is checked of a rule: its functions on weights, with arguments."""
    yield "step", case.rule.step, _step_arguments(case, dtype)
    if case.posterior:
        yield from _for_curvature(case, dtype)
    if not case.posterior and consolidates(case.rule):
        yield "consolidate", case.rule.consolidate, _consolidate_arguments(case, dtype)


def _leaves(value: Any) -> list[Tensor]:
    """The tensors in a result or in arguments."""
    if isinstance(value, Tensor):
        return [value]
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, tuple) else []


def _at(value: Any, index: Any) -> Any:
    """The same arguments for some of the weights."""
    if isinstance(value, Tensor):
        return value[index]
    if isinstance(value, tuple):
        parts = [_at(part, index) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def _moved(case: _Case, value: Any) -> list[Any]:
    """Of a posterior or of what a step gives, what the rule moves: mean and sigma, or the weight."""
    if case.posterior:
        return [*value]
    return [value[0] if isinstance(value, tuple) else value]


def _same(some: list[Tensor], others: list[Tensor]) -> bool:
    return all(bool(((a == b) | (a.isnan() & b.isnan())).all()) for a, b in zip(some, others, strict=True))


def _close(some: list[Tensor], others: list[Tensor], tolerance: float) -> bool:
    return all(
        torch.allclose(a, b, rtol=tolerance, atol=tolerance * 1e-2, equal_nan=True)
        for a, b in zip(some, others, strict=True)
    )


# -- compiled code ----------------------------------------------------------------------------------------------------


def _machine_code(name: str, function: Callable, precision: Any) -> Any:
    try:
        _in_precision(function, precision)
        return compiled(function, precision)
    except NotCompilable as error:
        raise _Broken(str(error)) from error


def _called(name: str, function: Any, arguments: tuple[Any, ...], precision: Any) -> Any:
    """A compiled function on one weight: the arguments as scalars in a precision."""

    def scalar(value: Any) -> Any:
        if isinstance(value, Tensor):
            return precision(value.item())
        return type(value)(*(scalar(part) for part in value)) if hasattr(value, "_fields") else value

    *numbers, c = arguments
    try:
        return function(*(scalar(value) for value in numbers), typed(c, precision))
    except NumbaError as error:
        line = str(error).strip().splitlines()[-1]
        raise _Broken(f"{name} cannot be compiled, use operators and mesu.rules.primitives only: {line}") from error


def _scalars(value: Any) -> Iterator[float]:
    if isinstance(value, tuple):
        for part in value:
            yield from _scalars(part)
    else:
        yield value
