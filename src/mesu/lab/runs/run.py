"""Run folders: where a run writes its settings, its checkpoints, its parts as they finish, and its table; and how it goes on.

    runs/permuted-mnist-2026-01-31-120000/
      settings.json             what was asked for, and with which versions
      checkpoints/mesu-0/       the learner and its rows so far, after every task
      parts/mesu-0.parquet      the rows of one learner and seed, written when it is done
      pictures/mesu-0/          photographs that those rows speak of, where an experiment has some
      table.parquet             all parts, in order
      *.parquet.sha256          what `sha256sum --check` reads, beside each
      times.json                seconds that each part took
      figures, report.html      drawn from the table and the pictures

Files are written aside and moved into place, so a kill leaves a folder that `resume` can finish, to the same table bit for bit.
"""

import hashlib
import io
import json
import os
import platform
import sys
import time
import types
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import joblib
import numba
import numpy as np
import polars as pl
import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError
from PIL import Image

from mesu.lab.runs import checkpoints
from mesu.lab.runs.locks import alone, end_with, end_workers
from mesu.lab.runs.checkpoints import Checkpoint, remove_leftovers, replacing
from mesu.lab.experiments import EXPERIMENTS
from mesu.lab.table import as_table
from mesu.lab.experiments.trial import Illustrated
from mesu.version import __version__


class Run:
    """A run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, settings: Any, parent: Path) -> "Run":
        """A new folder below `parent`, named after the experiment and the time, with the settings in it."""
        make_folder(parent)
        name = f"{settings.name}-{time.strftime('%Y-%m-%d-%H%M%S')}"
        folder, attempt = parent / name, 1
        while not _made(folder):  # two runs in one second
            folder, attempt = parent / f"{name}-{attempt}", attempt + 1
        (folder / "parts").mkdir()
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
        run = cls(folder)
        _ = run.settings  # readable, or says why not
        return run

    @property
    def saved(self) -> dict[str, Any]:
        """What settings.json says: the experiment's name, its settings, the versions."""
        path = self.folder / "settings.json"
        try:
            saved = json.loads(path.read_text())
            if not isinstance(saved, dict) or not isinstance(saved.get("settings"), dict):
                raise ValueError("it holds no settings")
            if not isinstance(saved.get("experiment"), str):
                raise ValueError("it does not say of which experiment")
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} cannot be read: {error}") from error
        return saved

    @property
    def settings(self) -> Any:
        """The settings the run was started with."""
        saved = self.saved
        if saved["experiment"] not in EXPERIMENTS:
            raise ValueError(f"{self.folder} is a run of {saved['experiment']!r}, which this version does not know")
        kind: Any = EXPERIMENTS[saved["experiment"]]
        values = {name: tuple(v) if isinstance(v, list) else v for name, v in saved["settings"].items()}
        values = {**getattr(kind, "unsaid", {}), **values}
        types_of = get_type_hints(kind)
        try:
            settings = kind(**values)
            for name, value in values.items():
                if not _fits(value, types_of[name]):
                    raise TypeError(f"{name} cannot be {value!r}")
        except TypeError as error:
            raise ValueError(f"the settings of {self.folder} do not fit this version: {error}") from error
        return settings

    @property
    def jobs(self) -> list[tuple[str, int]]:
        """Every contestant with every seed, in the table's order."""
        settings = self.settings
        return [(name, seed) for name in settings.contestants for seed in range(settings.seeds)]

    def part(self, contestant: str, seed: int) -> Path:
        """Where the rows of one contestant and seed go."""
        return self.folder / "parts" / f"{contestant}-{seed}.parquet"

    def checkpoint_folder(self, contestant: str, seed: int) -> Path:
        """Where its checkpoints go."""
        return self.folder / "checkpoints" / f"{contestant}-{seed}"

    def stages_done(self) -> int:
        """How many stages are finished, over all jobs: for progress."""
        done, stages = 0, self.settings.stages
        for job in self.jobs:
            if self.part(*job).exists():
                done += stages
            else:
                names = self.checkpoint_folder(*job).glob("after-*.json")
                done += max([checkpoints.stages_in_name(path) for path in names], default=0)
        return done

    def table(self) -> pl.DataFrame:
        """The table of a finished run.

        Raises:
            ValueError: if it is not finished.
        """
        path = self.folder / "table.parquet"
        if not path.is_file():
            raise ValueError(f"{self.folder} is not finished: `mesu resume {self.folder}` finishes it")
        try:
            return _read_table(path)
        except ValueError as error:
            raise ValueError(f"{error}: `mesu resume {self.folder}` makes it again") from error

    def times(self) -> dict[str, float]:
        """Seconds that each contestant and seed took; empty if nobody knows."""
        try:
            times = json.loads((self.folder / "times.json").read_text())
            return {str(job): float(seconds) for job, seconds in times.items()}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return {}

    def picture_folder(self, contestant: str, seed: int) -> Path:
        """Where its pictures go."""
        return self.folder / "pictures" / f"{contestant}-{seed}"

    def pictures(self) -> dict[str, dict[str, np.ndarray]]:
        """The pictures of each contestant and seed by name, without those that are lost or damaged."""
        found: dict[str, dict[str, np.ndarray]] = {}
        for path in sorted(self.folder.glob("pictures/*/*.png")):
            picture = _read_picture(path)
            if picture is not None:
                found.setdefault(path.parent.name, {})[path.stem] = picture
        return found

    def execute(self, workers: int) -> pl.DataFrame:
        """Do what is not done yet, `workers` jobs at a time, and write the table.

        Raises:
            ValueError: if `workers` is below 1, if one of them was killed, or if another process is at work on this run.
        """
        check_workers(workers)
        with alone(self.folder):
            for folder in (self.folder, self.folder / "parts"):
                remove_leftovers(folder)
            missing = [job for job in self.jobs if not _readable(self.part(*job))]
            # the slow ones first, so that the cores finish together
            missing.sort(key=lambda job: not job[0].startswith(("mesu", "foo-vb")))
            if workers == 1 or len(missing) == 1:
                for job in missing:
                    _execute_part(self.folder, *job)
            elif missing:
                before = sys.exception()  # what a caller may be in the middle of is none of ours
                try:
                    of_ours = joblib.delayed(_execute_in_worker)
                    joblib.Parallel(workers, backend="loky")(of_ours(os.getpid(), self.folder, *job) for job in missing)
                except BaseException as error:
                    end_workers()  # if this process alone was stopped, it would wait for them
                    if _interrupted(error, before):
                        raise KeyboardInterrupt from error
                    if isinstance(error, TerminatedWorkerError):
                        raise ValueError(
                            "a worker process was killed, perhaps for lack of memory: "
                            f"`mesu resume {self.folder} --workers 1` goes on"
                        ) from error
                    raise
            table = pl.concat([_read_table(self.part(*job)) for job in self.jobs])
            _write_table(self.folder / "table.parquet", table)
            times = {f"{name}-{seed}": _seconds(self.part(name, seed)) for name, seed in self.jobs}
            with replacing(self.folder / "times.json") as path:
                path.write_text(json.dumps(times, indent=2) + "\n")
            return table


def _interrupted(error: BaseException | None, before: BaseException | None) -> bool:
    """Whether an error is a stop from the keyboard, or came of one after the error `before`."""
    while error not in (None, before):
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def check_workers(workers: int) -> None:
    """Refuse a number of workers that cannot do anything.

    Raises:
        ValueError: if it is not 1 or more.
    """
    if workers < 1:
        raise ValueError(f"workers must be 1 or more, got {workers!r}")


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, unless they are there.

    Raises:
        ValueError: if one of them is a file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        above = (path for path in folder.parents if path.exists() and not path.is_dir())
        taken = next(above, folder)
        raise ValueError(f"{taken} is not a folder: move it away, or choose another folder") from error


def _execute_part(folder: Path, contestant: str, seed: int) -> None:
    """Take one contestant with one seed through the stages it has not done."""
    run = Run(folder)
    settings = run.settings
    trial = settings.trial(contestant, seed)
    own = run.checkpoint_folder(contestant, seed)
    make_folder(own)
    with alone(own, wait=True):  # a worker whose run was killed may take a moment to end
        _learn(run, trial, own, contestant, seed)


def _learn(run: Run, trial: Any, own: Path, contestant: str, seed: int) -> None:
    settings = run.settings
    remove_leftovers(own)
    complaints: list[str] = []
    done = checkpoints.newest(own, complaints.append) or Checkpoint(0, [], {})
    for complaint in complaints:
        _say(complaint)
    if complaints:
        way = (
            f"goes on after {done.stages} of {settings.stages} {settings.stage_name}" if done.stages else "starts over"
        )
        _say(f"{contestant} with seed {seed} {way}")
    checkpoints.prune(own, done.stages)
    if done.stages:
        trial.restore(done.tensors)
    for index in range(done.stages, settings.stages):
        began = time.perf_counter()
        rows = [*done.rows, *trial.stage(index)]
        done = Checkpoint(index + 1, rows, trial.tensors(), done.seconds + time.perf_counter() - began)
        checkpoints.write(own, done)
    if isinstance(trial, Illustrated):
        _write_pictures(run.picture_folder(contestant, seed), trial.pictures(done.rows))
    with replacing(run.part(contestant, seed).with_suffix(".seconds")) as path:
        path.write_text(f"{done.seconds:.3f}\n")
    _write_table(run.part(contestant, seed), as_table(done.rows))


def _execute_in_worker(parent: int, folder: Path, contestant: str, seed: int) -> None:
    """`_execute_part` in a process of its own, which ends with the one that started it."""
    end_with(parent)
    _execute_part(folder, contestant, seed)


def _say(text: str) -> None:
    print(f"mesu: {text}", file=sys.stderr, flush=True)


def _made(folder: Path) -> bool:
    """Make a folder; False if somebody else has, perhaps this very moment."""
    try:
        folder.mkdir()
        return True
    except FileExistsError:
        return False


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value from a settings file is what a field is declared to be."""
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_fits(item, get_args(kind)[0]) for item in value)
    if get_origin(kind) in (Union, types.UnionType):
        return any(_fits(value, choice) for choice in get_args(kind))
    if not isinstance(kind, type):
        return True  # nothing is known about it
    if isinstance(value, bool):  # which Python takes for a number
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _write_table(path: Path, table: pl.DataFrame) -> None:
    """Write a table and, before it, its SHA-256: damage to a number in it would not show otherwise."""
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    with replacing(_sum_of(path)) as aside:
        aside.write_text(f"{hashlib.sha256(buffer.getvalue()).hexdigest()}  {path.name}\n")
    with replacing(path) as aside:
        aside.write_bytes(buffer.getvalue())


def _read_table(path: Path) -> pl.DataFrame:
    """A table that is as it was written.

    Raises:
        ValueError: if it is not.
    """
    data, beside = path.read_bytes(), _sum_of(path)
    if beside.is_file() and beside.read_bytes()[:64] != hashlib.sha256(data).hexdigest().encode():
        raise ValueError(f"{path} is damaged: it is not what was written")
    try:
        return pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def _write_pictures(folder: Path, pictures: dict[str, np.ndarray]) -> None:
    """Write pictures, before the part that speaks of them: where that is, they are."""
    if not pictures:
        return
    folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    for name, picture in pictures.items():
        with replacing(folder / f"{name}.png") as path:
            Image.fromarray(picture).save(path, format="PNG")


def _read_picture(path: Path) -> np.ndarray | None:
    try:
        with Image.open(path, formats=("PNG",)) as opened:
            return np.asarray(opened.convert("RGB"))
    except Exception:  # Pillow raises many kinds, SyntaxError among them
        return None


def _sum_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _readable(part: Path) -> bool:
    """Whether a part is there and whole; a damaged one is made again."""
    if not part.exists():
        return False
    try:
        _read_table(part)
        return True
    except ValueError as error:
        _say(f"{error}: it is made again")
        part.unlink()
        return False


def _seconds(part: Path) -> float:
    try:
        return float(part.with_suffix(".seconds").read_text())
    except (OSError, ValueError):
        return float("nan")


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    return {
        "mesu": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "machine": platform.machine(),
    }


def watch(run: Run, report: Callable[[int], None], stop: Callable[[], bool]) -> None:
    """Report finished stages a few times a second until told to stop."""
    while not stop():
        report(run.stages_done())
        time.sleep(0.2)
