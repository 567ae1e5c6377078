"""Run folders: where a run writes its settings, its parts as they finish, and its table; and how it is taken up again.

    runs/permuted-digits-2026-01-31-120000/
      settings.json          what was asked for, and with which versions
      parts/mesu-0.parquet   the rows of one learner and seed, written when it is done
      table.parquet          all parts, in order
      figure.png, figure.svg

Files are written aside and moved into place, so a kill leaves a folder that `resume` can finish.
"""

import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import polars as pl
import torch

from mesu.experiments import EXPERIMENTS
from mesu.experiments.table import as_table
from mesu.version import __version__


class Run:
    """A run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, settings: Any, parent: Path) -> "Run":
        """A new folder below `parent`, named after the experiment and the time, with the settings in it."""
        parent.mkdir(parents=True, exist_ok=True)
        name = f"{settings.name}-{time.strftime('%Y-%m-%d-%H%M%S')}"
        folder, attempt = parent / name, 1
        while folder.exists():  # two runs in one second
            folder, attempt = parent / f"{name}-{attempt}", attempt + 1
        (folder / "parts").mkdir(parents=True)
        saved = {"experiment": settings.name, "settings": asdict(settings), "versions": versions()}
        with replacing(folder / "settings.json") as path:
            path.write_text(json.dumps(saved, indent=2) + "\n")
        return cls(folder)

    @classmethod
    def open(cls, folder: Path) -> "Run":
        """An existing run folder.

        Raises:
            ValueError: if it is not one.
        """
        if not (folder / "settings.json").is_file():
            raise ValueError(f"{folder} is not a run: it has no settings.json")
        return cls(folder)

    @property
    def settings(self) -> Any:
        """The settings the run was started with."""
        saved = json.loads((self.folder / "settings.json").read_text())
        kind: Any = EXPERIMENTS[saved["experiment"]]
        values = {name: tuple(v) if isinstance(v, list) else v for name, v in saved["settings"].items()}
        return kind(**values)

    @property
    def jobs(self) -> list[tuple[str, int]]:
        """Every learner with every seed, in the table's order."""
        settings = self.settings
        return [(learner, seed) for learner in settings.learners for seed in range(settings.seeds)]

    def part(self, learner: str, seed: int) -> Path:
        """Where the rows of one learner and seed go."""
        return self.folder / "parts" / f"{learner}-{seed}.parquet"

    def tasks_done(self) -> int:
        """How many tasks are finished, over all learners and seeds: for progress."""
        done = 0
        for job in self.jobs:
            counter = self.part(*job).with_suffix(".progress")
            if self.part(*job).exists():
                done += self.settings.tasks
            elif counter.exists():
                done += counter.stat().st_size
        return done

    def execute(self, workers: int) -> pl.DataFrame:
        """Do what is not done yet, `workers` jobs at a time, and write the table."""
        missing = [job for job in self.jobs if not self.part(*job).exists()]
        # the slow ones first, so that the cores finish together
        missing.sort(key=lambda job: job[0] not in ("mesu", "foo-vb"))
        if workers == 1:
            for job in missing:
                _execute_part(self.folder, *job)
        elif missing:
            joblib.Parallel(n_jobs=workers)(joblib.delayed(_execute_part)(self.folder, *job) for job in missing)
        table = pl.concat([pl.read_parquet(self.part(*job)) for job in self.jobs])
        with replacing(self.folder / "table.parquet") as path:
            table.write_parquet(path)
        return table


def _execute_part(folder: Path, learner: str, seed: int) -> None:
    """Train and measure one learner with one seed; runs in a worker process."""
    run = Run(folder)
    part = run.part(learner, seed)
    counter = part.with_suffix(".progress")
    counter.write_bytes(b"")

    def task_done() -> None:
        with counter.open("ab") as file:  # one byte a task: the file's size is the count
            file.write(b".")

    table = as_table(run.settings.rows(learner, seed, task_done))
    with replacing(part) as path:
        table.write_parquet(path)
    counter.unlink()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to that takes the place of `path` in one move when all went well."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield aside
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    return {
        "mesu": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
    }


def watch(run: Run, report: Callable[[int], None], stop: Callable[[], bool]) -> None:
    """Report finished tasks a few times a second until told to stop."""
    while not stop():
        report(run.tasks_done())
        time.sleep(0.2)
