"""River's rows as arrays: dicts and frames in, numbers in the order of a model's columns out, all of them checked.

NaN stands for a feature that a row does not have. A number that is not finite is refused; in a frame, NaN is a missing number.
"""

from collections.abc import Iterable, Mapping
from math import isfinite, nan
from numbers import Real
from typing import Any

import numpy as np

from mesu.online.growth import check_labels
from mesu.online.needs_river import into_frame

NUMBERS = "biuf"  # NumPy's kinds of numbers


def row_of(x: Mapping[Any, Any], names: Iterable) -> np.ndarray:
    """One row ``[1, columns]`` in the order of these names."""
    names = list(names)
    try:
        row = np.array([x.get(name, nan) for name in names])
    except ValueError:  # a value that is a list
        row = np.empty(0, object)
    if row.dtype.kind not in NUMBERS or row.ndim != 1 or not np.isfinite(row).all():
        row = np.array([number(name, x[name]) if name in x else nan for name in names])
    return row.astype(np.float64, copy=False)[None]


def number(name: Any, value: Any) -> float:
    """A feature's value; NaN for None, which means that it is missing."""
    if value is None:
        return nan
    if not isinstance(value, Real | np.bool_):
        raise ValueError(
            f"feature {name!r} must be a number, got {value!r}: encode it first, as with river.preprocessing.OneHotEncoder()"
        )
    if not isfinite(value):
        raise ValueError(
            f"feature {name!r} must be finite, got {float(value)}: leave it out of the row, where it counts as its mean"
        )
    return float(value)


def table_of(X: Any) -> tuple[list, np.ndarray, Any]:
    """Names and values of a frame's features, and the frame as River wraps it."""
    frame = into_frame(X)
    numbers = frame.to_numpy()
    if numbers.dtype.kind in NUMBERS and numbers.shape == (len(frame), len(frame.columns)):
        table = np.array(numbers, np.float64)
        for row, i in np.argwhere(np.isinf(table))[:1]:
            number(frame.columns[i], table[row, i])
        return list(frame.columns), table, frame
    table = np.empty((len(frame), len(frame.columns)))
    for i, name in enumerate(frame.columns):
        column = frame[name]
        if column.dtype.is_numeric():
            table[:, i] = column.to_numpy()
            infinite = np.isinf(table[:, i])
            if infinite.any():
                number(name, table[infinite, i][0])
        else:
            missing = column.is_null().to_list()
            table[:, i] = [nan if none else number(name, value) for value, none in zip(column, missing, strict=True)]
    return list(frame.columns), table, frame


def arranged(names: list, table: np.ndarray, columns: Mapping[Any, int]) -> np.ndarray:
    """The columns of a table in the order of a model's columns; features that the model does not know are left out."""
    known = np.full((len(table), len(columns)), nan)
    for name, values in zip(names, table.T, strict=True):
        if name in columns:
            known[:, columns[name]] = values
    return known


def labels_of(values: list) -> np.ndarray:
    """Classes as an array of words or of numbers."""
    check_labels(values)
    return np.array(values)


def targets_of(values: list) -> np.ndarray:
    """Targets in double precision."""
    for value in values:
        if not isinstance(value, Real | np.bool_):
            raise ValueError(f"a target must be a number, got {value!r}: leave out rows without one")
    targets = np.array(values, np.float64)
    if not np.isfinite(targets).all():
        wrong = targets[~np.isfinite(targets)][0]
        raise ValueError(f"targets must be finite, got {wrong}: drop or fill those rows first")
    return targets
