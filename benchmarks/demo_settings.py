"""How the settings of `mesu run permuted-digits` were chosen: sixteen candidates for every learner, on seeds of their own.

    python benchmarks/demo_settings.py [--learners sgd,si] [--seeds 10,11,12]

The score is the demo's "all along": accuracy on the last five tasks after each task, mean over the stream. The demo's own seeds
are 0 to 2. FOO-VB has no settings. Prints a line for each setting and marks the best of a learner; a line says if the
best is at the edge of its grid, or if the weights diverged.

These are the last grids, moved until each best lay inside: the second of EWC Online, SI and SGD, the third of EWC Stream.
MESU and SGD have their sixteen on one axis, so finer; the others four by four. Decays were not searched. The demo does not use
MESU's best: it shows what the library has by default.
"""

import argparse
import itertools
from dataclasses import fields, replace
from typing import Any

import joblib
import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress

from mesu.lab.entry import Entry
from mesu.lab.experiments.permuted.digits import PermutedDigits
from mesu.lab.table import accuracy_matrix, as_table
from mesu.measures import running_window_accuracy
from mesu.optim import StepRefused

TRIED: dict[str, dict[str, tuple[float, ...]]] = {
    "mesu": {
        "memory": tuple(1000 * k for k in (20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 140, 170, 200, 300, 500))
    },
    "ewc-online": {"ewc_online_lr": (0.001, 0.002, 0.005, 0.01), "ewc_online_strength": (5, 10, 20, 40)},
    "si": {"si_lr": (0.0005, 0.001, 0.002, 0.005), "si_strength": (0.003, 0.01, 0.03, 0.1)},
    "ewc-stream": {"ewc_stream_lr": (0.0005, 0.001, 0.002, 0.005), "ewc_stream_strength": (1, 10, 100, 1000)},
    "sgd": {
        "sgd_lr": (1e-4, 2e-4, 3e-4, 5e-4, 6e-4, 7e-4, 8e-4, 9e-4, 1e-3, 1.2e-3, 1.5e-3, 2e-3, 3e-3, 5e-3, 1e-2, 2e-2)
    },
}


def score(settings: PermutedDigits, learner: str, seed: int) -> float:
    """Accuracy on the last five tasks, mean over the stream, in per cent; not a number if its weights left all bounds."""
    torch.set_num_threads(1)  # this is a worker process: several run side by side
    trial = settings.trial(Entry(learner), seed)
    try:
        rows = [row for task in range(settings.tasks) for row in trial.stage(task)]
    except StepRefused:
        return float("nan")
    return 100 * running_window_accuracy(accuracy_matrix(as_table(rows), learner, seed), 5)


def choices(learner: str) -> list[dict[str, Any]]:
    """Every setting of a learner that is tried."""
    grid = TRIED[learner]
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def settled(choice: dict[str, Any]) -> PermutedDigits:
    """The demo with this choice, and no more tests than the score needs."""
    demo = PermutedDigits(all_tasks_every=PermutedDigits.tasks)
    several = {field.name for field in fields(demo) if isinstance(getattr(demo, field.name), tuple)}
    return replace(demo, **{name: (value,) if name in several else value for name, value in choice.items()})


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description="How the settings of the demo were chosen.")
    parser.add_argument("--learners", default=",".join(TRIED))
    parser.add_argument("--seeds", default="10,11,12")
    given = parser.parse_args()
    learners, seeds = given.learners.split(","), [int(seed) for seed in given.seeds.split(",")]
    for learner in learners:
        if learner not in TRIED:
            parser.error(f"there is nothing to choose for {learner!r}: choose from {', '.join(TRIED)}")
    console = Console(stderr=True)
    print("| learner | settings | all along % | |\n|---|---|---|---|")
    with Progress(console=console) as progress, joblib.Parallel(joblib.cpu_count(), return_as="generator") as parallel:
        for learner in learners:
            tried = choices(learner)
            jobs = (joblib.delayed(score)(settled(choice), learner, seed) for choice in tried for seed in seeds)
            bar = progress.add_task(learner, total=len(tried) * len(seeds))
            scores = []
            for value in parallel(jobs):
                scores.append(value)
                progress.advance(bar)
            table = np.reshape(scores, (len(tried), len(seeds)))
            best = int(np.nanargmax(table.mean(1)))
            for place, (choice, row) in enumerate(zip(tried, table, strict=True)):
                words = ", ".join(f"`{name}={value:g}`" for name, value in choice.items())
                edges = [name for name, v in choice.items() if v in (TRIED[learner][name][0], TRIED[learner][name][-1])]
                note = f"best{', at the edge: ' + ', '.join(edges) if edges else ''}" if place == best else ""
                value = f"{row.mean():.2f} ± {row.std(ddof=1):.2f}" if np.isfinite(row).all() else "out of bounds"
                print(f"| {learner} | {words} | {value} | {note} |", flush=True)


if __name__ == "__main__":
    main()
