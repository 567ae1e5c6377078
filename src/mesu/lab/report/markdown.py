"""A run's results as a Markdown page for the documentation: tables, figure, command, versions, time."""

import shutil
from html import escape
from math import isfinite
from pathlib import Path
from typing import Any

from mesu.disk import replacing
from mesu.lab.drawing.numbers import (
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
from mesu.lab.drawing.panels import overview, save
from mesu.lab.drawing.style import label
from mesu.lab.report.figures import panels
from mesu.lab.report.page import command, paper_note
from mesu.lab.runs.folder import make_folder
from mesu.lab.runs.run import Run
from mesu.lab.table import summarise

KEPT = ("settings.json", "times.json", "table.parquet")  # files of the run that are copied next to the page
SPREAD = "± is the standard deviation over the seeds, of a sample (n - 1).\n"
WIDE = 10  # with more measures than this the table is transposed, to fit the page


def write_markdown(run: Run, folder: Path, note: str = "") -> Path:
    """Write README.md, the figure and the run's table into a folder.

    Args:
        run: A finished run.
        folder: Where the files are written; it is created if necessary.
        note: Paragraphs to put below the tables, such as an explanation of the results.

    Returns:
        The page.
    """
    table, saved = run.table(), run.saved
    summary, experiment = summarise(table), saved["experiment"]
    make_folder(folder)
    drawn = panels(table, summary=summary)
    if drawn:
        save(overview(drawn), folder / "figure")
    for name in KEPT:
        if (run.folder / name).is_file():
            shutil.copyfile(run.folder / name, folder / name)
    seeds = sorted(table["seed"].unique())
    parts = [f"# {_text(experiment)}\n", f"{_code(command(run))}\n"]
    parts.append(f"Seed{'s' * (len(seeds) > 1)} {counted(seeds)}. {_times(run)}{_versions(saved['versions'])}.\n")
    if drawn:
        parts.append(f"![{_text(experiment)}](figure.png)\n")
    parts.append(results_table(summary))
    if len(seeds) > 1:
        parts.append(SPREAD)
    papers = papers_table(summary)
    if papers:
        said = paper_note(experiment, saved["settings"], len(seeds))
        parts.append(f"## Beside the paper\n\n{said}{' ' if said else ''}Differences are ours minus the paper's.\n")
        parts.append(papers)
    if note:
        parts.append(note.strip() + "\n")
    parts.append(
        "All numbers and figures are made from `table.parquet`. To repeat the run: "
        f"{_code(f'mesu run {experiment} --settings-file settings.json')}.\n"
    )
    with replacing(folder / "README.md", flush=False) as path:
        path.write_text("\n".join(parts), encoding="utf-8")
    return folder / "README.md"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(map(_text, cells))} |"


def _text(words: object) -> str:
    """Words as they are on a page: none of them, which may come from somebody else's run, is HTML or cuts a table."""
    line = "".join(letter if letter.isprintable() else " " for letter in str(words))
    return escape(line, quote=False).replace("|", "\\|").replace("[", "\\[").replace("`", "\\`")


def _code(words: str) -> str:
    """A command, set as one."""
    return f"`{words}`" if "`" not in words and words.isprintable() else _text(words)


def results_table(summary: dict[str, Any]) -> str:
    """The table of results: one row per learner, or one row per measure if there are more measures than `WIDE`."""
    measures = [name for name in names(summary) if not name.startswith("uncertainty_")]
    grid = [["learner", *(heading(name) for name in measures)]]
    for learner, scores in summary.items():
        cells = [mean_and_spread(name, scores[name]) if name in scores else "" for name in measures]
        grid.append([label(learner), *cells])
    if len(measures) > WIDE:
        grid[0][0] = "measure"
        grid = [list(column) for column in zip(*grid, strict=True)]
    head, *rows = grid
    return "\n".join(_row(cells) for cells in (head, ["---"] * len(head), *rows)) + "\n"


def papers_table(summary: dict[str, Any]) -> str:
    """The table of our numbers beside the paper's; empty if the paper has none of them."""
    lines = []
    for name in names(summary):
        more = int(known(name).percent)
        for learner, scores in summary.items():
            score = scores.get(name)
            if not score or score["paper"] is None:
                continue
            ours, paper = score["mean"], score["paper"]
            said = number(name, ours, more=more) + (
                f" ± {spread(name, score, more=more)}" if spread(name, score) else ""
            )
            lines.append(
                _row(
                    [
                        heading(name),
                        label(learner),
                        said,
                        number(name, paper, more=more),
                        difference(name, ours, paper, more),
                    ]
                )
            )
    if not lines:
        return ""
    return "\n".join([_row(["measure", "learner", "ours", "paper", "difference"]), _row(["---"] * 5), *lines]) + "\n"


def _times(run: Run) -> str:
    times = [value for value in run.times().values() if isfinite(value)]
    if not times:
        return ""
    return f"All learners and seeds together took {duration(sum(times))} (the longest {duration(max(times))}) of wall time. "


def _versions(versions: dict[str, str]) -> str:
    return "With " + ", ".join(f"{_text(name)} {_text(version)}" for name, version in versions.items())
