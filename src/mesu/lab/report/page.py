"""The page of a run, report.html: one file with the results, the figures, the paper's numbers, the time and the settings."""

import shlex
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any

import jinja2
import polars as pl

from mesu.disk import replacing
from mesu.lab.drawing.numbers import (
    NOTHING,
    best,
    counted,
    difference,
    duration,
    heading,
    known,
    mean_and_spread,
    names,
    number,
    spread,
)
from mesu.lab.drawing.panels import Panel, overview, picture, save
from mesu.lab.drawing.style import colour, label, short_number
from mesu.lab.experiments import about, experiments
from mesu.lab.paper import NOTES
from mesu.lab.report.figures import panels
from mesu.lab.report.joining import joined
from mesu.lab.runs.folder import make_folder
from mesu.lab.runs.run import Run
from mesu.lab.table import Summary, summarise

LENGTHS = ("tasks", "epochs")  # settings that determine the length of an experiment


def write(run: Run, summary: Summary | None = None) -> Path:
    """Draw a finished run's figures and write its report.html. Nothing is trained.

    Args:
        run: The run.
        summary: What `summarise` gives for its table, if the caller has it already.

    Returns:
        The page.

    Raises:
        ValueError: if the folder is not a run, or the run is not finished.
    """
    return _write([run], _table([run]), run.folder, summary)


def write_joined(runs: Sequence[Run], folder: Path) -> Path:
    """Join the tables of several runs of one experiment and write one report of them into a separate folder.

    Returns:
        The page.

    Raises:
        ValueError: if the runs cannot be joined, or if the folder is a run.
    """
    if (folder / "settings.json").exists():
        raise ValueError(f"{folder} is a run with a report of its own: choose another folder")
    table = _table(runs)
    make_folder(folder)
    with replacing(folder / "table.parquet", flush=False) as path:
        table.write_parquet(path)
    return _write(runs, table, folder)


def paper_note(experiment: str, settings: Mapping[str, Any], seeds: int) -> str:
    """How the paper's numbers differ from this run in length, seeds or data; empty if they do not."""
    full, more = _paper_settings(experiment), NOTES.get(experiment, "")
    lengths = [name for name in LENGTHS if name in full and settings.get(name, full[name]) != full[name]]
    if not lengths and seeds == full.get("seeds", seeds):
        return more

    def said(values: Mapping[str, Any], seeds: int) -> str:
        counted = [f"{values[name]:,} {name if values[name] != 1 else name[:-1]}" for name in lengths]
        return " and ".join([*counted, f"{seeds:,} seed{'s' * (seeds != 1)}"])

    note = f"The paper's numbers are of {said(full, full['seeds'])}; these are of {said(settings, seeds)}."
    return f"{note} {more}".strip()


def _table(runs: Sequence[Run]) -> pl.DataFrame:
    for run in runs:
        if not (run.folder / "settings.json").is_file():
            raise ValueError(f"{run.folder} is not a run: it has no settings.json")
    return joined(runs)


def _write(runs: Sequence[Run], table: pl.DataFrame, folder: Path, summary: Summary | None = None) -> Path:
    experiment, summary = str(table["experiment"][0]), summarise(table) if summary is None else summary
    pictures = {job: each for run in runs for job, each in run.pictures().items()}
    drawings = _draw(panels(table, pictures, summary), folder / "figures")
    seeds = {label(learner): sorted(table.filter(learner=learner)["seed"].unique()) for learner in summary}
    most = max(len(each) for each in seeds.values())
    saved = [run.saved for run in runs]
    measures = names(summary)
    page = _template().render(
        title=runs[0].folder.resolve().name if len(runs) == 1 else f"{len(runs)} runs of {experiment}",
        experiment=experiment,
        about=about(experiment) if experiment in experiments else "",
        facts=_facts(runs, table, seeds),
        headings=[heading(name) for name in measures],
        results=[_result_row(summary, learner, measures) for learner in summary],
        meanings=[(known(name).title, known(name).meaning) for name in measures if known(name).meaning],
        several=most > 1,
        papers=_paper_groups(summary),
        note=paper_note(experiment, saved[0]["settings"], most),
        drawings=drawings,
        times=_times(runs, summary),
        columns=[run.folder.resolve().name for run in runs] if len(runs) > 1 else ["this run"],
        settings=_setting_rows(experiment, [each["settings"] for each in saved]),
        versions=_side_by_side([each.get("versions", {}) for each in saved]),
        commands=[_commands(run) for run in runs],
    )
    with replacing(folder / "report.html", flush=False) as path:
        path.write_text(page, encoding="utf-8")
    return folder / "report.html"


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(files("mesu.lab.report").joinpath("page.html").read_text(encoding="utf-8"))


def _draw(shown: list[Panel], folder: Path) -> list[dict[str, Any]]:
    """Each panel as an <img> with its SVG inside the page. Inline SVGs would share element ids."""
    if not shown:
        return []
    make_folder(folder)
    drawings = []
    for panel in shown:
        figure = picture(panel)
        svg = save(figure, folder / panel.name)
        width, height = (round(96 * inches) for inches in figure.get_size_inches())
        drawings.append(
            {
                "source": f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}",
                "width": width,
                "height": height,
                "title": panel.title,
                "caption": panel.caption,
                "alone": panel.alone,
                "alt": f"{panel.title}: {panel.numbers or 'nothing was measured'}.",
            }
        )
    save(overview(shown), folder / "overview")
    return drawings


def _facts(runs: Sequence[Run], table: pl.DataFrame, seeds: dict[str, list[int]]) -> list[tuple[str, str]]:
    """The boxes at the top of the page: experiment, length, learners, seeds, time."""
    settings = runs[0].saved["settings"]
    facts = [("experiment", str(table["experiment"][0]))]
    facts += [(name, f"{settings[name]:,}") for name in LENGTHS if settings.get(name, 1) != 1]
    facts.append(("learners", str(len(seeds))))
    groups: dict[str, list[str]] = {}
    for name, each in seeds.items():
        groups.setdefault(f"{len(each)} ({counted(each)})", []).append(name)
    told = [f"{', '.join(who)}: {numbers}" for numbers, who in groups.items()]
    facts.append(("seeds", next(iter(groups)) if len(groups) == 1 else "; ".join(told)))
    seconds = [value for run in runs for value in run.times().values() if isfinite(value)]
    facts.append(("time, all learners and seeds", duration(sum(seconds)) if seconds else "not recorded"))
    return facts


def _result_row(summary: dict, learner: str, measures: list[str]) -> dict[str, Any]:
    """A learner's row in the table of results; the best cell of each column is marked."""
    cells = []
    for name in measures:
        score = summary[learner].get(name)
        top = best(summary, name)
        text = mean_and_spread(name, score) if score else ""
        cells.append({"text": text, "best": bool(score) and top is not None and score["mean"] == top})
    return {"learner": label(learner), "colour": colour(learner), "cells": cells}


def _paper_groups(summary: dict) -> list[dict[str, Any]]:
    """Measure by measure: each of our numbers that the paper gives too, and the difference."""
    groups = []
    for name in names(summary):
        rows, more = [], int(known(name).percent)  # one digit more: the paper gives hundredths of a per cent
        for learner, scores in summary.items():
            if name not in scores or scores[name]["paper"] is None:
                continue
            ours, paper = scores[name]["mean"], scores[name]["paper"]
            rows.append(
                {
                    "learner": label(learner),
                    "colour": colour(learner),
                    "ours": number(name, ours, more=more),
                    "spread": spread(name, scores[name], more=more) or NOTHING,
                    "paper": number(name, paper, more=more),
                    "difference": difference(name, ours, paper, more),
                }
            )
        if rows:
            groups.append({"measure": heading(name), "rows": rows})
    return groups


def _times(runs: Sequence[Run], summary: dict) -> dict[str, Any]:
    """Seconds of each learner and seed, and their sums."""
    taken = {tuple(key.rsplit("-", 1)): value for run in runs for key, value in run.times().items()}
    seeds = sorted({seed for _, seed in taken}, key=lambda seed: (len(seed), seed))
    rows = []
    for learner in summary:
        each = [taken.get((learner, seed)) for seed in seeds]
        cells = [NOTHING if value is None or not isfinite(value) else f"{value:,.1f}" for value in each]
        known_ones = [value for value in each if value is not None and isfinite(value)]
        total = duration(sum(known_ones)) if known_ones else NOTHING
        rows.append({"learner": label(learner), "colour": colour(learner), "cells": cells, "total": total})
    recorded = [value for value in taken.values() if isfinite(value)]
    return {
        "seeds": seeds,
        "rows": rows if recorded else [],
        "total": duration(sum(recorded)),
        "missing": len(taken) - len(recorded),
    }


def _paper_settings(experiment: str) -> dict[str, Any]:
    """The settings of the experiment at the paper's scale; empty for an unknown experiment."""
    kind: Any = experiments.get(experiment)
    return asdict(kind(**kind.scales.get("paper", {}))) if kind else {}


def _setting_rows(experiment: str, settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per setting, with the value at `--scale paper` where it is different."""
    full = _paper_settings(experiment)
    rows = _side_by_side(settings)
    for row in rows:
        known_there = row["name"] in full
        theirs = _shown(full.get(row["name"]))
        row["full"] = theirs if known_there and any(cell != theirs for cell in row["cells"]) else ""
    return rows


def _side_by_side(each: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per name, one cell per run."""
    every = dict.fromkeys(name for values in each for name in values)
    return [{"name": name, "cells": [_shown(values.get(name, NOTHING)) for values in each]} for name in every]


def _shown(value: Any) -> str:
    """A setting's value as the page shows it."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return short_number(value)
    return "none" if value is None else str(value)


def command(run: Run) -> str:
    """The command that repeats a run, with every setting that differs from the paper's scale as an option."""
    saved = run.saved
    full = _paper_settings(saved["experiment"])
    words = ["mesu", "run", saved["experiment"], "--scale", "paper"]
    for name, value in saved["settings"].items():
        if name in full and _plain(value) != _plain(full[name]):
            words += _option(name, value)
    return shlex.join(words) if full else ""


def _commands(run: Run) -> dict[str, str]:
    """The commands that repeat a run: with the settings file in its folder, and without it."""
    again = ["mesu", "run", run.saved["experiment"], "--settings-file", str(run.folder.resolve() / "settings.json")]
    return {"run": run.folder.resolve().name, "again": shlex.join(again), "spelled": command(run)}


def _option(name: str, value: Any) -> list[str]:
    """A setting as words of the command line."""
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    return [f"--{option}", _plain(value)]


def _plain(value: Any) -> str:
    """A setting's value as the command line reads it."""
    if isinstance(value, list | tuple):
        return ",".join(map(_plain, value))
    return f"{value:.15g}" if isinstance(value, float) else str(value)
