"""Rules compiled for scalars. Nothing is rewritten: numba compiles the functions of the rule's module themselves.

Python's numbers are doubles, and one double among single-precision numbers makes the whole expression double. So a function is
first given the precision of the weights (`in_precision`): its literals (0.5, 1.0, ...), the numbers that it names, and the
functions that it calls, wherever they are defined.
"""

import dis
import hashlib
import types as python_types
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from numba.core.errors import NumbaError
from numba.core.registry import cpu_target
from numba.extending import overload

from mesu import rules
from mesu.engine import machine_code
from mesu.engine.lanes import LanesType, square_root

# Sums may be reordered and multiply-adds fused, so that the compiler can use vectors; NaN and infinity keep their meaning.
# Loops that make no arrays need not count references to them (_nrt): at one example an update, that was a tenth of the time.
FLAGS: Any = {"fastmath": {"reassoc", "contract", "nsz", "arcp"}, "error_model": "numpy", "nogil": True, "_nrt": False}
GLOBALS, ATTRIBUTES = ("LOAD_GLOBAL", "LOAD_NAME"), ("LOAD_ATTR", "LOAD_METHOD")  # instructions that name something


class NotCompilable(ValueError):
    """A rule uses something that has no compiled form."""


@overload(rules.primitives.between, jit_options=FLAGS)
def _between(x, low, high):
    # NaN stays NaN, as with clamp: both comparisons are false for it. One after the other, each is a single instruction.
    def clamp(x, low, high):
        raised = low if x < low else x
        return high if raised > high else raised

    return clamp


@overload(rules.primitives.root, jit_options=FLAGS)
def _root(x):
    if isinstance(x, LanesType):
        return lambda x: square_root(x)
    return lambda x: np.sqrt(x)


@cache
def compiled(function: Callable, precision: type = np.float64) -> Callable:
    """A rule's `step` or `consolidate` as machine code on scalars.

    Raises:
        NotCompilable: if it uses something that has no compiled form.

    Example:
        >>> from mesu.rules import sgd
        >>> compiled(sgd.step)(1.0, 2.0, sgd.State(), sgd.constants(lr=0.5))
        (0.0, State())
    """
    return numba.njit(in_precision(function, precision), **FLAGS)


@cache
def in_precision(function: Callable, precision: type) -> Any:
    """The same function with its literals, the numbers it names and the functions it calls in another precision."""
    return _in_precision(function, precision, ())


def precision_of(value: Any) -> type:
    """The numpy type of a numba type: what literals beside it should be."""
    value = value.dtype if isinstance(value, LanesType) else value
    return np.float32 if value == numba.float32 else np.float64


def typed(constants: Any, dtype: type) -> Any:
    """A rule's constants in the precision of the weights."""
    return type(constants)(*(value if value is None else dtype(value) for value in constants))


def _in_precision(function: Any, precision: type, callers: tuple) -> Any:
    if function in callers:
        raise NotCompilable(f"{_name(function)} calls itself: a rule is arithmetic on one weight, without recursion")
    callers = (*callers, function)
    code = function.__code__

    def convert(name: str, value: Any) -> Any:
        return _value_in_precision(f"{_name(function)} uses {name}", value, precision, callers)

    names: dict[str, Any] = {"__name__": function.__module__}
    for path, value in _globals(function):
        *modules, last = path
        place = names
        for module in modules:
            place = vars(place.setdefault(module, ModuleType(module)))
        place[last] = convert(".".join(path), value)
    cells = tuple(python_types.CellType(convert(name, value)) for name, value in _closure(function))
    defaults = tuple(convert("a default", value) for value in function.__defaults__ or ())
    constants = tuple(_literal_in_precision(value, precision) for value in code.co_consts)
    twin = FunctionType(code.replace(co_consts=constants), names, function.__name__, defaults or None, cells or None)
    twin.__kwdefaults__ = {
        name: convert(name, value) for name, value in (function.__kwdefaults__ or {}).items()
    } or None
    return twin


def _value_in_precision(where: str, value: Any, precision: type, callers: tuple) -> Any:
    """What a name in a function stands for, ready to be compiled."""
    if isinstance(value, (float, tuple)) and not hasattr(value, "_fields"):
        return _literal_in_precision(value, precision)
    if isinstance(value, FunctionType) and not _known_to_numba(value):
        return numba.njit(_in_precision(value, precision, callers), **FLAGS)
    if isinstance(value, ModuleType) or not _known_to_numba(value):
        raise NotCompilable(f"{where}, which has no compiled form: use operators and mesu.rules.primitives")
    return value


def _literal_in_precision(value: Any, precision: type) -> Any:
    if isinstance(value, float):
        with np.errstate(over="ignore"):  # a bound beyond single precision becomes infinity there
            return precision(value)
    if type(value) is tuple:
        return tuple(_literal_in_precision(part, precision) for part in value)
    return value


def _known_to_numba(value: Any) -> bool:
    context: Any = cpu_target.typing_context
    context.refresh()
    try:
        context.resolve_value_type(value)
    except (NumbaError, ValueError, TypeError):
        return False
    return True


def on_disk(label: str = "", flags: Mapping[str, Any] = FLAGS) -> Callable[[Any], Any]:
    """A decorator that compiles a loop and keeps it on disk, so that every process runs the same machine code.

    Args:
        label: What tells the loops that one function builds apart, and changes with what they are built of.
        flags: How to compile it.
    """

    def decorate(function: Any) -> Any:
        if label:
            # numba names the machine code after this
            function.__qualname__ = f"{function.__name__}_{label}"
        return machine_code.loop(function, lambda: label or fingerprint([function]), flags)

    return decorate


def fingerprint(functions: list[Any]) -> str:
    """A digest of functions with all that they use: it changes with a literal, a number they name, or a function they call."""
    return hashlib.sha256("\n".join(_description(functions, set())).encode()).hexdigest()


def _description(values: list[Any], seen: set[int]) -> Iterator[str]:
    for value in values:
        value = getattr(value, "py_func", value)  # of a function that numba has compiled
        if id(value) in seen:
            continue
        if not isinstance(value, FunctionType) or _known_to_numba(value):
            yield _stable(value)
            continue
        seen.add(id(value))
        yield _stable(value.__code__)
        yield _stable(value.__defaults__)
        yield _stable(value.__kwdefaults__ and tuple(sorted(value.__kwdefaults__.items())))
        for name, used in (*_globals(value), *_closure(value)):
            yield _stable(name)
            yield from _description([used], seen)


def _stable(value: Any) -> str:
    """A text that is the same in every process."""
    if isinstance(value, CodeType):
        inside = (value.co_code.hex(), value.co_names, value.co_varnames, value.co_freevars, value.co_consts)
        return _stable(inside)
    if isinstance(value, (tuple, list)):
        return f"({', '.join(_stable(part) for part in value)})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(_stable(part) for part in value))}}}"
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, (np.generic, np.ndarray)):
        return f"{value.dtype} {value.shape} {value.tobytes().hex()}"
    name = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{getattr(value, '__module__', '')} {name} {getattr(value, '_fields', '')}"


def _paths(code: CodeType) -> set[tuple[str, ...]]:
    """The dotted names that begin with a global, as a function and those inside it use them: ("bounds", "within"), say."""
    paths = set().union(*(_paths(part) for part in code.co_consts if isinstance(part, CodeType)))
    path: tuple[str, ...] = ()
    for step in dis.get_instructions(code):
        if step.opname in GLOBALS:
            paths.add(path)
            path = (step.argval,)
        elif path and step.opname in ATTRIBUTES:
            path = (*path, step.argval)
        else:
            paths.add(path)
            path = ()
    return paths - {()}


def _globals(function: Any) -> list[tuple[tuple[str, ...], Any]]:
    """What a function uses of its module, in a fixed order: dotted names, as far as they lead through modules, and values."""
    found: dict[tuple[str, ...], Any] = {}
    for path in _paths(function.__code__):
        if path[0] not in function.__globals__:
            continue  # one of Python's own
        value, length = function.__globals__[path[0]], 1
        while isinstance(value, ModuleType) and length < len(path):
            if not hasattr(value, path[length]):
                raise NotCompilable(f"{_name(function)} uses {'.'.join(path)}, which does not exist")
            value, length = getattr(value, path[length]), length + 1
        found[path[:length]] = value
    return sorted(found.items())


def _closure(function: Any) -> list[tuple[str, Any]]:
    return [
        (name, cell.cell_contents)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    ]


def _name(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}"
