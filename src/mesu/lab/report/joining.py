"""Join the tables of several runs of one experiment."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import polars as pl

from mesu.lab.runs.run import Run

# settings that may differ between runs whose seeds are joined: they say which jobs a run has, not how each learns
FREE = ("learners", "seeds", "memory")


def joined(runs: Sequence[Run]) -> pl.DataFrame:
    """The rows of all runs in one table.

    Raises:
        ValueError: if a run is not finished, if the runs differ in experiment or length, or if two of them have the same
            learner with the same seed, or the same learner with different settings.
    """
    tables = [run.table() for run in runs]
    for run, table in zip(runs, tables, strict=True):
        if table.is_empty():
            raise ValueError(f"the table of {run.folder} has no rows: delete the run and start it again")
    for (one, first), (other, second) in combinations(zip(runs, tables, strict=True), 2):
        _check(one, first, other, second)
    return pl.concat(tables)


def _check(one: Run, first: pl.DataFrame, other: Run, second: pl.DataFrame) -> None:
    names = [run.saved["experiment"] for run in (one, other)]
    if names[0] != names[1]:
        raise ValueError(
            f"only runs of one experiment can be joined: {one.folder} is of {names[0]}, {other.folder} of {names[1]}"
        )
    stages = [int(table["after_task"].max()) + 1 for table in (first, second)]  # type: ignore[arg-type]
    if stages[0] != stages[1]:
        raise ValueError(
            f"{one.folder} has {stages[0]} stages and {other.folder} {stages[1]}: their results at the end are not comparable"
        )
    pairs = [set(table.select("learner", "seed").unique().rows()) for table in (first, second)]
    if both := sorted(pairs[0] & pairs[1]):
        said = ", ".join(f"{learner} with seed {seed}" for learner, seed in both)
        raise ValueError(f"{one.folder} and {other.folder} both have {said}")
    shared = sorted({learner for learner, _ in pairs[0]} & {learner for learner, _ in pairs[1]})
    if shared and (different := _differences(one.saved["settings"], other.saved["settings"], shared)):
        raise ValueError(
            f"{one.folder} and {other.folder} both have {', '.join(shared)}, under different settings: {', '.join(different)}"
        )


def _differences(one: dict[str, Any], other: dict[str, Any], shared: list[str]) -> list[str]:
    # the name `mesu` does not contain the memory, so there a difference in memory matters
    free = [name for name in FREE if name != "memory" or "mesu" not in shared]
    names = [name for name in {**one, **other} if name not in free]
    return [f"{name} {one.get(name)} and {other.get(name)}" for name in names if one.get(name) != other.get(name)]
