"""The panels of the convolutional experiments: the paper's Fig. 5, mean accuracy by splits, then task by task."""

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from mesu.lab.drawing.panels import Panel, papers, percent_axis, plain_log, whole_numbers
from mesu.lab.drawing.style import colour, label, line_style
from mesu.lab.entry import Entry
from mesu.lab.paper import paper_number
from mesu.lab.table import Summary, mean_and_std

MEAN, TASK = "mean_accuracy", "task_accuracy"


def cifar_panels(table: pl.DataFrame, _: Summary) -> list[Panel]:
    """The mean by the number of splits, every task at the end for each number, and how tasks fared on the way."""
    experiment = str(table["experiment"][0])
    entries = [Entry.read(label) for label in table["learner"].unique(maintain_order=True)]
    learners = list(dict.fromkeys(entry.learner for entry in entries))
    splits = sorted({int(entry.get("splits", 1)) for entry in entries})
    means = {entry.label: _means(table, entry.label) for entry in entries}
    panels = [
        Panel(
            "splits",
            "accuracy at the end, mean over the tasks",
            "By the number of slices that each task is cut into." + _diamonds(experiment),
            "; ".join(f"{label(name)} {100 * np.mean(values):.1f} %" for name, values in means.items()),
            lambda axes: _by_splits(axes, experiment, learners, splits, means),
        )
    ]
    for number in splits:
        ends = {name: _ends(table, _label(name, number)) for name in learners if _label(name, number) in means}
        panels.append(
            Panel(
                f"tasks-{number}",
                f"each task at the end, {number} split{'s' * (number > 1)}",
                "Lines are guides for the eye.",
                "; ".join(
                    f"{label(name)} {', '.join(f'{100 * v:.1f}' for v in values.mean(0))} %"
                    for name, values in ends.items()
                ),
                lambda axes, ends=ends: _each(axes, ends),
            )
        )
    for number in splits:
        ways = {name: _way(table, _label(name, number)) for name in learners if _label(name, number) in means}
        panels.append(
            Panel(
                f"way-{number}",
                f"each task when learned, {number} split" if number == 1 else f"slices when learned, {number} splits",
                "Accuracy on the task that was just learned." + " Mean over a slice of every task." * (number > 1),
                "; ".join(
                    f"{label(name)} {100 * values.mean():.1f} % on average" for name, (_, values) in ways.items()
                ),
                lambda axes, ways=ways: _along(axes, ways),
            )
        )
    return panels


def _label(learner: str, splits: int) -> str:
    return Entry(learner, "splits", splits).label


def _diamonds(experiment: str) -> str:
    return " Diamonds: the paper." if experiment == "cifar" else ""


def _means(table: pl.DataFrame, entry: str) -> np.ndarray:
    return table.filter(learner=entry, measure=MEAN)["value"].to_numpy()


def _ends(table: pl.DataFrame, entry: str) -> np.ndarray:
    """[seeds, tasks] accuracies at the end."""
    own = table.filter(learner=entry, measure=TASK)
    last = own.filter(pl.col("after_task") == own["after_task"].max()).sort("seed", "on_task")
    return last["value"].to_numpy().reshape(len(last["seed"].unique()), -1)


def _way(table: pl.DataFrame, entry: str) -> tuple[np.ndarray, np.ndarray]:
    """Updates made, and the accuracy on the task just learned, mean over the seeds; of slices, over all tasks' turns."""
    own = table.filter(learner=entry, measure=TASK)
    tasks = int(own["on_task"].max()) + 1  # type: ignore[arg-type]
    own = own.filter(pl.col("on_task") == pl.col("after_task") % tasks)
    # some tasks are harder than others: task by task, that would hide the progress of a learner
    together = tasks if int(own["after_task"].max()) >= tasks else 1  # type: ignore[arg-type]
    turn = (pl.col("after_task") // together).alias("turn")
    mean = own.group_by(turn).agg(pl.col("step").max(), pl.col("value").mean()).sort("turn")
    return mean["step"].to_numpy(), mean["value"].to_numpy()


def _by_splits(
    axes: Axes, experiment: str, learners: list[str], splits: list[int], means: dict[str, np.ndarray]
) -> None:
    places: list[tuple[float, float | None, str]] = []
    for learner in learners:
        here = [number for number in splits if _label(learner, number) in means]
        values = [means[_label(learner, number)] for number in here]
        mean, std = np.array([mean_and_std(each) for each in values]).T
        axes.plot(here, mean, label=label(learner), marker="o", markersize=4, **line_style(learner))
        axes.fill_between(here, mean - std, mean + std, color=colour(learner), alpha=0.15, linewidth=0)
        places += [(n, paper_number(experiment, _label(learner, n), MEAN), colour(learner)) for n in here]
    papers(axes, places)
    axes.set(xscale="log", xlabel="splits", ylabel="accuracy")
    plain_log(axes.xaxis, 0.9, max(splits) * 1.1)
    axes.minorticks_off()  # there are no splits between those that were run
    axes.set_xticks(splits, [str(number) for number in splits])
    percent_axis(axes.yaxis)


def _each(axes: Axes, ends: dict[str, np.ndarray]) -> None:
    for learner, values in ends.items():
        where = np.arange(1, values.shape[1] + 1)
        mean, std = mean_and_std(values)
        axes.plot(where, mean, label=label(learner), marker="o", markersize=4, **line_style(learner))
        if len(values) > 1:
            axes.fill_between(where, mean - std, mean + std, color=colour(learner), alpha=0.15, linewidth=0)
    axes.set(xlabel="task", ylabel="accuracy at the end")
    whole_numbers(axes.xaxis)
    percent_axis(axes.yaxis)


def _along(axes: Axes, ways: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    for learner, (where, values) in ways.items():
        marked = {"marker": "o", "markersize": 3} if len(where) <= 25 else {}
        axes.plot(where, values, label=label(learner), **line_style(learner), **marked)
    axes.set(xlabel="updates", ylabel="accuracy when learned")
    percent_axis(axes.yaxis)
