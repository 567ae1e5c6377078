"""Cost of a stream that is learned and predicted one row a call, beside the compiled work in it: 20 features, 10 classes.

The compiled work is what the same loops take for a row among many: to score it, to learn it, and to predict it. All is CPU
time of one process; look at the ratios where other programs run too. ``--start`` times the first row after an import.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import validate_data

import mesu
from mesu import river
from mesu.online.scaling import standardised

ROUNDS, CALLS, MANY = 9, 200, 2_000
LENGTHS = (1, 3, 10, 30, 100, 300, 1_000)


def cost(*calls: Callable[[], object], times: int = CALLS) -> list[float]:
    """Median CPU microseconds of each of these calls, which take turns."""
    seconds: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(ROUNDS):
        for call, kept in zip(calls, seconds, strict=True):
            began = time.process_time()
            for _ in range(times):
                call()
            kept.append((time.process_time() - began) / times)
    return [statistics.median(kept) * 1e6 for kept in seconds]


def one_row(hidden: int) -> None:
    """Print a line of the first table for each interface."""
    draw = np.random.default_rng(0)
    y = draw.integers(0, 10, MANY)
    X = draw.normal(size=(10, 20))[y] + draw.normal(size=(MANY, 20))
    model = mesu.MESUClassifier(hidden=(hidden,), random_state=0).partial_fit(X, y)
    online = model._online
    plan, now = online._learner(online.snapshot).plan, online.snapshot
    z = standardised(now.inputs, X).astype(np.float32)
    work = [us / MANY for us in cost(lambda: plan.run(z, y), lambda: now._predict_by(now._drawn, z), times=1)]
    floor = work[0] + 2 * work[1]  # a row is predicted twice: for the user, and to score it before it is learned
    rows = river.MESUClassifier(hidden=(hidden,), seed=0)
    dicts = [dict(zip([f"column {i}" for i in range(20)], map(float, x), strict=True)) for x in X[:500]]
    for x, label in zip(dicts, y.tolist(), strict=False):
        rows.learn_one(x, label)
    stream = cycle(zip(dicts, y.tolist(), strict=False))
    arrays = cycle([(X[i : i + 1], y[i : i + 1]) for i in range(500)])
    singles = cycle([(x.astype(np.float32), label) for x, label in (next(arrays) for _ in range(500))])

    def river_both() -> None:
        x, label = next(stream)
        rows.predict_proba_one(x)
        rows.learn_one(x, label)

    def both(some: Iterator) -> None:
        x, label = next(some)
        model.predict_proba(x)
        model.partial_fit(x, label)

    given: dict[str, Any] = {"X": X[:1], "y": y[:1]}
    checks = cost(
        lambda: validate_data(model, reset=False, **given), lambda: validate_data(model, reset=False, X=given["X"])
    )
    for name, learn, predict_and_learn in (
        ("River: `predict_proba_one`, `learn_one`", lambda: rows.learn_one(*next(stream)), river_both),
        (
            "scikit-learn: `predict_proba`, `partial_fit`",
            lambda: model.partial_fit(*next(arrays)),
            lambda: both(arrays),
        ),
        (
            f"the same in single precision, which `validate_data` checks ({checks[1]:.0f} and {checks[0]:.0f} us)",
            lambda: model.partial_fit(*next(singles)),
            lambda: both(singles),
        ),
    ):
        learned, us = cost(learn, predict_and_learn)
        print(f"| {hidden} | {name} | {us - learned:.1f} | {learned:.1f} | {us:.1f} | {floor:.1f} | {us / floor:.1f} |")
    sys.stdout.flush()


def by_length(figure: str | None) -> None:
    """Print us a row by rows per call, and draw it."""
    draw = np.random.default_rng(0)
    y = draw.integers(0, 10, MANY)
    X = draw.normal(size=(10, 20))[y] + draw.normal(size=(MANY, 20))
    model = mesu.MESUClassifier(random_state=0).partial_fit(X, y)
    frame, labels = pd.DataFrame(X, columns=[f"column {i}" for i in range(20)]), pd.Series(y)
    rows = river.MESUClassifier(seed=0)
    rows.learn_many(frame, labels)
    frames = {n: (frame[:n], labels[:n]) for n in LENGTHS}
    print(f"\n| us a row, of rows a call | {' | '.join(f'{n:,}' for n in LENGTHS)} |\n{'|---' * (len(LENGTHS) + 1)}|")
    calls: dict[str, Callable[[int], object]] = {
        "`partial_fit`": lambda n: model.partial_fit(X[:n], y[:n]),
        "`predict_proba`": lambda n: model.predict_proba(X[:n]),
        "`learn_many`": lambda n: rows.learn_many(*frames[n]),
        "`predict_proba_many`": lambda n: rows.predict_proba_many(frames[n][0]),
    }
    found = {}
    for name, call in calls.items():
        found[name] = [cost(lambda n=n, call=call: call(n), times=max(1, CALLS // n))[0] / n for n in LENGTHS]
        print(f"| {name} | {' | '.join(f'{us:.1f}' for us in found[name])} |", flush=True)
    if figure:
        from matplotlib.figure import Figure

        drawn = Figure(figsize=(6, 3.6), layout="constrained")
        axes = drawn.subplots()
        for name, us in found.items():
            axes.loglog(LENGTHS, us, marker="o", label=name.strip("`"))
        axes.set(xlabel="rows a call", ylabel="CPU time, us a row")
        axes.grid(alpha=0.3)
        axes.legend()
        drawn.savefig(figure, dpi=150)


FIRST = """
import time
began = time.process_time()
from mesu import river
imported = time.process_time()
model = river.MESUClassifier(seed=0)
model.learn_one({"a": 1.0, "b": 2.0}, 1)
model.predict_proba_one({"a": 1.0, "b": 2.0})
print(imported - began, time.process_time() - imported)
"""


def main() -> None:
    """Print the tables as Markdown."""
    if "--start" in sys.argv:
        done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=True)
        imported, first = map(float, done.stdout.split())
        print(f"import: {imported:.1f} s of CPU; first row: {first:.1f} s; said: {done.stderr.strip() or 'nothing'}")
        return
    torch.set_num_threads(1)
    print(
        "| hidden units | one row a call | predict, us | learn, us | both | compiled work | ratio |\n"
        + "|---" * 7
        + "|"
    )
    for hidden in (100, 50):
        one_row(hidden)
    by_length(sys.argv[sys.argv.index("--figure") + 1] if "--figure" in sys.argv else None)


if __name__ == "__main__":
    main()
