"""The measured alarms as tables: false alarms, what was found, and how soon."""

import csv
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.signals.work import DETECTORS, SOON

Line = dict[str, Any]
KINDS = (
    ("inputs", False),
    ("labels", False),
    ("function", False),
    ("inputs", True),
    ("labels", True),
    ("function", True),
)


def read(file: Path) -> list[Line]:
    """The lines of the file of results; none if there is no file."""
    if not file.exists():
        return []
    with file.open(newline="") as rows:
        return [
            {
                **line,
                "slow": line["slow"] == "True",
                **{name: int(line[name]) for name in ("seed", "rows", "begins", "ends")},
                "alarms": [int(at) for at in line["alarms"].split()],
            }
            for line in csv.DictReader(rows)
        ]


def false_alarms(lines: list[Line]) -> float:
    """In 10,000 rows of calm streams. Others begin with the same rows, and would count them again."""
    calm = [line for line in lines if line["kind"] == "calm"]
    return 10_000 * sum(len(line["alarms"]) for line in calm) / sum(line["rows"] for line in calm)


def delay(line: Line) -> float:
    """Rows from the beginning of the change to the first alarm; infinite if it came later than counts as found."""
    after = [at for at in line["alarms"] if line["begins"] <= at < line["ends"] + SOON]
    return after[0] - line["begins"] if after else inf


def of(lines: list[Line], kind: str, slow: bool) -> list[Line]:
    """The lines of one kind of change."""
    return [line for line in lines if (line["kind"], line["slow"]) == (kind, slow)]


def found(lines: list[Line]) -> str:
    """How many changes were found, of how many."""
    return f"{sum(delay(line) < inf for line in lines)} of {len(lines)}"


def markdown(lines: list[Line]) -> str:
    """A line a detector, and a line a source."""
    out = [
        "| | false alarms in 10,000 rows | inputs | labels | function | all at once | median delay | gradual |",
        "|---" * 8 + "|",
    ]
    for name in DETECTORS:
        own = [line for line in lines if line["detector"] == name]
        abrupt = [line for line in own if line["kind"] != "calm" and not line["slow"]]
        delays = [delay(line) for line in abrupt if delay(line) < inf]
        cells = [found(of(own, kind, False)) for kind in ("inputs", "labels", "function")]
        share = f"{100 * len(delays) / len(abrupt):.0f} %"
        slow = [line for line in own if line["slow"]]
        slowly = f"{100 * sum(delay(line) < inf for line in slow) / len(slow):.0f} %"
        middle = f"{median(delays):.0f}" if delays else ""
        out.append(f"| {name} | {false_alarms(own):.2f} | {' | '.join(cells)} | {share} | {middle} | {slowly} |")
    out += [
        "",
        "| | " + " | ".join(f"{'gradual ' if slow else ''}{kind}" for kind, slow in KINDS) + " | false |",
        "|---" * 8 + "|",
    ]
    first = next(iter(DETECTORS))
    for source in dict.fromkeys(line["source"] for line in lines):
        own = [line for line in lines if (line["source"], line["detector"]) == (source, first)]
        cells = [", ".join(_rows(delay(line)) for line in of(own, kind, slow)) for kind, slow in KINDS]
        calm = [line for line in own if line["kind"] == "calm"]
        wrong, rows = sum(len(line["alarms"]) for line in calm), sum(line["rows"] for line in calm)
        out.append(f"| {source} | {' | '.join(cells)} | {wrong} in {rows:,} |")
    return "\n".join(out)


def _rows(delay: float) -> str:
    return "-" if delay == inf else f"{delay:.0f}"
