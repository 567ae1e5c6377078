"""A CSV table that a long benchmark adds to row by row, so that it can go on where it was stopped."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Growing:
    """The rows of a table that were found so far; each new one is written at once.

    Args:
        path: The file, read if there is one.
        fields: Its columns.
    """

    def __init__(self, path: Path, fields: Sequence[str]) -> None:
        self.path, self.fields = path, fields
        self.rows: list[dict[str, Any]] = []
        if path.exists():
            with path.open(newline="") as file:
                self.rows = list(csv.DictReader(file))

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row, print it, and write the table anew."""
        self.rows.append(row)
        print(row, flush=True)
        with self.path.open("w", newline="") as file:
            writer = csv.DictWriter(file, self.fields)
            writer.writeheader()
            writer.writerows(self.rows)
