"""Run folders with made-up rows, and a reader of the pages drawn from them: for the tests of reports and drawings."""

import json
import math
import os
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
from rich.console import Console

from mesu.lab.experiments import PermutedDigits, PermutedMNIST
from mesu.lab.experiments.permuted import shared as permuted
from mesu.lab.runs.run import Run
from mesu.lab.table import Row, as_table

KEEPS = {"mesu": 0.99, "ewc-online": 0.97, "si": 0.96, "foo-vb": 0.999, "ewc-stream": 0.9, "sgd": 0.8}


def fabricated(experiment, learner, seed, tasks, every=10):
    """Rows of a permuted stream as they might be, of no run: accuracy falls from 0.95 with a task's age."""
    rng = np.random.default_rng([seed, len(learner)])
    for after in range(tasks):
        where = (experiment, learner, seed, 100 * (after + 1), after)
        for on in permuted.tested(after, tasks, every):
            value = 0.1 + 0.85 * KEEPS.get(learner, 0.95) ** (after - on) + rng.normal(0, 0.004)
            yield Row(*where, on, "accuracy", float(value))
        yield Row(*where, None, "calibration_error", 0.02 + 0.01 * rng.random())
        yield Row(*where, None, "ood_auroc", 0.9 + 0.05 * rng.random())


def finished(parent, settings, rows=None, times=None):
    """A run folder with fabricated rows in place of a run's."""
    run = Run.create(settings, parent)
    jobs = [(entry.label, seed) for entry in settings.entries for seed in range(settings.seeds)]
    if rows is None:
        rows = [row for job in jobs for row in fabricated(settings.name, *job, settings.tasks)]
    as_table(rows).write_parquet(run.folder / "table.parquet")
    if times is None:
        times = {f"{name}-{seed}": 30.0 for name, seed in jobs}
    (run.folder / "times.json").write_text(json.dumps(times))
    return run


def edit_settings(run, **changes):
    path = run.folder / "settings.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


SMALL = PermutedDigits(tasks=6, seeds=2, learners=("mesu", "sgd"))

STUDY = PermutedMNIST(tasks=200, seeds=2, learners=("mesu", "sgd"), memory=(180e3, 300e3, 1.2e6, math.inf))

SIX = replace(SMALL, seeds=3, learners=tuple(KEEPS))  # what `make demo` runs


def fabricated_rows(settings):
    return [
        row
        for entry in settings.entries
        for seed in range(settings.seeds)
        for row in fabricated(settings.name, entry.label, seed, settings.tasks)
    ]


def paper_run(parent, **changes):
    """Two seeds whose last five tasks have an accuracy of 0.92 and 0.93, and all other numbers alike."""
    settings = replace(PermutedMNIST(tasks=5, seeds=2, learners=("mesu", "ewc-stream")), **changes)
    rows = []
    for learner in settings.learners:
        for seed in (0, 1):
            for after in range(5):
                where = ("permuted-mnist", learner, seed, 60_000 * (after + 1), after)
                rows += [Row(*where, on, "accuracy", 0.92 + 0.01 * seed) for on in range(after + 1)]
                rows.append(Row(*where, None, "ood_auroc", 0.91 + 0.02 * seed))
    return finished(parent, settings, rows)


def vanishing_table():
    rows = []
    for learner, falls in (("mesu-180000", 0.0), ("mesu-1e+15", 0.1), ("foo-vb", 0.1), ("sgd", None)):
        for seed in (0, 1):
            for stage in range(5):
                where = ("vanishing", learner, seed, 60_000 * 10 * (stage + 1), stage, None)
                rows.append(Row(*where, "accuracy", 0.97))
                rows.append(Row(*where, "ood_auroc", 0.95 - 0.02 * stage * (falls != 0)))
                if falls is not None:
                    rows.append(Row(*where, "layer_std", 0.05 * math.exp(-falls * stage) * (1 + seed)))
    return as_table(rows)


class Page(HTMLParser):
    """What a report says and asks for."""

    def __init__(self, path):
        super().__init__()
        self.elements, self.words, self.tables, self.open = [], [], [], []
        self.feed(Path(path).read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data

    @property
    def text(self):
        return " ".join("".join(self.words).split())

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def printed(table, width=200):
    console = Console(width=width, file=open(os.devnull, "w"), record=True)  # noqa: SIM115, PTH123
    console.print(table, crop=False)
    console.file.close()
    return console.export_text().splitlines()


ODD = "$x^$ <script>alert('1')</script> & \"quoted\" [bold]"


def two_runs(parent, first=None, second=None):
    one = finished(parent / "a", replace(SMALL, learners=("mesu",), **(first or {})))
    two = finished(parent / "b", replace(SMALL, learners=("sgd",), **(second or {})))
    return one, two
