"""What came out, as Markdown: every learner at its default, and at the best of its settings."""

from itertools import groupby
from typing import Any

import numpy as np
from benchmarks.learning.learners import SETTINGS
from benchmarks.learning.work import WORK

FIELDS: tuple[str, ...] = (
    "work",
    "learner",
    "setting",
    "seed",
    "first_epoch",
    "accuracy",
    "log_loss",
    "calibration_error",
    "auroc",
    "auroc_epistemic",
    "cpu_seconds",
)
MEASURED = FIELDS[4:]


def means(rows: list[dict[str, Any]]) -> dict[tuple[str, str, float], dict[str, float]]:
    """The mean over the seeds, by (work, learner, setting)."""

    def key(row: dict[str, Any]) -> tuple[str, str, float]:
        return row["work"], row["learner"], float(row["setting"])

    found = {}
    for name, seeds in groupby(sorted(rows, key=key), key):
        alike = list(seeds)
        found[name] = {field: float(np.mean([float(row[field]) for row in alike])) for field in MEASURED}
        found[name]["seeds"] = len(alike)
    return found


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table of docs/learning.md."""
    lines = [
        "| work | learner | epoch 1 | end | log loss | ECE | AUROC total / epistemic | CPU, Adam = 1 | seeds "
        "| end, best of its settings |",
        "|---" * 10 + "|",
    ]
    found = means(rows)
    for work in WORK:
        adam = found.get((work.name, "adam", SETTINGS["adam"][0]))
        for learner, settings in SETTINGS.items():
            one = found.get((work.name, learner, float(settings[0])))
            if one is None:
                continue
            tried = {s: found[key] for s in settings if (key := (work.name, learner, float(s))) in found}
            best = max(tried, key=lambda s: tried[s]["accuracy"])
            most = f"{100 * tried[best]['accuracy']:.1f} ({best:g})" if len(tried) == len(settings) > 1 else "-"
            ratio = f"{one['cpu_seconds'] / adam['cpu_seconds']:.1f}" if adam else "-"
            told = "-" if work.foreign is None else f"{one['auroc']:.3f} / {one['auroc_epistemic']:.3f}"
            if learner == "adam" and work.foreign is not None:
                told = f"{one['auroc']:.3f} / -"
            lines.append(
                f"| {work.name} | {learner} | {100 * one['first_epoch']:.1f} | {100 * one['accuracy']:.1f} | "
                f"{one['log_loss']:.3f} | {one['calibration_error']:.3f} | {told} | {ratio} | {one['seeds']:.0f} | {most} |"
            )
    return "\n".join(lines)
