"""The one tidy table that every experiment gives, and the numbers people quote, worked out from it alone."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import polars as pl

from mesu import measures


class Row(NamedTuple):
    """One measured number. `on_task` is null for what is not about one task."""

    experiment: str
    learner: str
    seed: int
    step: int  # updates made so far
    after_task: int  # the task just learned, from 0
    on_task: int | None  # the task tested
    measure: str
    value: float


SCHEMA = {
    "experiment": pl.String,
    "learner": pl.String,
    "seed": pl.Int64,
    "step": pl.Int64,
    "after_task": pl.Int64,
    "on_task": pl.Int64,
    "measure": pl.String,
    "value": pl.Float64,
}


def as_table(rows: Iterable[Row]) -> pl.DataFrame:
    """Rows as a data frame with the columns of `Row`."""
    return pl.DataFrame(list(rows), schema=SCHEMA, orient="row")


def accuracy_matrix(table: pl.DataFrame, learner: str, seed: int) -> np.ndarray:
    """Accuracy on each task (columns) after each task (rows) of one run; NaN where it was not measured."""
    rows = table.filter(learner=learner, seed=seed, measure="accuracy")
    tasks = int(rows["after_task"].max()) + 1  # type: ignore[arg-type]
    matrix = np.full((tasks, tasks), np.nan)
    matrix[rows["after_task"].to_numpy(), rows["on_task"].to_numpy()] = rows["value"].to_numpy()
    return matrix


def summarise(table: pl.DataFrame) -> dict[str, dict[str, dict[str, float | int | None]]]:
    """For each learner and measure: mean and standard deviation over the seeds, and how many there are."""
    summary: dict[str, dict[str, dict[str, float | int | None]]] = {}
    for learner in table["learner"].unique(maintain_order=True):
        seeds = sorted(table.filter(learner=learner)["seed"].unique())
        each = [_scores(table, learner, seed) for seed in seeds]
        summary[learner] = {
            name: {
                "mean": float(np.mean([scores[name] for scores in each])),
                "std": float(np.std([scores[name] for scores in each])),
                "seeds": len(seeds),
                "paper": None,
            }
            for name in each[0]
        }
        # the gap between first and last task is a few test examples, so it is taken of the seeds' mean
        mean_matrix = np.mean([accuracy_matrix(table, learner, seed) for seed in seeds], axis=0)
        rigidity = measures.memory_rigidity(mean_matrix)
        summary[learner]["rigidity"] = {
            "mean": rigidity if np.isfinite(rigidity) else None,
            "std": None,
            "seeds": len(seeds),
            "paper": None,
        }
    return summary


def _scores(table: pl.DataFrame, learner: str, seed: int) -> dict[str, float]:
    matrix = accuracy_matrix(table, learner, seed)
    scores = {
        "last_five_accuracy": measures.window_accuracy(matrix, 5),
        "running_five_accuracy": measures.running_window_accuracy(matrix, 5),
        "newest_accuracy": measures.newest_accuracy(matrix),
        "all_tasks_accuracy": measures.average_accuracy(matrix),
        "plasticity": measures.plasticity(matrix),
        "forgetting": measures.forgetting(matrix),
    }
    final = table.filter(learner=learner, seed=seed, after_task=len(matrix) - 1)
    for name in ("ood_auroc", "calibration_error"):
        values = final.filter(measure=name)["value"]
        if len(values):
            scores[name] = float(values[0])
    return scores
