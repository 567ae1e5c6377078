"""Measure detectors on streams that stay and streams that change: `python -m benchmarks.signals`.

Writes a line a run and detector to docs/signals.csv and goes on where it was stopped; then the tables and docs/signals.png.
"""

import argparse
import csv
import warnings
from pathlib import Path

from benchmarks.signals import figure, table
from benchmarks.signals.streams import REPORTED, SOURCES
from benchmarks.signals.work import DETECTORS, alarms, cached, runs

import mesu

COLUMNS = ("source", "kind", "slow", "seed", "rows", "begins", "ends", "detector", "alarms")


def main() -> None:
    """Measure what is missing, print the tables and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", nargs="+", choices=SOURCES, default=list(REPORTED))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("docs/signals.csv"))
    parser.add_argument("--cache", type=Path, help="keep what the models say of every row, to try other detectors on")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", mesu.LearningWarning)
    lines = table.read(asked.out)
    done = {(line["source"], line["kind"], line["slow"], line["seed"], line["detector"]) for line in lines}
    for seed in range(asked.seeds):
        for source in asked.sources:
            for kind, slow in runs(source):
                missing = [name for name in DETECTORS if (source, kind, slow, seed, name) not in done]
                if not missing:
                    continue
                said, change = cached(asked.cache, source, kind, slow, seed)
                begins, ends = change or (len(said), len(said))
                new = [
                    (source, kind, slow, seed, len(said), begins, ends, name, " ".join(map(str, alarms(name, said))))
                    for name in missing
                ]
                _append(asked.out, new)
                print(source, kind, "slow" if slow else "", seed, new[0][-1], flush=True)
    lines = [line for line in table.read(asked.out) if line["source"] in asked.sources]
    print(table.markdown(lines))
    figure.draw(lines, asked.out.with_suffix(".png"))


def _append(file: Path, rows: list[tuple]) -> None:
    begins = not file.exists()
    with file.open("a", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        if begins:
            writer.writerow(COLUMNS)
        writer.writerows(rows)


if __name__ == "__main__":
    main()
