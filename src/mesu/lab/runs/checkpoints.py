"""Checkpoints of a trial: its tensors (safetensors) and its rows so far (JSON), written after every stage.

    checkpoints/mesu-0/
      after-0011.safetensors   after-0011.json     the one before, in case the newest is damaged
      after-0012.safetensors   after-0012.json     the newest: twelve stages are done

The JSON is written last and holds the SHA-256 of the tensors and of itself, so a pair is either whole or not a checkpoint.
Loading one never runs code.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from polars.exceptions import PolarsError
from safetensors.torch import load, save
from torch import Tensor

from mesu import disk
from mesu.disk import UNREADABLE, check_file, digest_of, reason_of, replacing
from mesu.lab.table import Row, read_rows

KEPT = 2  # checkpoints of a trial on disk
ASIDE = re.compile(r"\..+\.\d+")  # what earlier versions wrote to: .name.process


class Checkpoint(NamedTuple):
    """A trial after some stages."""

    stages: int
    rows: list[Row]
    tensors: dict[str, Tensor]
    seconds: float = 0.0  # spent so far


class Damaged(ValueError):
    """A checkpoint that cannot be read."""


def write(folder: Path, checkpoint: Checkpoint) -> None:
    """Put a checkpoint on disk and drop those it makes superfluous."""
    folder.mkdir(parents=True, exist_ok=True)
    data = save({name: tensor.contiguous() for name, tensor in checkpoint.tensors.items()})
    description = {
        "stages": checkpoint.stages,
        "seconds": round(checkpoint.seconds, 3),
        "sha256": digest_of(data),
        "columns": Row._fields,
        "rows": checkpoint.rows,
    }
    description["check"] = digest_of(json.dumps(description))
    base = folder / f"after-{checkpoint.stages:04d}"
    with replacing(base.with_suffix(".safetensors")) as path:
        path.write_bytes(data)
    with replacing(base.with_suffix(".json")) as path:
        path.write_text(json.dumps(description))
    prune(folder, checkpoint.stages)


def prune(folder: Path, newest: int) -> None:
    """Keep the newest whole checkpoint and the one before it: later ones are damaged, earlier ones superfluous."""
    kept = [stages for stages in map(stages_in_name, _files(folder)) if stages <= newest][:KEPT]
    for file in sorted(folder.glob("after-*")):  # of each pair, the JSON first
        if stages_in_name(file) not in kept:
            file.unlink(missing_ok=True)


def newest(
    folder: Path, complain: Callable[[str], None], own: Callable[[list[Row]], bool] = lambda _: True
) -> Checkpoint | None:
    """The newest whole checkpoint in a folder with rows of one's `own`; others are named to `complain` and passed over.

    Tensors without their JSON are passed over in silence: they are what is left when a process is killed between the two.
    """
    for path in _files(folder):
        if not os.path.lexists(path):
            continue
        try:
            found = read(path)
            if not own(found.rows):
                raise Damaged(f"the checkpoint {path} is of another learner or seed")
            return found
        except Damaged as error:
            complain(str(error))
    return None


def read(path: Path) -> Checkpoint:
    """The checkpoint that a JSON file describes.

    Raises:
        Damaged: naming the file and what is wrong with it.
    """
    try:
        check_file(path)
        description = json.loads(path.read_text())
        check = description.pop("check", None)  # the first ones written had none
        if check is not None and check != digest_of(json.dumps(description)):
            raise ValueError("its text is not what was written")
        rows = read_rows(description["columns"], description["rows"])
        stages, seconds, expected = int(description["stages"]), float(description["seconds"]), description["sha256"]
        if stages != stages_in_name(path):
            raise ValueError(f"it says that {stages} stages are done")
    except (*UNREADABLE, PolarsError) as error:
        raise Damaged(f"the checkpoint {path} cannot be read ({reason_of(error)})") from error
    beside = path.with_suffix(".safetensors")
    try:
        check_file(beside)
        data = beside.read_bytes()
        if digest_of(data) != expected:
            raise ValueError("its bytes are not those that were written")
        return Checkpoint(stages, rows, load(data), seconds)
    except UNREADABLE as error:
        raise Damaged(f"the checkpoint {beside} cannot be read ({reason_of(error)})") from error


def _files(folder: Path) -> list[Path]:
    """The JSON files of all pairs, the newest first, also those of which only the tensors are there."""
    return sorted({path.with_suffix(".json") for path in folder.glob("after-*")}, key=stages_in_name, reverse=True)


def stages_in_name(path: Path) -> int:
    """How many stages a checkpoint's file name says are done."""
    number = path.stem.removeprefix("after-")
    return int(number) if number.isdecimal() else -1


def remove_leftovers(folder: Path) -> None:
    """Remove what processes left that were killed while they wrote."""
    disk.remove_leftovers(folder)
    for path in folder.glob(".*"):
        if ASIDE.fullmatch(path.name):
            path.unlink(missing_ok=True)
