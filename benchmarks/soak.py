"""Ten million updates of a stream that keeps changing: a model must stay finite, stay small and stay able to learn.

The class centres of the classifier drift all the time and are drawn again every 100,000 rows. The coefficients of the regressor
are drawn again as often, while level and scale of its targets grow a thousandfold. At every such change the model is saved and
loaded. Each of these is a check; if one fails, the exit code is 1:

    whole       weights are finite and sigmas positive, after every change
    small       resident memory and the saved file are at the end what they were after the warm-up
    learning    what a change breaks is learned again, at the end of the run as at its beginning
    honest      nine in ten targets lie in the regressor's interval of 90 %
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mesu

CLASSES, COLUMNS, HIDDEN = 4, 8, (20,)
CHUNK = 500  # rows a call
ASKED = 1_000  # rows that a score is measured on
NINETY = 1.645  # standard deviations to either side that hold nine in ten
RSS_GROWTH = 8.0  # MiB: what the allocator may be off by
FILE_GROWTH = 64  # bytes: digits of counts in the header


@dataclass(frozen=True)
class Setup:
    """A soak: how long, and how fast the world changes."""

    updates: int = 10_000_000
    every: int = 100_000  # rows between two abrupt changes
    memory: float = 10_000
    recovery: int = 10_000  # rows after a change when the score should be back
    growth: float = 3.454e-6  # of the targets' logarithm, a row: a thousandfold in two million
    estimator: str = "linear"


@dataclass
class Record:
    """What was measured at the abrupt changes: scores just before, just after and `recovery` rows later."""

    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    recovered: list[float] = field(default_factory=list)
    covered: list[float] = field(default_factory=list)  # share of targets in the interval, just before
    rss: list[float] = field(default_factory=list)  # MiB
    size: list[int] = field(default_factory=list)  # bytes of the saved file
    whole: bool = True


class Classes:
    """Rows around one point for each class; the points wander along a line until they are drawn anew."""

    def __init__(self, draw: np.random.Generator) -> None:
        self.draw = draw
        self.change()

    def change(self) -> None:
        """Draw the points anew, and where they will wander to."""
        self.start, self.end = 1.5 * self.draw.normal(size=(2, CLASSES, COLUMNS))

    def rows(self, count: int, share: float, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the world as it is a `share` of the way to the next change."""
        y = self.draw.integers(0, CLASSES, count)
        centre = self.start + 0.5 * share * (self.end - self.start)
        return centre[y] + self.draw.normal(size=(count, COLUMNS)), y


class Numbers:
    """Targets that are linear in the row, whose level and scale grow and grow."""

    def __init__(self, draw: np.random.Generator, growth: float) -> None:
        self.draw, self.growth = draw, growth
        self.change()

    def change(self) -> None:
        """Draw the coefficients anew."""
        self.weights = self.draw.normal(size=COLUMNS)
        self.weights /= np.linalg.norm(self.weights)

    def rows(self, count: int, share: float, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the world at this row of the run."""
        X = self.draw.normal(size=(count, COLUMNS))
        scale = np.exp(self.growth * row)
        return X, scale * (10 + X @ self.weights + 0.3 * self.draw.normal(size=count))


def soak(model: Any, world: Any, setup: Setup, name: str = "", quiet: bool = True) -> Record:
    """Let a model live through a run; what was measured on the way."""
    record, began = Record(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        for row in range(0, setup.updates, CHUNK):
            since = row % setup.every
            share = since / setup.every
            if row and since == 0:
                score, covered = judged(model, *world.rows(ASKED, 1.0, row))
                record.before.append(score)
                record.covered.append(covered)
                model.save(path)
                record.size.append(path.stat().st_size)
                model = mesu.load(path)
                record.rss.append(resident())
                weights = model._online.snapshot.weights
                record.whole &= bool(np.isfinite(weights.mean).all() and np.isfinite(weights.std).all())
                record.whole &= bool((weights.std > 0).all())
                if not record.whole:
                    break  # a broken model refuses to learn on
                world.change()
                record.after.append(judged(model, *world.rows(ASKED, 0.0, row))[0])
                if not quiet:
                    progress(name, row, setup.updates, began)
            elif row > setup.every and since == setup.recovery:
                record.recovered.append(judged(model, *world.rows(ASKED, share, row))[0])
            model.partial_fit(*world.rows(CHUNK, share, row))
    return record


def judged(model: Any, X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Share of right classes, or of the targets' variance that is explained; and of targets in the interval of 90 %."""
    if isinstance(model, mesu.MESUClassifier):
        return model.score(X, y), 1.0
    mean, std = model.predict(X, return_std=True)
    return float(1 - np.mean((y - mean) ** 2) / y.var()), float((np.abs(y - mean) < NINETY * std).mean())


def checks(record: Record, least: float, honest: bool) -> Iterator[tuple[str, bool]]:
    """Each check in words, with whether it holds; `least` is the score that a model must come back to."""
    if not record.whole:  # it ended there
        yield "weights finite, sigmas positive", False
        return
    part = max(4, len(record.recovered) // 10)  # one world may be harder than another
    before, after, recovered = (np.array(a) for a in (record.before, record.after, record.recovered))
    warm = max(1, len(record.rss) // 10)
    growth, size = record.rss[-1] - record.rss[warm - 1], record.size[-1] - record.size[0]
    early, late = recovered[:part].mean(), recovered[-part:].mean()
    yield "weights finite, sigmas positive", True
    yield f"memory grew by {growth:.1f} MiB since the warm-up", growth < RSS_GROWTH
    yield f"the file grew by {size} bytes", abs(size) < FILE_GROWTH
    yield f"before a change {before.mean():.3f}, at worst {before.min():.3f}", before.mean() > least
    yield f"just after {after.mean():.3f}", after.mean() < before.mean() - 0.2
    yield f"recovered {recovered.mean():.3f}, at worst {recovered.min():.3f}", recovered.mean() > least
    yield f"recovered at first {early:.3f}, at last {late:.3f}", late > early - 0.03
    if honest:
        covered = np.mean(record.covered)
        yield f"nine in ten intervals hold {covered:.3f}", 0.85 < covered < 0.95


def resident() -> float:
    """MiB of memory that the process has now; 0 where the system does not tell, which is not Linux."""
    told = Path("/proc/self/statm")
    pages = int(told.read_text().split()[1]) if told.exists() else 0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def progress(name: str, done: int, total: int, began: float) -> None:
    """A line with the time left; on a terminal it takes the place of the one before."""
    left = (time.monotonic() - began) * (total - done) / done
    line = f"{name}: {done:,} of {total:,} updates, {left / 60:.1f} min left"
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="" if done < total else "\n", file=sys.stderr, flush=True)
    elif done % max(total // 10, 1) == 0:
        print(line, file=sys.stderr, flush=True)


def classifier(setup: Setup, quiet: bool = True) -> Record:
    """The classifier's run."""
    model = mesu.MESUClassifier(hidden=HIDDEN, memory=setup.memory, random_state=0, estimator=setup.estimator)
    return soak(model, Classes(np.random.default_rng(0)), setup, "classifier", quiet)


def regressor(setup: Setup, quiet: bool = True) -> Record:
    """The regressor's run."""
    model = mesu.MESURegressor(hidden=HIDDEN, memory=setup.memory, random_state=0, estimator=setup.estimator)
    return soak(model, Numbers(np.random.default_rng(1), setup.growth), setup, "regressor", quiet)


def main() -> int:
    """Run both and print the checks as a Markdown table; 1 if one of them failed."""
    parser = argparse.ArgumentParser(description="Ten million updates of a stream that keeps changing.")
    parser.add_argument(
        "--updates", type=int, default=Setup.updates, help="of the classifier; the regressor makes a fifth"
    )
    parser.add_argument("--memory", type=float, default=Setup.memory, help="examples remembered; try inf")
    parser.add_argument(
        "--estimator", choices=("linear", "local"), default=Setup.estimator, help="how the models learn"
    )
    given = parser.parse_args()
    if given.updates < 20 * Setup.every:
        parser.error(
            f"--updates must be {20 * Setup.every:,} or more, got {given.updates:,}: a change comes every {Setup.every:,}"
        )
    torch.set_num_threads(1)
    failed = 0
    print("| run | check | |\n|---|---|---|")
    for run, updates, least, honest in (
        (classifier, given.updates, 0.85, False),
        (regressor, given.updates // 5, 0.8, True),
    ):
        setup = Setup(updates=updates, memory=given.memory, estimator=given.estimator)
        began = time.process_time()
        record = run(setup, quiet=False)
        start = f"{run.__name__}, {updates:,} updates, {(time.process_time() - began) / 60:.1f} CPU minutes"
        for words, holds in checks(record, least, honest):
            failed += not holds
            print(f"| {start} | {words} | {'holds' if holds else '**failed**'} |", flush=True)
            start = ""
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
