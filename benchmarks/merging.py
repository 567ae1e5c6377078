"""One stream on K workers that merge: accuracy and log loss beside one worker, and where merging breaks.

    python -m benchmarks.merging                     what docs/merging.csv holds: about ten minutes of one core
    python -m benchmarks.merging --rows 20000        a look
    python -m benchmarks.merging --rows 581012 --only whole
    python -m benchmarks.merging --figure            draw docs/figures/merging.png from the table

The workers are simulated on one core, so this counts rows and answers, not time. Rows are dealt out one by one. Each worker
learns M rows, in blocks of 32 that are predicted first; then all of them merge, and go on from copies of what was merged. A
worker's memory is that of the stream divided by K, since a worker sees one row in K.

Covertype is scored along the stream (every row is predicted before it is learned) and in its last quarter; Permuted MNIST by
the test sets of all its tasks at the end.
"""

import argparse
import copy
import csv
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

import mesu
from mesu.lab.data import mnist
from mesu.lab.streams import Permuted

ROWS, BASE, BLOCK = 100_000, 1_000, 32
LEAST = 1e-3  # probability that a wrong "never" counts as, as in benchmarks/streams
MEMORY, DRAWS, TASKS, TASK_ROWS = 100_000, 20, 3, 12_000
FILE = Path(__file__).parents[1] / "docs" / "merging.csv"
FIGURE = FILE.parent / "figures" / "merging.png"
FIELDS = (
    "work",
    "rows",
    "workers",
    "every",
    "means",
    "start",
    "base",
    "accuracy",
    "log_loss",
    "late",
    "merges",
    "cpu_seconds",
)
KEYS = FIELDS[:7]


class Trial(NamedTuple):
    """What is varied."""

    work: str
    rows: int
    workers: int
    every: int  # rows of each worker between two merges
    means: str = "sum"
    start: float = 2.0  # init_scale
    base: int = BASE  # rows that the base learns alone


def trials(rows: int, only: str) -> Iterator[Trial]:
    """All of them, or those of one part."""
    groups = {
        "covertype": [
            Trial("covertype", rows, 1, 0),
            *(
                Trial("covertype", rows, workers, every, means)
                for workers in (2, 4, 8)
                for every in (32, 256, 2048)
                for means in ("sum", "average")
            ),
            *(Trial("covertype", rows, 8, 256, means, start) for means in ("sum", "average") for start in (0.5, 8.0)),
            *(
                Trial("covertype", rows, 8, 256, means, 2.0, base)
                for means in ("sum", "average")
                for base in (32, 10_000)
            ),
            *(Trial("covertype", rows, 1, 0, "sum", start) for start in (0.5, 8.0)),
        ],
        "mnist": [
            Trial("mnist", TASK_ROWS * TASKS, 1, 0),
            *(
                Trial("mnist", TASK_ROWS * TASKS, workers, every, means)
                for workers in (2, 4, 8)
                for every in (32, 256)
                for means in ("sum", "average")
            ),
        ],
        "whole": [
            Trial("covertype", 581_012, 1, 0),
            *(Trial("covertype", 581_012, workers, 32) for workers in (2, 4, 8)),
            *(Trial("covertype", 581_012, workers, 256, "average") for workers in (4, 8)),
        ],
    }
    for name, group in groups.items():
        if only == name or (only == "" and name != "whole"):
            yield from group


def on_workers(
    base: Any, trial: Trial, rows: int, learn: Callable[[Any, np.ndarray], None], merge: Callable
) -> tuple[Any, int]:
    """Deal rows out to workers, which learn and merge in turn. Returns the merged model and how often it was merged."""
    merges, at = 0, trial.base if trial.work == "covertype" else 0
    if trial.workers == 1:
        learn(base, np.arange(at, rows))
        return base, 0
    while at < rows:
        shards = [
            np.arange(at + i, min(at + trial.workers * trial.every, rows), trial.workers) for i in range(trial.workers)
        ]
        workers = [copy.deepcopy(base) for _ in shards]
        for worker, shard in zip(workers, shards, strict=True):
            if len(shard):
                learn(worker, shard)
        base, merges, at = (
            merge(base, workers, [len(shard) for shard in shards]),
            merges + 1,
            at + trial.workers * trial.every,
        )
    return base, merges


@cache
def forest(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The first rows of Covertype, their labels, and all labels that there are; read once."""
    found = mesu.data.covertype()
    return found.x[:rows].copy(), found.y[:rows].copy(), np.unique(found.y)


def covertype(trial: Trial) -> dict[str, float]:
    """Test on each row, then train on it."""
    x, y, labels = forest(trial.rows)
    base = mesu.MESUClassifier(memory=MEMORY / trial.workers, init_scale=trial.start, random_state=0)
    base.partial_fit(x[: trial.base], y[: trial.base], classes=labels)
    number = {label: i for i, label in enumerate(base.classes_.tolist())}
    probability, right = np.full(trial.rows, np.nan), np.full(trial.rows, np.nan)

    def learn(model: Any, shard: np.ndarray) -> None:
        for start in range(0, len(shard), BLOCK):
            at = shard[start : start + BLOCK]
            found = model.predict_proba(x[at])
            column = np.array([number[label] for label in y[at].tolist()])
            probability[at] = found[np.arange(len(at)), column]
            right[at] = found.argmax(1) == column
            model.partial_fit(x[at], y[at])

    _, merges = on_workers(
        base, trial, trial.rows, learn, lambda b, workers, _: mesu.merge(b, workers, means=trial.means)
    )
    losses = -np.log(np.maximum(probability, LEAST))
    return {
        "accuracy": 100 * float(np.nanmean(right)),
        "log_loss": float(np.nanmean(losses)),
        "late": 100 * float(np.mean(right[-trial.rows // 4 :])),
        "merges": merges,
    }


def permuted_mnist(trial: Trial) -> dict[str, float]:
    """Learn the tasks one after the other, then take the test of each. `late` is that of the last task."""
    tasks = list(Permuted(mnist(), TASKS, 0))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(784, 50), nn.ReLU(), nn.Linear(50, 10))
    base = mesu.Bayesian(net, seed=0)
    base.fit_inputs(torch.from_numpy(tasks[0].x_train[:BLOCK]).flatten(1).float())

    def optimizer(network: Any) -> mesu.MESU:
        return mesu.MESU(network, memory=MEMORY / trial.workers)

    merges = 0
    for task in tasks:

        def learn(network: Any, shard: np.ndarray, task: Any = task) -> None:
            mesu.BayesianLearner(network, optimizer(network)).learn(task.x_train[shard], task.y_train[shard])

        def merge(old: Any, networks: list, updates: list) -> Any:
            return mesu.merge(old, networks, optimizer(old), updates=updates, means=trial.means)

        base, more = on_workers(base, trial, TASK_ROWS, learn, merge)
        merges += more
    learner, right, losses = mesu.BayesianLearner(base, optimizer(base)), [], []
    for task in tasks:
        probs = learner.predict(task.x_test, DRAWS).probs.numpy()
        right.append(100 * float((probs.argmax(1) == task.y_test).mean()))
        losses.append(float(-np.log(np.maximum(probs[np.arange(len(probs)), task.y_test], LEAST)).mean()))
    return {"accuracy": float(np.mean(right)), "log_loss": float(np.mean(losses)), "late": right[-1], "merges": merges}


WORK = {"covertype": covertype, "mnist": permuted_mnist}


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown, with the difference to one worker on the same rows from the same start."""
    lines = [
        "| work | rows | workers | merge every | means | start | base | accuracy, % | log loss | late, % | merges |",
        "|---" * 11 + "|",
    ]
    for row in rows:
        scores = f"{float(row['accuracy']):.1f} | {float(row['log_loss']):.3f} | {float(row['late']):.1f}"
        lines.append(f"| {' | '.join(str(row[name]) for name in KEYS)} | {scores} | {row['merges']} |")
    return "\n".join(lines)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Accuracy along Covertype and at the end of Permuted MNIST by how often workers merge."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9, 3.4))
    colours = {2: "#009E73", 4: "#0072B2", 8: "#D55E00"}
    most = {"covertype": ROWS, "mnist": TASK_ROWS * TASKS}
    for axes, (work, title) in zip(
        panels, (("covertype", "Covertype, along the stream"), ("mnist", "Permuted MNIST, all tasks")), strict=True
    ):
        own = [row for row in rows if row["work"] == work and int(row["rows"]) == most[work]]
        own = [row for row in own if float(row["start"]) == 2.0 and int(row["base"]) == BASE]
        for row in own:
            if int(row["workers"]) == 1:
                axes.axhline(float(row["accuracy"]), color="#666666", linewidth=1, label="one worker")
        for workers, colour in colours.items():
            for means, line in (("sum", "-"), ("average", "--")):
                points = sorted(
                    (int(row["every"]), float(row["accuracy"]))
                    for row in own
                    if (int(row["workers"]), row["means"]) == (workers, means)
                )
                if points:
                    axes.plot(
                        *zip(*points, strict=True), line, marker="o", color=colour, label=f"{workers} workers, {means}"
                    )
        axes.set(xscale="log", title=title, xlabel="rows of each worker between merges", ylabel="accuracy, %")
        axes.grid(alpha=0.3)
    panels[0].legend(fontsize=7, frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Run what is missing, write it down as it is found, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS, help="of Covertype")
    parser.add_argument("--only", default="", choices=("", "covertype", "mnist", "whole"))
    parser.add_argument("--figure", action="store_true", help="run nothing, draw the figure")
    parser.add_argument("--out", type=Path, default=FILE, help="table that is read and added to")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    if given.out.exists():
        with given.out.open(newline="") as file:
            rows = list(csv.DictReader(file))
    done = {tuple(row[name] for name in KEYS) for row in rows}
    for trial in [] if given.figure else trials(given.rows, given.only):
        if tuple(map(str, trial)) in done:
            continue
        began = time.process_time()
        found = WORK[trial.work](trial)
        found["cpu_seconds"] = time.process_time() - began
        rows.append({**trial._asdict(), **{name: round(value, 4) for name, value in found.items()}})
        print(rows[-1], flush=True)
        with given.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(rows)
    if given.figure:
        draw(rows, FIGURE)
    print(table(rows))


if __name__ == "__main__":
    main()
