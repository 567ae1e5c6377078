"""Tables on disk: Parquet, and beside it a SHA-256 that `sha256sum --check` reads."""

import hashlib
import io
from pathlib import Path

import polars as pl

from mesu.disk import check_file, replacing
from mesu.lab.table import with_index


def write_table(path: Path, table: pl.DataFrame) -> None:
    """Write a table and, before it, its SHA-256: otherwise nobody would notice a damaged number."""
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
    try:
        check_file(path)
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    data, beside = path.read_bytes(), hash_file(path)
    if beside.is_file() and beside.read_bytes()[:64] != hashlib.sha256(data).hexdigest().encode():
        raise ValueError(f"{path} is damaged: it is not what was written")
    try:
        table = with_index(pl.read_parquet(io.BytesIO(data)))
        for name in ("experiment", "learner", "measure"):
            _check_words(table, name)
        return table
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def _check_words(table: pl.DataFrame, name: str) -> None:
    """Refuse names with control characters, which a terminal would obey."""
    if name in table.columns and table[name].dtype == pl.String:
        for word in table[name].drop_nulls().unique():
            if not word.isprintable():
                raise ValueError(f"{word!r} is not the name of a {name}")


def hash_file(path: Path) -> Path:
    """Where a table's SHA-256 is."""
    return path.with_name(f"{path.name}.sha256")
