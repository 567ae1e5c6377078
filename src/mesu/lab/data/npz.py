"""A data set's file of arrays: every array is checked when read, and an interrupted write leaves no half file."""

import math
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from mesu.disk import LARGE, MOST_PACKED, check_file, replacing
from mesu.lab.data.published import Arrays, DamagedData, Published

MOST_BYTES = 2**32  # of a user's own arrays together: a million photographs, four times over
HEADER_BYTES = 4096  # more than the header that numpy writes before an array


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
        check_file(path)
        with zipfile.ZipFile(path) as file:
            there = {member.filename: member for member in file.infolist()}
            wanted = [name for name in names if f"{name}.npy" in there]
            _refuse_bombs([there[f"{name}.npy"] for name in wanted])
            return {name: _array(file, f"{name}.npy") for name in wanted}
    except Exception as error:  # as above
        raise DamagedData(f"{path} is damaged or not a file of arrays ({_one_line(error)})") from None


def write(path: Path, arrays: Arrays) -> None:
    """Write a file of arrays, so that a file of this name is always complete."""
    members: dict[str, Any] = dict(arrays)
    with replacing(path) as aside, aside.open("wb") as file:
        np.savez(file, **members)  # not compressed: reading it again is then quick


def _refuse_bombs(members: list[zipfile.ZipInfo]) -> None:
    """Refuse arrays that are too large, or much larger than what the file holds of them."""
    claimed = sum(member.file_size for member in members)
    if claimed > MOST_BYTES:
        raise ValueError(f"its arrays have {claimed} bytes, more than the {MOST_BYTES} they may have")
    packed = [member for member in members if member.file_size > LARGE + MOST_PACKED * member.compress_size]
    if packed:
        raise ValueError(f"{packed[0].filename} claims {packed[0].file_size} bytes and holds hardly any")


def _array(file: zipfile.ZipFile, member: str) -> np.ndarray:
    with file.open(member) as stream:  # zipfile compares the checksum at the end
        # the shape first: NumPy would take as much memory as the header asks for
        version = np.lib.format.read_magic(stream)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(stream)
        held = file.getinfo(member).file_size
        if math.prod(shape) * dtype.itemsize > held:
            raise ValueError(f"{member} has {held} bytes, too few for its shape {shape}")
    with file.open(member) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
