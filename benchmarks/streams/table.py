"""The table of results: a line for each stream, model and seed, so that an interrupted run can continue."""

import csv
from pathlib import Path
from typing import Any, NamedTuple

from mesu.disk import replacing


class Result(NamedTuple):
    """One model on one stream."""

    stream: str
    model: str
    seed: int
    rows: int
    score: float  # accuracy, or mean absolute error
    log_loss: float  # nats a row; NaN for numbers
    kib: float  # after the last row
    blocks: tuple[float, ...]  # right answers, or absolute errors, between the edges of the stream


class Cost(NamedTuple):
    """CPU time of one model on the first rows of one stream."""

    stream: str
    model: str
    rows: int
    us_per_row: float


def read_results(path: Path) -> dict[tuple[str, str, int], Result]:
    """All results so far."""
    found = [
        Result(
            line["stream"],
            line["model"],
            int(line["seed"]),
            int(line["rows"]),
            float(line["score"]),
            float(line["log_loss"]),
            float(line["kib"]),
            tuple(map(float, line["blocks"].split())),
        )
        for line in _lines(path)
    ]
    return {(result.stream, result.model, result.seed): result for result in found}


def read_costs(path: Path) -> dict[tuple[str, str], Cost]:
    """All times so far."""
    found = [Cost(line["stream"], line["model"], int(line["rows"]), float(line["us_per_row"])) for line in _lines(path)]
    return {(cost.stream, cost.model): cost for cost in found}


def write(path: Path, lines: dict[Any, Result] | dict[Any, Cost]) -> None:
    """Replace the file in one move."""
    rows = list(lines.values())
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as aside, aside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0]._fields)
        writer.writerows([_text(value) for value in row] for row in rows)


def _lines(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(f"{number:.4g}" for number in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
