"""A run: an experiment's settings, a folder, and the table that they produce. `mesu.lab.runs.folder` lists the files."""

import json
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from mesu.disk import replacing
from mesu.lab.entry import Entry
from mesu.lab.experiments import experiments
from mesu.lab.runs.checkpoints import remove_leftovers
from mesu.lab.runs.folder import RunFolder, new_folder, refuse_ways_out
from mesu.lab.runs.locks import alone
from mesu.lab.runs.logs import check_log
from mesu.lab.runs.settings import as_settings, read_saved, refuse_mixing, write_settings
from mesu.lab.runs.tables import hash_file, read_table, write_table
from mesu.lab.runs.trials import Job, do_all, is_of, say

MOST_SEEDS = 10_000


class Run(RunFolder):
    """A run folder and what its settings ask for; settings.json is read once."""

    _made: pl.DataFrame | None = None  # the table, in the process that has made it: it is not read back

    @classmethod
    def create(cls, settings: Any, parent: Path) -> "Run":
        """A new folder below `parent`, named after the experiment and the time, with the settings in it.

        Raises:
            ValueError: if the experiment is not registered, or has entries that cannot be told apart or written.
        """
        _ = experiments[settings.name]
        check_labels([entry.label for entry in settings.entries])
        run = cls(new_folder(parent, settings.name))
        (run.folder / "parts").mkdir()
        write_settings(run.folder / "settings.json", settings)
        return run

    @classmethod
    def open(cls, folder: Path) -> "Run":
        """An existing run folder.

        Raises:
            ValueError: if it is not one, or its experiment is not known.
        """
        if not (folder / "settings.json").is_file():
            raise ValueError(f"{folder} is not a run: it has no settings.json")
        run = cls(folder)
        _ = run.jobs  # readable, or says why not
        return run

    @cached_property
    def saved(self) -> dict[str, Any]:
        """What settings.json holds: the experiment's name, its settings, the versions."""
        refuse_ways_out(self.folder)
        return read_saved(self.folder / "settings.json")

    @cached_property
    def settings(self) -> Any:
        """The settings the run was started with."""
        return as_settings(self.saved, self.folder)

    @cached_property
    def jobs(self) -> list[Job]:
        """Every entry with every seed, in the table's order.

        Raises:
            ValueError: if an entry's label could lead out of the folder, or there are too many seeds.
        """
        entries, seeds = self.settings.entries, self.settings.seeds
        check_labels([entry.label for entry in entries])
        if seeds > MOST_SEEDS:
            raise ValueError(f"seeds must be at most {MOST_SEEDS:,}, got {seeds:,}")
        return [(entry, seed) for entry in entries for seed in range(seeds)]

    def stages_done(self) -> int:
        """How many stages are finished, over all jobs: for progress."""
        return sum(self.stages_of(entry.label, seed, self.settings.stages) for entry, seed in self.jobs)

    def table(self) -> pl.DataFrame:
        """The table of a finished run.

        Raises:
            ValueError: if it is not finished.
        """
        if self._made is not None:
            return self._made
        path = self.folder / "table.parquet"
        if not path.is_file():
            raise ValueError(f"{self.folder} is not finished: `mesu resume {self.folder}` finishes it")
        try:
            return read_table(path)
        except ValueError as error:
            raise ValueError(f"{error}: `mesu resume {self.folder}` makes it again") from error

    def execute(self, workers: int, log: Sequence[str] = ()) -> pl.DataFrame:
        """Do what is not done yet, `workers` jobs at a time, and write the table; numbers go to the sinks in `log` meanwhile.

        Raises:
            ValueError: if `workers` is below 1, if a sink is not known or not installed, if a worker was killed, if another
                process is at work on this run, or if its settings, or versions that its numbers depend on, have changed since
                it began.
        """
        check_workers(workers)
        check_log(log, self.settings.name)
        with alone(self.folder):
            for folder in (self.folder, self.folder / "parts"):
                remove_leftovers(folder)
            refuse_mixing(self.saved, self.folder, begun=False)
            parts = {job: self._part_of(*job) for job in self.jobs}
            refuse_mixing(self.saved, self.folder, begun=any(part is None for part in parts.values()))
            do_all(self, self.settings, [job for job, part in parts.items() if part is None], workers, log)
            tables = [
                read_table(self.part(job[0].label, job[1])) if part is None else part for job, part in parts.items()
            ]
            table = pl.concat(tables)
            write_table(self.folder / "table.parquet", table)
            times = {f"{entry.label}-{seed}": self.seconds(entry.label, seed) for entry, seed in self.jobs}
            with replacing(self.folder / "times.json", flush=False) as path:
                path.write_text(json.dumps(times, indent=2) + "\n")
            self._made = table
            return table

    def _part_of(self, entry: Entry, seed: int) -> pl.DataFrame | None:
        """The rows of a job that is done; None if they are to be made, or are damaged and to be made again."""
        part = self.part(entry.label, seed)
        if not part.exists():
            return None
        try:
            if not hash_file(part).is_file():
                raise ValueError(f"{part} has lost its SHA-256")
            rows = read_table(part)
            if not is_of(set(rows["learner"]), set(rows["seed"]), self.settings, entry.label, seed):
                raise ValueError(f"{part} is of another learner or seed")
            return rows
        except (ValueError, pl.exceptions.ColumnNotFoundError) as error:
            say(f"{error}: it is made again")
            part.unlink()
            return None


def check_labels(labels: list[str]) -> None:
    """Refuse entries whose labels are the same, or cannot be names of files."""
    for label in labels:
        plain = Path(label).name == label and "\\" not in label and label.isprintable()
        if not plain or labels.count(label) > 1:
            raise ValueError(
                f"the entries of an experiment must have different labels that can be file names, got {label!r} in "
                f"{', '.join(labels)}"
            )


def check_workers(workers: int) -> None:
    """Refuse a number of workers that cannot do anything.

    Raises:
        ValueError: if it is not 1 or more.
    """
    if workers < 1:
        raise ValueError(f"workers must be 1 or more, got {workers!r}")


def watch(run: Run, report: Callable[[int], None], stop: Callable[[], bool]) -> None:
    """Report finished stages a few times a second until told to stop."""
    while not stop():
        report(run.stages_done())
        time.sleep(0.2)
