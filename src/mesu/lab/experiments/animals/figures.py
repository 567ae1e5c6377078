"""The panels of the animals: the paper's Fig. 2 (c to f), and how SGD's rate and MESU's start change the result."""

from collections.abc import Mapping
from math import isfinite

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from mesu.lab.drawing.panels import (
    Panel,
    bars,
    diamonds,
    in_words,
    percent_axis,
    plain_log,
    whole_numbers,
)
from mesu.lab.drawing.style import FAINT, INK, colour, label, line_style, rate, short_number, start
from mesu.lab.entry import Entry
from mesu.lab.experiments.animals.experiment import EDGES
from mesu.lab.table import Summary, accuracy_matrix, mean_and_std

TASKS = (
    "#D55E00",
    "#0072B2",
    "#009E73",
    "#CC79A7",
)  # a colour for each task, as readers who are colour-blind can tell them
LEAD_TICKS = (0.01, 0.1)


def animal_panels(table: pl.DataFrame, summary: Summary) -> list[Panel]:
    """Accuracy and AUROC of every learner, then its four tasks and its uncertainty, then the effect of the free settings."""
    high = 0.8 + 0.26 * len(summary)
    panels = [
        Panel(
            "accuracy",
            "accuracy at the end, mean over the four tasks",
            "Mean and standard deviation over the draws of species. Diamonds: the paper, with its own features.",
            in_words(summary, "all_tasks_accuracy"),
            lambda axes: _from_half(axes, summary, "all_tasks_accuracy"),
            high,
        ),
        Panel(
            "whales",
            "telling whales (AUROC)",
            "AUROC of the uncertainty at the end: epistemic where a learner has one, else aleatoric. Diamonds: the paper.",
            in_words(summary, "ood_auroc"),
            lambda axes: _from_half(axes, summary, "ood_auroc"),
            high,
        ),
    ]
    shown = shown_learners(summary)
    for learner in shown:
        matrices = np.array([accuracy_matrix(table, learner, seed) for seed in _seeds(table, learner)])
        panels.append(
            Panel(
                f"tasks-{learner}",
                f"{label(learner)}: each task after each task",
                "Before a task is learned its species are strangers of known families.",
                "; ".join(f"task {j + 1} at the end {100 * v:.1f} %" for j, v in enumerate(matrices[:, -1].mean(0))),
                lambda axes, matrices=matrices: _tasks(axes, matrices),
            )
        )
    for learner in shown:
        inside, outside = (_histogram(table, learner, name) for name in ("doubt_inside", "doubt_outside"))
        kind = kind_of_doubt(learner)
        panels.append(
            Panel(
                f"doubt-{learner}",
                f"{label(learner)}: {kind} uncertainty",
                "Share of the animals to test, and of the whales, at the end; over all draws.",
                f"median of animals {_median(inside):.2g} nats, of whales {_median(outside):.2g} nats",
                lambda axes, pair=(inside, outside): _doubt(axes, *pair),
            )
        )
    panels += _duels(table, summary)
    panels += _sweep("rates", "SGD's rate decides its score", "learning rate of SGD", summary, rate)
    panels += _sweep("starts", "MESU's start", "sigma at the start, times sqrt(inputs) and their size", summary, start)
    return panels


def kind_of_doubt(learner: str) -> str:
    """Which uncertainty the doubt of a learner is: SGD trains plain networks, which have no epistemic uncertainty."""
    return "aleatoric" if Entry.read(learner).learner == "sgd" else "epistemic"


def shown_learners(summary: Mapping) -> list[str]:
    """Learners with panels of their own: of many rates or starts, the paper's (or the first) and the best."""
    names = []
    for setting in (start, rate):
        alike = [learner for learner in summary if setting(learner) is not None]
        best = max(alike, key=lambda name: summary[name]["all_tasks_accuracy"]["mean"], default=None)
        theirs = [name for name in alike if summary[name]["all_tasks_accuracy"]["paper"] is not None]
        names += [name for name in alike if name in ((theirs or alike)[0], best)]
    return [name for name in summary if name in names or (rate(name) is None and start(name) is None)]


def _seeds(table: pl.DataFrame, learner: str) -> list[int]:
    return sorted(table.filter(learner=learner)["seed"].unique())


def _from_half(axes: Axes, summary: Mapping, measure: str) -> None:
    bars(axes, summary, measure, "paper")
    axes.set_xlim(0.5, 1)
    axes.set_xticks(np.linspace(0.5, 1, 6))


def _tasks(axes: Axes, matrices: np.ndarray) -> None:
    after = np.arange(1, matrices.shape[1] + 1)
    for task in range(matrices.shape[2]):
        mean, std = mean_and_std(matrices[:, :, task])
        axes.plot(after, mean, color=TASKS[task], marker="o", markersize=3.5, label=f"task {task + 1}")
        if len(matrices) > 1:
            axes.fill_between(after, mean - std, mean + std, color=TASKS[task], alpha=0.13, linewidth=0)
    axes.set(ylim=(0.3, 1.02), xlabel="tasks learned", ylabel="accuracy")
    percent_axis(axes.yaxis)
    whole_numbers(axes.xaxis)


def _histogram(table: pl.DataFrame, learner: str, name: str) -> np.ndarray:
    """Share of the photographs in each bin, mean over the draws."""
    rows = table.filter(learner=learner, measure=name).group_by("index").agg(pl.col("value").mean()).sort("index")
    return rows["value"].to_numpy()


def _median(shares: np.ndarray) -> float:
    return float(np.sqrt(EDGES[:-1] * EDGES[1:])[np.searchsorted(np.cumsum(shares), 0.5)])


def _doubt(axes: Axes, inside: np.ndarray, outside: np.ndarray) -> None:
    for shares, name, tint in ((inside, "animals", "#0072B2"), (outside, "whales", "#E69F00")):
        axes.stairs(shares, EDGES, fill=True, alpha=0.45, color=tint, label=name)
        axes.stairs(shares, EDGES, color=tint, linewidth=1.1)
    axes.set(xscale="log", xlim=(EDGES[0], EDGES[-1]), xlabel="uncertainty (nats)", ylabel="share")
    plain_log(axes.xaxis, EDGES[0], EDGES[-1])
    percent_axis(axes.yaxis)


def _duels(table: pl.DataFrame, summary: Mapping) -> list[Panel]:
    """Every other learner minus SGD at its best rate, draw by draw: a mean does not tell how often a learner is better."""
    rivals = [learner for learner in summary if rate(learner) is not None]
    best = max(rivals, key=lambda name: summary[name]["all_tasks_accuracy"]["mean"], default=None)
    panels = []
    for measure, what in (("accuracy", "accuracy"), ("ood_auroc", "AUROC")):
        final = _at_the_end(table, measure)
        pairs = [(learner, _lead(final[learner], final[best])) for learner in summary if best and learner not in rivals]
        leads = {learner: lead for learner, lead in pairs if len(lead) > 1}
        if leads and best:
            percent = measure == "accuracy"
            panels.append(
                Panel(
                    f"draws-{measure}",
                    f"lead over {label(best)}: {what}",
                    f"A dot is a draw of species. {label(best)} is SGD's best by accuracy. To the right: draws above it. "
                    f"The axis is logarithmic beyond {'1 %' if percent else '0.01'} on either side.",
                    "; ".join(f"{label(learner)} above in {_above(lead)}" for learner, lead in leads.items()),
                    lambda axes, leads=leads, percent=percent: _strips(axes, leads, percent),
                    0.8 + 0.4 * len(leads),
                )
            )
    return panels


def _at_the_end(table: pl.DataFrame, measure: str) -> dict[str, dict[int, float]]:
    """Of every learner and seed, the mean of a measure after its last task."""
    rows = table.filter(pl.col("measure") == measure)
    rows = rows.filter(pl.col("after_task") == pl.col("after_task").max().over("learner", "seed"))
    final: dict[str, dict[int, float]] = {}
    for learner, seed, value in rows.group_by("learner", "seed").agg(pl.col("value").mean()).sort("seed").iter_rows():
        final.setdefault(learner, {})[seed] = value
    return final


def _lead(mine: Mapping[int, float], theirs: Mapping[int, float]) -> list[float]:
    leads = (value - theirs[seed] for seed, value in mine.items() if seed in theirs)
    return [lead for lead in leads if isfinite(lead)]


def _above(lead: list[float]) -> str:
    return f"{sum(value > 0 for value in lead)} of {len(lead)}"


def _strips(axes: Axes, leads: Mapping[str, list[float]], percent: bool) -> None:
    for position, (learner, lead) in enumerate(leads.items()):
        height = position + 0.22 * np.cos(np.pi * np.arange(len(lead)))  # two rows, so that dots do not hide each other
        axes.plot(lead, height, "o", color=colour(learner), markersize=3.5, alpha=0.6, markeredgewidth=0)
        where = {"xy": (1, position), "xycoords": ("axes fraction", "data")}
        axes.annotate(_above(lead), **where, xytext=(5, 0), textcoords="offset points", va="center", fontsize=8.5)
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_xscale("symlog", linthresh=LEAD_TICKS[0], linscale=1.0)
    low, high = min(axes.get_xlim()[0], -1.2 * LEAD_TICKS[0]), max(axes.get_xlim()[1], 1.2 * LEAD_TICKS[0])
    axes.set_xlim(low, high)
    ticks = [sign * tick for sign in (-1, 1) for tick in LEAD_TICKS if low <= sign * tick <= high]
    axes.set_xticks([0, *ticks])
    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks(range(len(leads)), [label(learner) for learner in leads])
    axes.set_ylim(len(leads) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    if percent:
        percent_axis(axes.xaxis)


def _sweep(name: str, title: str, axis: str, summary: Mapping, setting) -> list[Panel]:
    """Accuracy and AUROC along a free setting, where the run has three or more of it; the others are levels."""
    along = sorted((value, learner) for learner in summary if (value := setting(learner)) is not None)
    if len(along) < 3:
        return []
    values = [value for value, _ in along]
    return [
        Panel(
            f"{name}-{measure}",
            f"{title}: {what}",
            "Mean and standard deviation over the draws; dotted: the others.",
            "; ".join(f"{short_number(v)}: {summary[learner][measure]['mean']:.3f}" for v, learner in along),
            lambda axes, measure=measure: _along(axes, summary, measure, values, [n for _, n in along], axis),
        )
        for measure, what in (("all_tasks_accuracy", "accuracy"), ("ood_auroc", "AUROC"))
    ]


def _along(axes: Axes, summary: Mapping, measure: str, values: list[float], learners: list[str], axis: str) -> None:
    mean, std = (np.array([summary[learner][measure][part] for learner in learners]) for part in ("mean", "std"))
    axes.plot(values, mean, color=INK, marker="o", markersize=4)
    axes.fill_between(values, mean - std, mean + std, color=INK, alpha=0.12, linewidth=0)
    for learner in summary:
        if learner not in learners and (rate(learner) is None) and (start(learner) is None):
            style = {**line_style(learner), "linestyle": ":"}
            axes.axhline(summary[learner][measure]["mean"], label=label(learner), **style)
    for value, learner in zip(values, learners, strict=True):
        if summary[learner][measure]["paper"] is not None:
            diamonds(axes, value, summary[learner][measure]["paper"], "paper", edge=colour(learner))
    axes.set(xscale="log", xlabel=axis, ylabel="accuracy" if measure == "all_tasks_accuracy" else "AUROC")
    plain_log(axes.xaxis, *axes.get_xlim())
    axes.tick_params(axis="x", labelcolor=FAINT)
    if measure == "all_tasks_accuracy":
        percent_axis(axes.yaxis)
