"""The tidy table that every experiment produces, and the summary numbers, which are computed from it alone."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from mesu import measures
from mesu.lab.paper import paper_number

# Of each learner and measure: "mean" and "std" (of n - 1) over the seeds, "seeds" (how many), "paper" (its number, or None).
Summary = dict[str, dict[str, dict[str, Any]]]


class Row(NamedTuple):
    """One measured number."""

    experiment: str
    learner: str
    seed: int
    step: int  # updates made so far
    after_task: int  # the task just learned, from 0
    on_task: int | None  # the task tested; null for what is not about one task
    measure: str
    value: float
    # of a weight, a histogram's bin or a photograph; null for a measure that has one value
    index: int | None = None  # pyright: ignore[reportIncompatibleMethodOverride]  (of tuple, which rows do not need)


# Tables written before there was the column `index` have these measures' indices in `on_task`.
INDEXED = (
    *("doubt_inside", "doubt_outside"),  # bins
    *("example_animal", "example_animal_answer", "example_animal_species", "example_whale", "example_whale_answer"),
    *("estimate", "hessian", "hessian_at_mean", "std", "proposition_5"),  # weights
)
SCHEMA = {
    "experiment": pl.String,
    "learner": pl.String,
    "seed": pl.Int64,
    "step": pl.Int64,
    "after_task": pl.Int64,
    "on_task": pl.Int64,
    "measure": pl.String,
    "value": pl.Float64,
    "index": pl.Int64,
}


def as_table(rows: Iterable[Row]) -> pl.DataFrame:
    """Rows as a data frame with the columns of `Row`."""
    return pl.DataFrame(list(rows), schema=SCHEMA, orient="row")


def with_index(table: pl.DataFrame) -> pl.DataFrame:
    """A table as it would be written today; one that has the column `index` is returned as it is."""
    if "index" in table.columns or not {"on_task", "measure"} <= set(table.columns):
        return table
    indexed = pl.col("measure").is_in(INDEXED)
    nothing = pl.lit(None, pl.Int64)
    return table.with_columns(
        on_task=pl.when(indexed).then(nothing).otherwise(pl.col("on_task")),
        index=pl.when(indexed).then(pl.col("on_task")).otherwise(nothing),
    )


def read_rows(columns: Sequence[str], rows: Iterable[Sequence]) -> list[Row]:
    """Rows as a checkpoint has them, those of today or those without `index`.

    Raises:
        ValueError: if they are not rows of a table.
        PolarsError: if a value is not of its column's type.
    """
    before = Row._fields[:-1]
    if tuple(columns) not in (before, Row._fields):
        raise ValueError("it has other columns")
    read = []
    for values in rows:
        if len(values) != len(columns):
            raise ValueError(f"a row has {len(values)} values for {len(columns)} columns")
        row = Row(*values)
        if len(columns) == len(before) and row.measure in INDEXED:
            row = row._replace(on_task=None, index=row.on_task)
        read.append(row)
    as_table(read)  # refuses values that no measurement has
    return read


def accuracy_matrix(table: pl.DataFrame, learner: str, seed: int) -> np.ndarray:
    """Accuracy on each task (columns) after each task (rows) of one run; NaN where it was not measured."""
    rows = table.filter(pl.col("on_task").is_not_null(), learner=learner, seed=seed, measure="accuracy")
    tasks = int(rows["after_task"].max()) + 1  # type: ignore[arg-type]
    matrix = np.full((tasks, tasks), np.nan)
    matrix[rows["after_task"].to_numpy(), rows["on_task"].to_numpy()] = rows["value"].to_numpy()
    return matrix


def summarise(table: pl.DataFrame) -> Summary:
    """For each learner and measure: mean and standard deviation (of n - 1) over the seeds, their number, the paper's number.

    None stands for what some seed did not measure, or measured as no finite number.
    """
    summary: Summary = {}
    experiment = str(table["experiment"][0])
    for learner in table["learner"].unique(maintain_order=True):
        seeds = sorted(table.filter(learner=learner)["seed"].unique())
        each = [_scores(table, learner, seed) for seed in seeds]
        summary[learner] = {}
        for name in dict.fromkeys(name for scores in each for name in scores):
            values = np.array([scores.get(name, np.nan) for scores in each])
            mean, std = mean_and_std(values) if np.isfinite(values).all() else (np.nan, np.nan)
            paper = paper_number(experiment, learner, name)
            summary[learner][name] = {"mean": _finite(mean), "std": _finite(std), "seeds": len(seeds), "paper": paper}
        if not _has_tasks(table, learner):
            continue
        # the gap between first and last task is a few test examples, so it is taken of the seeds' mean
        mean_matrix = np.mean([accuracy_matrix(table, learner, seed) for seed in seeds], axis=0)
        summary[learner]["rigidity"] = {
            "mean": _finite(measures.memory_rigidity(mean_matrix)),
            "std": None,
            "seeds": len(seeds),
            "paper": paper_number(experiment, learner, "rigidity"),
        }
    return summary


def mean_and_std(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over the first dimension, which is the seeds.

    The standard deviation is a sample's: squares are divided by n - 1. It is 0 for one seed. NaN is ignored; the result is NaN
    where no seed has a value.
    """
    seen = np.isfinite(values)
    count = np.where(seen.any(0), seen.sum(0), np.nan)
    mean = np.where(seen, values, 0).sum(0) / count
    return mean, np.sqrt(np.where(seen, (values - mean) ** 2, 0).sum(0) / np.maximum(count - 1, 1))


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _has_tasks(table: pl.DataFrame, learner: str) -> bool:
    """Whether a learner was tested on single tasks, so that there is an accuracy matrix."""
    return not table.filter(pl.col("on_task").is_not_null(), learner=learner, measure="accuracy").is_empty()


def _scores(table: pl.DataFrame, learner: str, seed: int) -> dict[str, float]:
    """The numbers of one run: scores of its accuracy matrix, if it has one, and every other measure's last value."""
    own = table.filter(pl.col("on_task").is_null(), pl.col("index").is_null(), learner=learner, seed=seed)
    last = own.group_by("measure", maintain_order=True).last()
    values = dict(zip(last["measure"], last["value"], strict=True))
    if not _has_tasks(table, learner):
        return values
    matrix = accuracy_matrix(table, learner, seed)
    scores = {
        "last_five_accuracy": measures.window_accuracy(matrix, 5),
        "running_five_accuracy": measures.running_window_accuracy(matrix, 5),
        "newest_accuracy": measures.newest_accuracy(matrix),
        "all_tasks_accuracy": measures.average_accuracy(matrix),
        "plasticity": measures.plasticity(matrix),
        "forgetting": measures.forgetting(matrix),
    }
    return scores | values
