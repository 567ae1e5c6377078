"""The streams by name: real ones in River's wheel and in `mesu.data`, digits that change, and numbers made by a formula."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from benchmarks.streams import digits, numbers
from river import datasets

import mesu.data

FIRST = 2_000  # rows of River's two longest, 5,300 and 49,097
COVERTYPE = 50_000  # rows of 581,012: River's forest takes half an hour for them, in three seeds


@dataclass(frozen=True)
class Stream:
    """Rows in the order in which they come."""

    name: str
    title: str
    columns: tuple[str, ...]
    X: np.ndarray  # [rows, columns]
    y: list[Any]  # labels, or numbers
    regression: bool = False
    changes: tuple[int, ...] = ()  # rows at which a new task begins, the first one not among them

    def __len__(self) -> int:
        return len(self.y)

    @property
    def classes(self) -> list[Any]:
        """All labels that will come, which scikit-learn wants to know beforehand."""
        return sorted(set(self.y))

    @property
    def edges(self) -> list[int]:
        """Rows at which scores are taken stock of: equal blocks, which begin anew with each task."""
        step = min(max(len(self) // 25, 5), 50)
        edges = [0]
        for start, end in pairwise([0, *self.changes, len(self)]):
            # what is left over at the end, if it is little, goes with the block before
            edges += [*range(start + step, end - step // 2, step), end]
        return edges

    def first(self, rows: int | None) -> "Stream":
        """The stream cut short."""
        if rows is None or rows >= len(self):
            return self
        changes = tuple(at for at in self.changes if at < rows)
        return Stream(self.name, self.title, self.columns, self.X[:rows], self.y[:rows], self.regression, changes)


def _real(name: str, title: str, rows: Iterable[tuple[dict, Any]], regression: bool = False) -> Stream:
    pairs = list(rows)
    columns = sorted(pairs[0][0], key=str)
    X = np.array([[float(x[column]) for column in columns] for x, _ in pairs])
    return Stream(name, title, tuple(map(str, columns)), X, [y for _, y in pairs], regression)


def _series(name: str, title: str, rows: Iterable[tuple[dict, float]], season: int, calendar: Callable) -> Stream:
    """A series of numbers: predict the next from the calendar, the last number, and that of a season before."""
    pairs = [(next(iter(x.values())), float(y)) for x, y in rows]
    values = [y for _, y in pairs]
    after = [
        ({**calendar(moment), "last": values[i - 1], "a season ago": values[i - season]}, y)
        for i, (moment, y) in enumerate(pairs)
        if i >= season
    ]
    return _real(name, title, after, regression=True)


def _rows(name: str, title: str, rows: mesu.data.Rows) -> Stream:
    columns = tuple(f"column {i:02}" for i in range(rows.x.shape[1]))
    return Stream(name, title, columns, rows.x, rows.y.tolist())


def _made(name: str, title: str, made: numbers.Made) -> Stream:
    X, y, changes = made
    return Stream(name, title, tuple(f"column {i:02}" for i in range(X.shape[1])), X, y.tolist(), True, changes)


def _digits(name: str, title: str, made: digits.Made) -> Stream:
    X, y, changes = made
    return Stream(name, title, tuple(f"pixel {i:02}" for i in range(X.shape[1])), X, y.tolist(), False, changes)


# Each takes a seed. Real streams keep their order, whatever it is; it shuffles and permutes the digits, and draws made-up rows.
STREAMS: dict[str, Callable[[int], Stream]] = {
    "phishing": lambda seed: _real("phishing", "Phishing: web pages, 2 classes", datasets.Phishing()),
    "bananas": lambda seed: _real("bananas", "Bananas: two columns, 2 classes", datasets.Bananas().take(FIRST)),
    "segments": lambda seed: _real("segments", "ImageSegments: 18 columns, 7 classes", datasets.ImageSegments()),
    "shuttle": lambda seed: _real("shuttle", "Shuttle: 9 columns, normal or not", datasets.Shuttle().take(FIRST)),
    "elec2": lambda seed: _rows("elec2", "Elec2: price of electricity, up or down", mesu.data.elec2()),
    "weather": lambda seed: _rows("weather", "NOAA weather: rain or not", mesu.data.weather()),
    "covertype": lambda seed: _rows("covertype", "Covertype: 54 columns, 7 classes", mesu.data.covertype()).first(
        COVERTYPE
    ),
    "permuted": lambda seed: _digits(
        "permuted", "Permuted digits: new pixels for every task", digits.permuted(seed, tasks=6)
    ),
    "rotated": lambda seed: _digits(
        "rotated", "Rotated digits: slowly from 0 to 180 degrees", digits.rotated(seed, passes=3, degrees=180)
    ),
    "recurring": lambda seed: _digits(
        "recurring", "Recurring digits: two permutations in turn", digits.recurring(seed, order="ABAB")
    ),
    "chicks": lambda seed: _real("chicks", "ChickWeights: grams", datasets.ChickWeights(), regression=True),
    "approval": lambda seed: _real(
        "approval", "TrumpApproval: percentage points", datasets.TrumpApproval(), regression=True
    ),
    "stocks": lambda seed: _real(
        "stocks", "SP500Stocks: next day's return in %", datasets.SP500Stocks(), regression=True
    ),
    "water": lambda seed: _series(
        "water",
        "WaterFlow: litres a second, an hour ahead",
        datasets.WaterFlow(),
        24,
        lambda at: {"hour": at.hour, "weekday": at.weekday()},
    ),
    "airline": lambda seed: _series(
        "airline",
        "AirlinePassengers: thousands, a month ahead",
        datasets.AirlinePassengers(),
        12,
        lambda at: {"year": at.year, "month": at.month},
    ),
    "friedman": lambda seed: _made(
        "friedman", "Friedman: ten columns, whose roles change twice", numbers.friedman(seed, rows=6_000)
    ),
    "correlated": lambda seed: _made(
        "correlated", "Correlated: ten columns that share one cause", numbers.correlated(seed, rows=4_000)
    ),
}
GROUPS = {
    "Real streams, classes": ("phishing", "bananas", "segments", "shuttle", "elec2", "weather", "covertype"),
    "Digits that change": ("permuted", "rotated", "recurring"),
    "Real streams, numbers": ("chicks", "approval", "stocks", "water", "airline"),
    "Numbers by a formula": ("friedman", "correlated"),
}
