"""Files that are complete or absent, and the checks that find damaged ones: shared by saved models and checkpoints."""

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

try:
    import fcntl
except ImportError:  # Windows: what a killed process has left stays there
    fcntl = None  # type: ignore[assignment]

NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)  # Windows has none
LARGE = 2**20  # bytes; smaller files do no harm, whatever they claim
MOST_PACKED = 64  # times: file systems that compress store real arrays in no less than a few tenths of their size
LONGEST = 50  # characters of a file's name in that of its temporary file: most file systems allow 255 bytes
ASIDE = re.compile(r"\.(.+)\.[0-9a-f]{16}\.aside")  # the names of temporary files
# What reading a damaged file, or one that somebody made up, raises.
UNREADABLE = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError),
    SafetensorError,
)


@contextmanager
def replacing(path: Path, flush: bool = True) -> Iterator[Path]:
    """A temporary path beside `path`: what is written to it replaces `path` in one step when all went well.

    The temporary file is new, and its name is random. A file that is replaced keeps its mode. A path that is a symbolic link
    stays one: the file that it leads to is replaced. What killed processes have left of the same file is removed.

    Args:
        path: The file to write.
        flush: Wait until the file and its name are on the disk, so that a power cut cannot undo them.

    Raises:
        FileNotFoundError: if its folder does not exist.
        FileExistsError: if it is a device, a pipe, or the like.
        IsADirectoryError: if it is a folder.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {target.parent} does not exist")
    if target.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder")
    if target.exists() and not target.is_file():
        raise FileExistsError(f"cannot write {path}: it is a device, a pipe, or the like")
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    remove_leftovers(target.parent, target.name)
    with _named(path) as names, _new_file_beside(target, mode) as aside:
        names.append(aside)
        yield aside
        if flush:
            _flush(aside)
        if mode is not None:
            aside.chmod(mode)
        aside.replace(target)
        if flush:
            _flush(target.parent)


def check_file(path: Path) -> None:
    """Refuse to read what is not a file, and a file that is nearly all holes: it would take far more memory than disk.

    Raises:
        FileNotFoundError: if there is nothing.
        ValueError: saying what it is instead.
    """
    about = path.stat()
    must(stat.S_ISREG(about.st_mode), "it is not a file, but a folder, a device, a pipe, or the like")
    stored = getattr(about, "st_blocks", None)  # Windows does not say
    holes = stored is not None and about.st_size > LARGE and 512 * stored * MOST_PACKED < about.st_size
    must(not holes, f"it claims {about.st_size} bytes and holds hardly any")


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes have left of a file, or of all files in a folder; not what a living one is writing."""
    with os.scandir(folder) as files:
        found = [(file.path, match) for file in files if (match := ASIDE.fullmatch(file.name))]
    for path, match in found:
        if name is None or match[1] == name[:LONGEST]:
            with suppress(OSError):
                handle = os.open(path, os.O_RDWR | NOFOLLOW)
                try:
                    if _held(handle, wait=False):
                        Path(path).unlink()
                finally:
                    os.close(handle)


@contextmanager
def _named(path: Path) -> Iterator[list[Path]]:
    """Let an error about one of some temporary files name the file that was asked for."""
    names: list[Path] = []
    try:
        yield names
    except OSError as error:
        if error.filename in map(str, names):
            error.filename = str(path)
        raise


@contextmanager
def _new_file_beside(target: Path, mode: int | None) -> Iterator[Path]:
    """A new empty file, held against `remove_leftovers` and removed at the end, unless it was moved."""
    while True:
        aside = target.with_name(f".{target.name[:LONGEST]}.{secrets.token_hex(8)}.aside")
        # nobody who may not read the old file may read the new one, not even while it is written
        handle = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | NOFOLLOW, 0o666 if mode is None else 0o600)
        if fcntl is None:
            os.close(handle)  # Windows does not move an open file
            handle = -1
            break
        _held(handle, wait=True)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), aside.lstat()):
                break
        os.close(handle)  # it was taken for a leftover before it was held
    try:
        yield aside
    finally:
        try:
            aside.unlink(missing_ok=True)
        finally:
            if handle >= 0:
                os.close(handle)


def _held(handle: int, wait: bool) -> bool:
    """Lock an open file until it is closed; False if another process has, or if there are no locks here."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    folder = path.is_dir()
    try:
        handle = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    except OSError:
        if folder:
            return  # Windows opens no folders
        raise
    try:
        os.fsync(handle)
    except OSError:
        if not folder:  # some file systems flush no folders
            raise
    finally:
        os.close(handle)


def reason_of(error: BaseException) -> str:
    """What an error says, in a few words."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def digest_of(*parts: str | bytes | Mapping[str, np.ndarray]) -> str:
    """SHA-256 of texts, bytes, and named arrays with their types and shapes."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Mapping):
            for name, array in sorted(part.items()):
                digest.update(f"{name} {array.dtype} {array.shape} ".encode())
                digest.update(array.tobytes())
        else:
            digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()


def must(condition: Any, otherwise: str) -> None:
    """Raise `ValueError` with a sentence unless the condition holds."""
    if not condition:
        raise ValueError(otherwise)
