"""The folder of a run: where its settings, its checkpoints, its parts, its table and its pictures are.

    runs/permuted-mnist-2026-01-31-120000/
      settings.json             what was asked for, and with which versions
      checkpoints/mesu-0/       the learner and its rows so far, after every stage
      parts/mesu-0.parquet      the rows of one entry and seed, written when it is done
      pictures/mesu-0/          pictures that those rows refer to, where an experiment has some
      table.parquet             all parts, in order
      *.parquet.sha256          what `sha256sum --check` reads, beside each
      times.json                seconds that each part took
      figures, report.html      drawn from the table and the pictures

Files are written under another name and then moved into place, so a run that is killed leaves a folder that `resume` can
finish, to the same table bit for bit.
"""

import json
import os
import time
from pathlib import Path

import numpy as np

from mesu.lab.runs import checkpoints
from mesu.lab.runs.pictures import read_picture


class RunFolder:
    """Where the files of a run are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def part(self, label: str, seed: int) -> Path:
        """Where the rows of one entry and seed go."""
        return self.folder / "parts" / f"{label}-{seed}.parquet"

    def checkpoint_folder(self, label: str, seed: int) -> Path:
        """Where its checkpoints go."""
        return self.folder / "checkpoints" / f"{label}-{seed}"

    def picture_folder(self, label: str, seed: int) -> Path:
        """Where its pictures go."""
        return self.folder / "pictures" / f"{label}-{seed}"

    def stages_of(self, label: str, seed: int, stages: int) -> int:
        """How many of its stages are done, read off the names of its files."""
        if self.part(label, seed).exists():
            return stages
        names = self.checkpoint_folder(label, seed).glob("after-*.json")
        return max([checkpoints.stages_in_name(path) for path in names], default=0)

    def seconds(self, label: str, seed: int) -> float:
        """How long it took; NaN if that is not known."""
        try:
            return float(self.part(label, seed).with_suffix(".seconds").read_text())
        except (OSError, ValueError):
            return float("nan")

    def times(self) -> dict[str, float]:
        """Seconds that each entry and seed took; empty if that is not known."""
        try:
            times = json.loads((self.folder / "times.json").read_text())
            return {str(job): float(seconds) for job, seconds in times.items()}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return {}

    def pictures(self) -> dict[str, dict[str, np.ndarray]]:
        """The pictures of each entry and seed by name, without those that are lost or damaged."""
        found: dict[str, dict[str, np.ndarray]] = {}
        for path in sorted(self.folder.glob("pictures/*/*.png")):
            picture = read_picture(path)
            if picture is not None:
                found.setdefault(path.parent.name, {})[path.stem] = picture
        return found


def new_folder(parent: Path, name: str) -> Path:
    """Make a folder named after an experiment and the time; numbered where there is one of this second."""
    make_folder(parent)
    name = f"{name}-{time.strftime('%Y-%m-%d-%H%M%S')}"
    folder, attempt = parent / name, 1
    while not _made(folder):
        folder, attempt = parent / f"{name}-{attempt}", attempt + 1
    return folder


def refuse_ways_out(folder: Path) -> None:
    """Refuse a folder in which something leads out of it, or is neither a file nor a folder: it may be somebody else's.

    Raises:
        ValueError: naming the first such thing.
    """
    inside = folder.resolve()
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent) / name for name in (*folders, *files)):
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                raise ValueError(f"{path} is a link that leads out of the run: put what it leads to in its place")
            if path.exists() and not path.is_dir() and not path.is_file():
                raise ValueError(f"{path} is a device, a pipe, or the like: remove it")


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


def _made(folder: Path) -> bool:
    """Make a folder; False if it is there, perhaps because another process has just made it."""
    try:
        folder.mkdir()
        return True
    except FileExistsError:
        return False
