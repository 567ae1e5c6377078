"""The table that a run prints at its end."""

from rich.table import Table

from mesu.report.style import label

COLUMNS = {
    "last_five_accuracy": "last five %",
    "running_five_accuracy": "all along %",
    "newest_accuracy": "newest %",
    "all_tasks_accuracy": "all tasks %",
    "ood_auroc": "OOD AUROC",
}


def summary_table(summary: dict, title: str) -> Table:
    """One row a learner, mean and standard deviation over the seeds, the best of each column in bold."""
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("learner", no_wrap=True)
    measures = [name for name in COLUMNS if any(name in scores for scores in summary.values())]
    for name in measures:
        table.add_column(COLUMNS[name], justify="right", no_wrap=True)
    best = {name: max(scores[name]["mean"] for scores in summary.values()) for name in measures}
    for learner, scores in summary.items():
        cells = []
        for name in measures:
            text = _cell(name, scores[name])
            cells.append(f"[bold]{text}[/bold]" if scores[name]["mean"] == best[name] else text)
        table.add_row(label(learner), *cells)
    return table


def _cell(name: str, score: dict) -> str:
    scale, digits = (100, 1) if "%" in COLUMNS[name] else (1, 2)
    text = f"{scale * score['mean']:.{digits}f}"
    return text if score["seeds"] == 1 else f"{text}±{scale * score['std']:.{digits}f}"
