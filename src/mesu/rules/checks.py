"""Checks of settings, for rules and everything above them: every refusal names the value and the remedy."""

from math import isfinite, isnan
from numbers import Integral
from typing import Any


def whole(name: str, value: Any, least: int = 1) -> int:
    """`value` as an `int` if it is a whole number, `least` or more, else `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be a whole number, {least} or more, got {value!r}")
    return int(value)


def number(name: str, value: float) -> float:
    """`value` if it is a number, else `ValueError`."""
    try:
        if isinstance(value, (str, bytes, bool)):
            raise TypeError
        return float(value)  # of a tensor or an array with one number, too
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, got {value!r}") from None


def positive(name: str, value: float) -> float:
    """`value` if it is a finite number greater than zero, else `ValueError`."""
    if not (isfinite(number(name, value)) and value > 0):
        raise ValueError(f"{name} must be a finite number greater than 0, got {value!r}")
    return float(value)


def precision(prior_std: float) -> float:
    """1 / prior_std^2, or `ValueError` if that is not a finite number."""
    prior_std = positive("prior_std", prior_std)
    if not 1e-150 < prior_std < 1e150:
        raise ValueError(f"prior_std must be between 1e-150 and 1e150, where its square is a number, got {prior_std!r}")
    return 1.0 / (prior_std * prior_std)


def non_negative(name: str, value: float) -> float:
    """`value` if it is a finite number, zero or greater, else `ValueError`."""
    if not (isfinite(number(name, value)) and value >= 0):
        raise ValueError(f"{name} must be a finite number, 0 or greater, got {value!r}")
    return float(value)


def finite(name: str, value: float) -> float:
    """`value` if it is a finite number, else `ValueError`."""
    if not isfinite(number(name, value)):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return float(value)


def memory_window(value: float) -> float:
    """`value` if it is a memory of more than one update (infinity included), else `ValueError`."""
    if isnan(number("memory", value)) or value <= 1:
        raise ValueError(
            f"memory must be greater than 1 update, got {value!r}: give the number of updates to remember, "
            "or float('inf') never to forget"
        )
    return float(value)


def widest(value: float | None) -> float | None:
    """`max_std` if it is None (off) or a finite number greater than zero, else `ValueError`."""
    if value is None:
        return None
    try:
        return positive("max_std", value)
    except ValueError as error:
        raise ValueError(
            f"{error}: give the widest that a sigma may become, or None for no limit; mesu.MESU also takes 'start', the "
            "widest that each parameter starts with"
        ) from None


def step_limit(value: float | None) -> float | None:
    """`max_step` if it is None (off) or greater than zero, else `ValueError`."""
    if value is None:
        return None
    if isnan(number("max_step", value)) or value <= 0:
        raise ValueError(f"max_step must be greater than 0 standard deviations, got {value!r}: None switches it off")
    return float(value)
