"""The table that a run prints at its end."""

from textwrap import wrap

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from mesu.lab.drawing.numbers import best, heading, mean_and_spread, names, number
from mesu.lab.drawing.style import label

WIDTH = 100  # columns of a terminal that the table keeps within
# of a stream of tasks these are on the page only
ELSEWHERE = ("plasticity", "forgetting", "calibration_error", "rigidity", "mean_std")


def summary_table(summary: dict, title: str, note: str = "", width: int = WIDTH) -> Table:
    """One row a learner, mean and standard deviation over the seeds, the best of each column in bold; the paper's below it.

    No name or number is ever cut. Where the width is short, headings are folded; what has no room then is named below.

    Args:
        summary: What `summarise` gives.
        title: Stands above.
        note: Stands below, where the paper's numbers need one.
        width: Columns of the terminal to keep within; the table is wider only where no measure at all would fit. Print it
            with `crop=False`.
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
        width=needed,  # whatever the console's: it would cut cells
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
    """The headings of the measures that the width allows, the first one in any case, and how wide a table of them is."""
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
