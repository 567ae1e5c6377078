"""The table that a run prints at its end."""

from rich.table import Table
from rich.text import Text

from mesu.report.numbers import best, heading, mean_and_spread, names, number
from mesu.report.style import label

WIDTH = 100  # columns of a terminal that the table keeps within
# of a stream of tasks these are on the page only
ELSEWHERE = ("plasticity", "forgetting", "calibration_error", "rigidity", "mean_std")


def summary_table(summary: dict, title: str, note: str = "") -> Table:
    """One row a learner, mean and standard deviation over the seeds, the best of each column in bold; the paper's below it.

    Args:
        summary: What `summarise` gives.
        title: Stands above.
        note: Stands below, where the paper's numbers need one.
    """
    rows: list[tuple[str, dict, bool]] = []
    for learner, scores in summary.items():
        rows.append((label(learner), scores, False))
        if any(score["paper"] is not None for score in scores.values()):
            rows.append(("  paper", scores, True))
    columns, left = _that_fit(rows, names(summary))
    caption = [note] if note and any(paper for _, _, paper in rows) else []
    caption += [f"also in the report: {', '.join(heading(name) for name in left)}"] if left else []
    table = Table(
        title=Text(title),
        title_justify="left",
        title_style="bold",
        caption=Text("\n".join(caption)) if caption else None,
        caption_justify="left",
    )
    table.add_column("learner", no_wrap=True)
    for name in columns:
        table.add_column(heading(name), justify="right", no_wrap=True)
    tops = {name: best(summary, name) for name in columns}
    for title_of_row, scores, paper in rows:
        cells = [Text(title_of_row)]
        for name in columns:
            top = not paper and name in scores and tops[name] is not None and scores[name]["mean"] == tops[name]
            cells.append(Text(_cell(name, scores, paper), style="bold" if top else ""))
        table.add_row(*cells, style="dim" if paper else "")
    return table


def _cell(name: str, scores: dict, paper: bool) -> str:
    if name not in scores:
        return ""
    if not paper:
        return mean_and_spread(name, scores[name])
    return "" if scores[name]["paper"] is None else number(name, scores[name]["paper"])


def _that_fit(rows: list[tuple[str, dict, bool]], measures: list[str]) -> tuple[list[str], list[str]]:
    """The columns that the width allows, and those that it does not."""
    used, fit = 1 + 3 + max(len(title) for title, _, _ in rows), []
    for name in measures:
        if name in ELSEWHERE and "last_five_accuracy" in measures:
            continue
        needed = 3 + max(len(heading(name)), *(len(_cell(name, scores, paper)) for _, scores, paper in rows))
        if used + needed <= WIDTH:
            used, fit = used + needed, [*fit, name]
    return fit, [name for name in measures if name not in fit]
