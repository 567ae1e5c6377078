"""The table that `mesu run` prints at the end."""

from textwrap import wrap

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from mesu.lab.drawing.numbers import best, heading, mean_and_spread, names, number
from mesu.lab.drawing.style import label

WIDTH = 100  # maximum width of the table, in columns of a terminal
# measures of a stream of tasks that only the page shows
ELSEWHERE = ("plasticity", "forgetting", "calibration_error", "rigidity", "mean_std")


def summary_table(summary: dict, title: str, note: str = "", width: int = WIDTH) -> Table:
    """One row per learner: mean and standard deviation over the seeds, the best of each column in bold, the paper's below.

    Names and numbers are never cut. If the table is too wide, headings are wrapped; measures that still do not fit are left out
    and named below the table.

    Args:
        summary: What `summarise` gives.
        title: Text above the table.
        note: Text below the table about the paper's numbers; shown only if there are any.
        width: Maximum width in columns. The table is wider only if not even one measure would fit: print it with `crop=False`.
    """
    rows: list[tuple[str, dict, bool]] = []
    for learner, scores in summary.items():
        rows.append((label(learner), scores, False))
        if any(score["paper"] is not None for score in scores.values()):
            rows.append(("  paper", scores, True))
    headings, needed = _that_fit(rows, names(summary), width)
    columns, left = list(headings), [name for name in names(summary) if name not in headings]
    caption = [note] if note and any(paper for _, _, paper in rows) else []
    caption += [f"also in the report: {', '.join(heading(name) for name in left)}"] if left else []
    table = Table(
        title=Text(title),
        title_justify="left",
        title_style="bold",
        caption=Text("\n".join(caption)) if caption else None,
        caption_justify="left",
        width=needed,  # the table's own width: the console would shorten cells to fit its width
    )
    table.add_column("learner", no_wrap=True)
    for words in headings.values():
        table.add_column(Text(words), justify="right", no_wrap=True, vertical="bottom")
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


def _that_fit(rows: list[tuple[str, dict, bool]], measures: list[str], width: int) -> tuple[dict[str, str], int]:
    """Headings of the measures that fit into the width (always at least the first), and the width of that table."""
    wanted = [name for name in measures if name not in ELSEWHERE or "last_five_accuracy" not in measures]
    cells = {name: max(cell_len(_cell(name, scores, paper)) for _, scores, paper in rows) for name in wanted}
    first = 1 + 3 + max(cell_len(text) for text in ("learner", *(title for title, _, _ in rows)))

    def fitting(headings: dict[str, list[str]]) -> tuple[dict[str, str], int]:
        fit, used = {}, first
        for name, lines in headings.items():
            needed = 3 + max([cells[name], *map(cell_len, lines)])
            if used + needed <= width or not fit:
                fit[name], used = "\n".join(lines), used + needed
        return fit, used

    fit, used = fitting({name: [heading(name)] for name in wanted})
    if len(fit) == len(wanted) and used <= width:
        return fit, used
    return fitting({name: wrap(heading(name), max(1, cells[name]), break_long_words=False) for name in wanted})
