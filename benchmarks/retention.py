"""What the default keeps of old tasks, and what it learns of new ones: Permuted MNIST, 20 tasks, one example at a time.

    python -m benchmarks.retention              about ten minutes of one core a seed; goes on where it was stopped
    python -m benchmarks.retention --tasks 3    a look

Every learner is a perceptron of 784-50-10 without biases, remembers 300,000 updates and sees the same 20 tasks of 60,000 rows.
"ten samples" is what the paper does, with its start and its printed rule, or with the closed form of that rule. The others are
the library's default, which draws nothing, at several widths of the start and lengths of a step. AUROC tells Fashion-MNIST from
the newest task by epistemic uncertainty.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.growing import Growing
from torch import nn

import mesu
from mesu.lab.data import fashion_mnist, mnist
from mesu.lab.streams import Permuted
from mesu.measures import auroc

MEMORY, DRAWS, WINDOW = 300_000, 20, 5
FILE = Path(__file__).parents[1] / "docs" / "retention.csv"
FIELDS = ("learner", "seed", "tasks", "last_five", "all", "newest", "first", "auroc", "cpu_seconds")


def of_paper(update: str) -> Callable[[nn.Module, int], mesu.BayesianLearner]:
    """The paper's start and its ten samples, with either form of the rule."""

    def make(net: nn.Module, seed: int) -> mesu.BayesianLearner:
        posterior = mesu.Bayesian(net, init="mnist", estimator="local", seed=seed)
        return mesu.BayesianLearner(posterior, mesu.MESU(posterior, memory=MEMORY, update=update), samples=10)

    return make


def default(init_scale: float | None = None, **options: Any) -> Callable[[nn.Module, int], mesu.BayesianLearner]:
    """The library's default, with another start or another step."""

    def make(net: nn.Module, seed: int) -> mesu.BayesianLearner:
        posterior = mesu.Bayesian(net, init_scale=init_scale, seed=seed)
        return mesu.BayesianLearner(posterior, mesu.MESU(posterior, memory=MEMORY, **options))

    return make


LEARNERS = {
    "ten samples, paper's rule": of_paper("paper"),
    "ten samples, closed form": of_paper("exact"),
    "default": default(),
    "init_scale=4.5": default(4.5),
    "init_scale=6": default(6.0),
    "init_scale=6, max_step=0.15": default(6.0, max_step=0.15),
    "init_scale=10": default(10.0),
}


def learned(name: str, seed: int, tasks: int) -> dict[str, Any]:
    """Learn the stream and measure what is left of it."""
    stream, foreign = Permuted(mnist(), tasks, seed), fashion_mnist().x_test
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(784, 50, bias=False), nn.ReLU(), nn.Linear(50, 10, bias=False))
    learner, seconds = LEARNERS[name](net, seed), 0.0
    for task in stream:
        began = time.process_time()
        learner.learn(task.x_train, task.y_train)
        seconds += time.process_time() - began
    predictions = [learner.predict(task.x_test, DRAWS) for task in stream]
    right = [
        100 * float((found.labels.numpy() == task.y_test).mean())
        for found, task in zip(predictions, stream, strict=True)
    ]
    score = auroc(predictions[-1].epistemic.numpy(), learner.predict(foreign, DRAWS).epistemic.numpy())
    found = (np.mean(right[-WINDOW:]), np.mean(right), right[-1], right[0], score, seconds)
    return dict(zip(FIELDS, (name, seed, tasks, *(round(float(value), 4) for value in found)), strict=True))


def table(rows: list[dict[str, Any]], tasks: int) -> str:
    """Mean and standard deviation over the seeds, as Markdown."""
    lines = [
        "| learner | last five tasks, % | newest, % | all, % | AUROC | CPU, µs a row | seeds |",
        "|---" * 7 + "|",
    ]
    for name in LEARNERS:
        own = [row for row in rows if (row["learner"], int(row["tasks"])) == (name, tasks)]
        if own:
            values = {field: np.array([float(row[field]) for row in own]) for field in FIELDS[3:]}
            spread = {field: f" ± {each.std(ddof=1):.2g}" if len(own) > 1 else "" for field, each in values.items()}
            cells = [f"{values[field].mean():.1f}{spread[field]}" for field in ("last_five", "newest", "all")]
            cells += [f"{values['auroc'].mean():.3f}{spread['auroc']}"]
            cells += [f"{1e6 * values['cpu_seconds'].mean() / (60_000 * tasks):.0f}", str(len(own))]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, write it down as it is found, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--learners", default="", help="names, divided by semicolons; all of them if empty")
    parser.add_argument("--out", type=Path, default=FILE, help="table that is read and added to")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = Growing(given.out, FIELDS)
    done = {(row["learner"], int(row["seed"]), int(row["tasks"])) for row in found.rows}
    for seed in range(given.seeds):
        for name in given.learners.split(";") if given.learners else LEARNERS:
            if (name, seed, given.tasks) not in done:
                found.add(learned(name, seed, given.tasks))
    print(table(found.rows, given.tasks))


if __name__ == "__main__":
    main()
