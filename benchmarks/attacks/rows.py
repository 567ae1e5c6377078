"""Rows that must be refused, rows far from all others, and targets that jump."""

import datetime
import warnings
from fractions import Fraction
from itertools import product
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.attacks.attack import Tries

import mesu
from mesu import river

BAD = (nan, inf, -inf, "word", 1j, datetime.date(2020, 1, 1), [1.0], {}, object(), Fraction(1, 3), 10**400)
WORSE = (None, *BAD[:-2], np.datetime64("NaT"), np.timedelta64(1, "D"), b"bytes", ("a", 1))  # no labels and no targets
SIZES, COUNTS = (1e2, 1e3, 1e4, 1e6, 1e8, 1e10, 1e12), (1, 2, 5, 10, 30)
WITHIN = 0.02  # of the accuracy on clean rows
JUMPS = ((100, 1), (-1000, 1), (1e6, 1), (0, 1e-3), (0, 1e3), (0, 1e6), (50, -1), (-1e4, 1e-2))
AFTER, CHUNK, NINETY = 2000, 20, 1.645


def bad_rows(random: np.random.Generator, _: Path) -> Tries:
    """Rows and targets that are no numbers, in each face: an error, and not a bit of the model has changed."""
    X, y = random.normal(size=(60, 3)), np.arange(60) % 3
    faces: list[Any] = [mesu.MESUClassifier((8,), random_state=0), mesu.MESURegressor((8,), random_state=0)]
    for face in faces:
        face.partial_fit(X, y)
    streams: list[Any] = [river.MESUClassifier((8,), seed=0), river.MESURegressor((8,), seed=0)]
    for stream in streams:
        for row, target in zip(X.tolist(), y.tolist(), strict=True):
            stream.learn_one(dict(zip("abc", row, strict=True)), target)
    while True:
        for face in faces:
            yield _refused(face, lambda face=face: face.partial_fit(*_bad_table(random)))
            yield _refused(face, lambda face=face: face.predict(_bad_table(random, rows_only=True)[0]))
        for stream in streams:
            yield _refused(stream, lambda stream=stream: stream.learn_one(*_bad_row(random)))


def _refused(model: Any, attack: Any) -> str | None:
    before = model._online.snapshot
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            attack()
    except (ValueError, TypeError, OverflowError):
        return None if model._online.snapshot is before else "changed by a row that was refused"
    return "a bad row was taken"


def _bad_table(random: np.random.Generator, rows_only: bool = False) -> tuple[Any, Any]:
    """A few rows and targets with something bad among them."""
    rows = int(random.integers(1, 5))
    X, y = random.normal(size=(rows, 3)), random.integers(0, 3, rows)
    kind = 0 if rows_only and random.random() < 0.5 else int(random.integers(1 if rows_only else 3))
    if kind == 0:
        wrong = [nan, inf, -inf, "word", 1j, datetime.date(2020, 1, 1), None][int(random.integers(7))]
        X = X.astype(object)
        X[int(random.integers(rows)), int(random.integers(3))] = wrong
    elif kind == 1:
        return random.normal(size=(rows, int(random.choice([1, 2, 4, 9])))), y
    else:
        targets: Any = y.tolist()
        targets[int(random.integers(rows))] = WORSE[int(random.integers(len(WORSE)))]
        return X, targets
    return X, y


def _bad_row(random: np.random.Generator) -> tuple[dict, Any]:
    row: dict[Any, Any] = dict(zip("abc", random.normal(size=3).tolist(), strict=True))
    if random.random() < 0.5:
        row["abcd"[int(random.integers(4))]] = BAD[int(random.integers(len(BAD)))]
        return row, 1
    return row, WORSE[int(random.integers(len(WORSE)))]


def outliers(random: np.random.Generator, _: Path) -> Tries:
    """140 patterns of values far from all others, in 2,000 rows: accuracy on clean rows, beside that without them."""
    centres = 1.2 * random.normal(size=(4, 8))
    y = random.integers(0, 4, 6000)
    X = centres[y] + random.normal(size=(6000, 8)) + 10
    clean = _accuracy(X, y)
    for pattern in product(SIZES, COUNTS, ("first", "later"), ("one column", "all columns")):
        size, count, place, columns = pattern
        early = random.choice(max(16, 3 * count), count, replace=False)
        rows = early if place == "first" else random.choice(np.arange(200, 2000), count, replace=False)
        broken = X.copy()
        broken[np.ix_(rows, range(8) if columns == "all columns" else [5])] = size * random.choice([-1, 1])
        found = _accuracy(broken, y)
        yield None if found > clean - WITHIN else f"accuracy {found:.2f} instead of {clean:.2f}"


def _accuracy(X: np.ndarray, y: np.ndarray) -> float:
    """Learned from the first 2,000 rows, measured on the rest."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mesu.LearningWarning)
        return mesu.MESUClassifier(random_state=0).partial_fit(X[:2000], y[:2000]).score(X[2000:], y[2000:])


def jumps(random: np.random.Generator, _: Path) -> Tries:
    """Targets that jump to another level and other units, and back: R squared and intervals of rows 1,000 to 2,000 after."""
    for memory, noise, jump in [
        *product((500, 10_000, 100_000, inf), (1.0,), JUMPS),
        *product((100_000,), (0.3,), JUMPS),
    ]:
        yield _survived_jump(random, memory, noise, *jump)


def _survived_jump(random: np.random.Generator, memory: float, noise: float, level: float, factor: float) -> str | None:
    X = random.normal(size=(4 * AFTER, 2))
    y = 2 * X[:, 0] - X[:, 1] + noise * random.normal(size=len(X))
    there = np.repeat([0, 1, 0, 1], AFTER) == 1  # and back, and there again
    y[there] = level + factor * y[there]
    mean, std = np.zeros(len(X)), np.ones(len(X))
    model = mesu.MESURegressor(memory=memory, random_state=0)
    for start in range(0, len(X), CHUNK):
        chunk = slice(start, start + CHUNK)
        if start:
            mean[chunk], std[chunk] = model.predict(X[chunk], return_std=True)
        model.partial_fit(X[chunk], y[chunk])
    explained, held = [], []
    for end in range(AFTER, len(X) + 1, AFTER):
        last = slice(end - AFTER // 2, end)
        explained.append(1 - np.mean((mean[last] - y[last]) ** 2) / np.var(y[last]))
        held.append(np.mean(np.abs(mean[last] - y[last]) < NINETY * std[last]))
    if min(explained[1:]) < explained[0] - 0.05:
        return f"R squared {min(explained[1:]):.2f} instead of {explained[0]:.2f}"
    if not 0.85 <= min(held[1:]) <= max(held[1:]) <= 0.95:
        return f"intervals of 90 % held {100 * min(held[1:]):.0f} to {100 * max(held[1:]):.0f} %"
    return None
