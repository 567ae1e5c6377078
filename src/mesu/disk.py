"""Files that are complete or absent, and the checks that find damaged ones: shared by saved models and checkpoints."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

# What reading a damaged file, or one that somebody made up, raises.
UNREADABLE = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError),
    SafetensorError,
)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`: what is written to it replaces `path` in one step when all went well.

    Raises:
        FileNotFoundError: if its folder does not exist.
        IsADirectoryError: if it is a folder itself.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist")
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder")
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield aside
        aside.replace(path)
    except OSError as error:
        if error.filename == str(aside):
            error.filename = str(path)  # the one that was asked for
        raise
    finally:
        aside.unlink(missing_ok=True)


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
