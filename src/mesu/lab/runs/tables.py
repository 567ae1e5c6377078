"""Tables on disk: Parquet, and beside it a SHA-256 that `sha256sum --check` reads."""

import hashlib
import io
from pathlib import Path

import polars as pl

from mesu.disk import replacing
from mesu.lab.table import with_index


def write_table(path: Path, table: pl.DataFrame) -> None:
    """Write a table and, before it, its SHA-256: damage to a number in it would not show otherwise."""
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    with replacing(hash_file(path)) as aside:
        aside.write_text(f"{hashlib.sha256(buffer.getvalue()).hexdigest()}  {path.name}\n")
    with replacing(path) as aside:
        aside.write_bytes(buffer.getvalue())


def read_table(path: Path) -> pl.DataFrame:
    """A table that is as it was written, with the columns of today.

    Raises:
        ValueError: if it is damaged.
    """
    data, beside = path.read_bytes(), hash_file(path)
    if beside.is_file() and beside.read_bytes()[:64] != hashlib.sha256(data).hexdigest().encode():
        raise ValueError(f"{path} is damaged: it is not what was written")
    try:
        return with_index(pl.read_parquet(io.BytesIO(data)))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def hash_file(path: Path) -> Path:
    """Where a table's SHA-256 is."""
    return path.with_name(f"{path.name}.sha256")
