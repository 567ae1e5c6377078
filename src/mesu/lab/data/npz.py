"""A data set's file of arrays: every array is checked when read, and an interrupted write leaves no half file."""

import os
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from mesu.lab.data.published import Arrays, DamagedData, Published

HEADER_BYTES = 4096  # more than the header that numpy writes before an array
STALE_SECONDS = 3600  # no write takes so long: an older temporary file is left from a process that was killed


def read(path: Path, published: Published) -> Arrays:
    """The arrays of a set, checked.

    Raises:
        DamagedData: if the file cannot be read or holds anything else.
    """
    complaints, arrays = inspect(path, published)
    if complaints:
        raise DamagedData(f"{path} does not hold {published.title}: {'; '.join(complaints)}")
    return arrays


def inspect(path: Path, published: Published) -> tuple[list[str], Arrays]:
    """What is wrong with a file, and the arrays that could be read."""
    arrays: dict[str, np.ndarray] = {}
    try:
        with zipfile.ZipFile(path) as file:
            members = {member.filename: member for member in file.infolist()}
            for name, array in published.contents.items():
                member = members.get(f"{name}.npy")
                if member is None:
                    continue  # the set's own check says that it is missing
                if member.file_size > array.nbytes + HEADER_BYTES:
                    return [f"array {name} is bigger than the {array.nbytes} bytes it should have"], arrays
                arrays[name] = _array(file, member.filename)
    except Exception as error:  # a damaged file can make zipfile, zlib or numpy raise almost any exception
        return [f"it is damaged or not a file of arrays ({_one_line(error)})"], arrays
    return published.complaints(arrays), arrays


def read_named(path: Path, names: Iterable[str]) -> Arrays:
    """Those of the named arrays that a file has. For files of a user's own, whose hashes nobody knows.

    Raises:
        DamagedData: if the file cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as file:
            there = set(file.namelist())
            return {name: _array(file, f"{name}.npy") for name in names if f"{name}.npy" in there}
    except Exception as error:  # as above
        raise DamagedData(f"{path} is damaged or not a file of arrays ({_one_line(error)})") from None


def write(path: Path, arrays: Arrays) -> None:
    """Write to a temporary file and rename it, so that a file of this name is always complete."""
    for left in path.parent.glob(f".{path.name}.*.part"):
        if time.time() - left.stat().st_mtime > STALE_SECONDS:
            left.unlink(missing_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    members: dict[str, Any] = dict(arrays)
    try:
        with aside.open("wb") as file:
            np.savez(file, **members)  # not compressed: reading it again is then quick
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _array(file: zipfile.ZipFile, member: str) -> np.ndarray:
    with file.open(member) as stream:  # zipfile compares the checksum at the end
        return np.lib.format.read_array(stream, allow_pickle=False)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
