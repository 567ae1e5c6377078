"""Streams of numbers made by a formula: Friedman's, whose columns change roles, and a line in correlated columns."""

import numpy as np

Made = tuple[
    np.ndarray, np.ndarray, tuple[int, ...]
]  # inputs [rows, columns], targets [rows], rows at which they change


def friedman(seed: int, rows: int) -> Made:
    """Friedman's function of five of ten columns, in three equal parts: before each, the columns are shuffled anew."""
    draw = np.random.default_rng(seed)
    X = draw.uniform(size=(rows, 10))
    orders = [np.arange(10), draw.permutation(10), draw.permutation(10)]
    changes = tuple(rows * i // 3 for i in (1, 2))
    part = np.searchsorted(changes, np.arange(rows), side="right")
    a, b, c, d, e = (np.take_along_axis(X, np.array(orders)[part], 1)[:, i] for i in range(5))
    clean = 10 * np.sin(np.pi * a * b) + 20 * (c - 0.5) ** 2 + 10 * d + 5 * e
    return X, clean + draw.standard_normal(rows), changes


def correlated(seed: int, rows: int) -> Made:
    """A line in ten columns that are one common cause, with a tenth of it as noise in each; the weights add up to one."""
    draw = np.random.default_rng(seed)
    cause = draw.standard_normal((rows, 1))
    X = cause + 0.1 * draw.standard_normal((rows, 10))
    weights = draw.standard_normal(10)
    weights += (1 - weights.sum()) / 10
    return X, X @ weights + 0.1 * draw.standard_normal(rows), ()
