"""Streams of rows with a class each that stay as they are, or change at a known row: inputs or labels, at once or slowly.

A source gives rows that do not depend on each other: real sets are shuffled. What a change does is the same for every source:

    inputs    the columns trade places in a circle, and a third of them moves by two standard deviations
    labels    half of the rows (those on one side of a plane) have their classes in another order
    function  the source's own next function of the same inputs, where it has some
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import islice

import numpy as np
from benchmarks.streams.digits import all_digits
from river import datasets
from river.datasets import synth

import mesu.data

Rows = tuple[np.ndarray, np.ndarray]  # inputs [rows, columns], labels [rows]
SLOWLY = 1_000  # rows in which a gradual change takes place: more and more of them are of the new kind


@dataclass(frozen=True)
class Stream:
    """Rows in the order in which they come."""

    X: np.ndarray
    y: np.ndarray
    change: tuple[int, int] | None  # the row at which it begins, and the one at which it is complete


def _synthetic(make: Callable) -> Callable[[int, int, int], Rows]:
    def rows(count: int, seed: int, function: int) -> Rows:
        pairs = list(islice(make(seed, function), count))
        names = sorted(pairs[0][0], key=str)
        X = np.array([[float(x[name]) for name in names] for x, _ in pairs])
        return X, np.array([int(y) for _, y in pairs])

    return rows


def _real(load: Callable[[], Rows]) -> Callable[[int, int, int], Rows]:
    def rows(count: int, seed: int, _: int) -> Rows:
        X, y = load()
        order = np.random.default_rng([seed, 1]).choice(len(y), count, replace=count > len(y))
        return np.asarray(X, float)[order], np.asarray(y)[order]

    return rows


def _of_river(data) -> Rows:
    pairs = list(data)
    names = sorted(pairs[0][0], key=str)
    labels = sorted({y for _, y in pairs})
    return np.array([[float(x[name]) for name in names] for x, _ in pairs]), np.array(
        [labels.index(y) for _, y in pairs]
    )


def _table(name: str) -> Rows:
    rows = getattr(mesu.data, name)()
    return rows.x, rows.y


def _clusters(count: int, seed: int, _: int) -> Rows:
    centres = np.random.default_rng([seed, 2]).normal(size=(5, 6))
    draw = np.random.default_rng([seed, 3])
    y = draw.integers(0, 5, count)
    return 1.5 * centres[y] + draw.normal(size=(count, 6)), y


def _moons(count: int, seed: int, _: int) -> Rows:
    draw = np.random.default_rng([seed, 4])
    y = draw.integers(0, 2, count)
    angle = np.pi * draw.random(count)
    X = np.stack([np.cos(angle) + y, np.where(y, 0.5 - np.sin(angle), np.sin(angle))], 1)
    return X + 0.25 * draw.normal(size=X.shape), y


def _hyperplane(count: int, seed: int, function: int) -> Rows:
    draw, weights = np.random.default_rng([seed, 5]), np.random.default_rng([seed, 6, function]).normal(size=10)
    X = draw.normal(size=(count, 10))
    y = (X @ weights > 0).astype(int)
    return X, np.where(draw.random(count) < 0.05, 1 - y, y)


# rows, seed, which function -> rows
CHOSEN_ON: dict[str, Callable[[int, int, int], Rows]] = {
    "clusters": _clusters,
    "moons": _moons,
    "sine": _synthetic(lambda seed, f: synth.Sine(classification_function=[0, 2][f], seed=seed)),
    "digits": _real(all_digits),
    "elec2": _real(cache(lambda: _table("elec2"))),
}
REPORTED: dict[str, Callable[[int, int, int], Rows]] = {
    "sea": _synthetic(lambda seed, f: synth.SEA(variant=[0, 3][f], noise=0.05, seed=seed)),
    "agrawal": _synthetic(lambda seed, f: synth.Agrawal(classification_function=[0, 3][f], seed=seed)),
    "led": _synthetic(lambda seed, f: synth.LED(seed=seed, noise_percentage=0.1)),
    "mixed": _synthetic(lambda seed, f: synth.Mixed(classification_function=f, seed=seed)),
    "hyperplane": _hyperplane,
    "waveform": _synthetic(lambda seed, f: synth.Waveform(seed=seed)),
    "segments": _real(cache(lambda: _of_river(datasets.ImageSegments()))),
    "phishing": _real(cache(lambda: _of_river(datasets.Phishing()))),
    "weather": _real(cache(lambda: _table("weather"))),
    "covertype": _real(cache(lambda: (lambda r: (r[0][:50_000], r[1][:50_000]))(_table("covertype")))),
}
OWN = ("sine", "sea", "agrawal", "mixed", "hyperplane")  # have a function of their own
SOURCES = {**CHOSEN_ON, **REPORTED}
KINDS = ("calm", "inputs", "labels", "function")


def stream(source: str, kind: str, slow: bool, rows: int, at: int, seed: int) -> Stream:
    """A stream whose rows are of another kind from row `at` on."""
    X, y = SOURCES[source](rows, seed, 0)
    if kind == "calm":
        return Stream(X, y, None)
    new = _changed(source, kind, X, y, seed)
    draw = np.random.default_rng([seed, 7])
    takes = SLOWLY if slow else 0
    share = np.clip((np.arange(rows) - at + 1) / max(takes, 1), 0, 1) if slow else (np.arange(rows) >= at) * 1.0
    is_new = draw.random(rows) < share
    return Stream(np.where(is_new[:, None], new[0], X), np.where(is_new, new[1], y), (at, at + takes))


def _changed(source: str, kind: str, X: np.ndarray, y: np.ndarray, seed: int) -> Rows:
    draw = np.random.default_rng([seed, 8])
    mean, spread = X.mean(0), X.std(0)
    spread[spread == 0] = 1
    Z = (X - mean) / spread
    if kind == "inputs":
        columns = X.shape[1]
        moved = np.zeros(columns)
        moved[draw.permutation(columns)[: max(1, columns // 3)]] = 2
        return mean + spread * (np.roll(Z, 1, 1) + moved), y
    if kind == "labels":
        side = Z @ draw.normal(size=Z.shape[1])
        labels = np.unique(y)
        other = dict(zip(labels, np.roll(labels, 1), strict=True))
        return X, np.where(side > np.median(side), np.array([other[label] for label in y]), y)
    return SOURCES[source](len(y), seed, 1)
