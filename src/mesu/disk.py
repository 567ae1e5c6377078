"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to that takes the place of `path` in one move when all went well.

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
