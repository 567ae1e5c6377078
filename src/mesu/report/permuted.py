"""The figure of a permuted stream, in the layout of the paper's Fig. 3."""

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from mesu.experiments.table import accuracy_matrix, summarise
from mesu.report.style import colour, figure_style, label


def permuted_figure(table: pl.DataFrame) -> Figure:
    """Four panels: the last five tasks, every old task at the end, the newest task along the way, outliers."""
    with figure_style():
        figure = Figure(figsize=(9.5, 6.2), layout="constrained")
        (last_five, old), (newest, outliers) = figure.subplots(2, 2)
        summary = summarise(table)
        matrices = {
            learner: [accuracy_matrix(table, learner, seed) for seed in sorted(set(rows["seed"]))]
            for learner, rows in ((name, table.filter(learner=name)) for name in summary)
        }
        _bars(last_five, summary, "running_five_accuracy", percent=True)
        last_five.set(title="a  accuracy on the last five tasks, all along", ylabel="accuracy")
        for learner, each in matrices.items():
            _line(old, learner, np.array([m[-1] for m in each]))
            _line(newest, learner, np.array([np.diagonal(m) for m in each]))
        old.set(title="b  every task, tested at the end", xlabel="task", ylabel="accuracy")
        newest.set(title="c  the newest task, tested when learned", xlabel="task", ylabel="accuracy")
        _bars(outliers, summary, "ood_auroc", percent=False)
        outliers.set(title="d  telling a permutation never seen (AUROC)", ylabel="AUROC")
        outliers.axhline(0.5, color="#444444", linewidth=0.8, linestyle=":")
        for axes in (old, newest):
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        handles, names = old.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(names))
        seeds = max(len(each) for each in matrices.values())
        if seeds > 1:
            figure.suptitle(
                f"mean and standard deviation of {seeds} seeds", fontsize=8, color="#555555", x=0.99, ha="right"
            )
        return figure


def _bars(axes: Axes, summary: dict, measure: str, percent: bool) -> None:
    for position, (learner, scores) in enumerate(summary.items()):
        mean, std = scores[measure]["mean"], scores[measure]["std"]
        axes.bar(position, mean, yerr=std, color=colour(learner), width=0.72, capsize=3, ecolor="#333333")
        text = f"{100 * mean:.1f}" if percent else f"{mean:.2f}"
        axes.text(position, mean + std + 0.015, text, ha="center", va="bottom", fontsize=8)
    axes.set_xticks(range(len(summary)), [label(learner) for learner in summary], fontsize=8)
    axes.grid(axis="x", visible=False)
    axes.set_ylim(0, 1.08)
    axes.set_yticks(np.linspace(0, 1, 6))
    if percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def _line(axes: Axes, learner: str, curves: np.ndarray) -> None:
    tasks = np.arange(1, curves.shape[1] + 1)
    mean, std = curves.mean(0), curves.std(0)
    axes.plot(tasks, mean, color=colour(learner), label=label(learner), linewidth=1.8 if learner == "mesu" else 1.2)
    if len(curves) > 1:
        axes.fill_between(tasks, mean - std, mean + std, color=colour(learner), alpha=0.15, linewidth=0)
