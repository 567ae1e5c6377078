"""The panels of a permuted stream: those of the paper's Fig. 3, then the means along the stream and the study of N."""

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from mesu.lab.drawing.numbers import MINUS
from mesu.lab.drawing.panels import (
    Curve,
    Panel,
    bars,
    diamonds,
    dots,
    ends_in_words,
    in_words,
    lines,
    percent_axis,
    whole_numbers,
)
from mesu.lab.drawing.style import ENDLESS, INK, colour, memory
from mesu.lab.experiments.permuted.shared import WINDOW
from mesu.lab.paper import PERMUTED_MNIST, PERMUTED_MNIST_ALL_TASKS
from mesu.lab.table import Summary, accuracy_matrix
from mesu.measures import window_accuracy

PAPERS = "paper"
DIAMONDS = " Diamonds: the paper, after 200 tasks."


def permuted_panels(table: pl.DataFrame, summary: Summary) -> list[Panel]:
    """Seven panels, and an eighth where MESU ran with several memories."""
    experiment = str(table["experiment"][0])
    matrices = {
        learner: np.array([accuracy_matrix(table, learner, seed) for seed in _seeds(table, learner)])
        for learner in summary
    }
    most = max(len(each) for each in matrices.values())
    last_five, rigidity, outliers = _at_the_end(summary, experiment, most)
    old_tasks, newest, all_so_far, five_along = _on_the_way(matrices, experiment)
    panels = [last_five, old_tasks, rigidity, newest, outliers, all_so_far, five_along]
    return [*panels, *_study(experiment, summary)]


def _at_the_end(summary: dict, experiment: str, seeds: int) -> list[Panel]:
    """A bar or a dot for each learner: what it ended with."""
    outliers = "Fashion-MNIST" if experiment == "permuted-mnist" else "a permutation never seen"
    high = 0.8 + 0.26 * len(summary)
    spread = "Mean and standard deviation over the seeds." if seeds > 1 else "One seed."
    return [
        Panel(
            "last-five",
            "accuracy on the last five tasks, at the end",
            spread + _diamonds(summary, "last_five_accuracy"),
            in_words(summary, "last_five_accuracy"),
            lambda axes: bars(axes, summary, "last_five_accuracy", PAPERS),
            high,
        ),
        Panel(
            "rigidity",
            f"rigidity: 1 / |first task {MINUS} last task|",
            "High where the last task is learned as well as the first was; of the seeds' mean."
            + _diamonds(summary, "rigidity"),
            in_words(summary, "rigidity"),
            lambda axes: dots(axes, summary, "rigidity", PAPERS),
            high,
        ),
        Panel(
            "outliers",
            f"telling {outliers} (AUROC)",
            "AUROC of the uncertainty at the end: epistemic where a learner has one, else aleatoric. Dotted: chance."
            + _diamonds(summary, "ood_auroc"),
            in_words(summary, "ood_auroc"),
            lambda axes: _auroc(axes, summary),
            high,
        ),
    ]


def _on_the_way(matrices: dict[str, np.ndarray], experiment: str) -> list[Panel]:
    """A curve for each learner along the tasks."""
    return [
        _along(
            "old-tasks",
            "every task, tested at the end",
            "Old tasks to the left, the newest to the right: how far back each learner remembers.",
            [Curve(name, _tasks(m), m[:, -1]) for name, m in matrices.items()],
            "task",
        ),
        _along(
            "newest",
            "the newest task, tested when learned",
            "Falls where a learner fills up and stops learning.",
            [Curve(name, _tasks(m), np.diagonal(m, axis1=1, axis2=2)) for name, m in matrices.items()],
            "task",
        ),
        _along(
            "all-so-far",
            "mean over all tasks before the newest",
            "As in the paper, without the task just learned. Counts what lies beyond MESU's memory too, which it forgets on "
            "purpose; the next picture does not.",
            [Curve(name, _tasks(m)[:-1], mean_of_earlier(m)) for name, m in matrices.items()],
            "tasks before the newest",
            PERMUTED_MNIST_ALL_TASKS if experiment == "permuted-mnist" else {},
        ),
        _along(
            "five-along",
            "mean over the last five tasks",
            f"After each task; before the {WINDOW}th, over those so far.",
            [Curve(name, _tasks(m), _mean_of_window(m)) for name, m in matrices.items()],
            "tasks learned",
        ),
    ]


def _seeds(table: pl.DataFrame, learner: str) -> list[int]:
    return sorted(table.filter(learner=learner)["seed"].unique())


def _tasks(matrices: np.ndarray) -> np.ndarray:
    return np.arange(1, matrices.shape[1] + 1)


def mean_of_earlier(matrices: np.ndarray) -> np.ndarray:
    """Mean over tasks 1 to t after learning task t + 1; NaN after tasks where some were not tested."""
    return np.array([[row[: i + 1].mean() for i, row in enumerate(matrix[1:])] for matrix in matrices])


def _mean_of_window(matrices: np.ndarray) -> np.ndarray:
    return np.array([[window_accuracy(m[: i + 1, : i + 1], WINDOW) for i in range(len(m))] for m in matrices])


def _along(name: str, title: str, caption: str, curves: list[Curve], x: str, papers: dict | None = None) -> Panel:
    """Curves along the tasks, and the paper's points where the run got as far."""
    points = {
        curve.learner: [
            (at, value)
            for at, value in (papers or {}).get(curve.learner, {}).items()
            if at <= max(curve.where, default=0)
        ]
        for curve in curves
    }

    def draw(axes: Axes) -> None:
        lines(axes, curves)
        for learner, pairs in points.items():
            if pairs:
                diamonds(axes, *np.array(pairs).T, edge=colour(learner))
        if any(points.values()):
            diamonds(axes, [], [], PAPERS)
        axes.set(xlabel=x, ylabel="accuracy")
        percent_axis(axes.yaxis)
        whole_numbers(axes.xaxis)

    caption += " Diamonds: the paper, after as many tasks." * any(points.values())
    return Panel(name, title, caption, ends_in_words(curves, percent=True), draw)


def _diamonds(summary: dict, measure: str) -> str:
    """What the caption says of the paper's numbers, if there are any."""
    papers = [scores[measure]["paper"] for scores in summary.values() if measure in scores]
    return DIAMONDS * any(paper is not None for paper in papers)


def _auroc(axes: Axes, summary: dict) -> None:
    axes.axvline(0.5, color=INK, linewidth=0.9, linestyle=":", zorder=4)
    bars(axes, summary, "ood_auroc", PAPERS)


def _study(experiment: str, summary: dict) -> list[Panel]:
    """Accuracy against N, where MESU ran with several."""
    ours = {memory(name): scores["last_five_accuracy"] for name, scores in summary.items() if memory(name) is not None}
    if len(ours) < 2:
        return []
    paper = PERMUTED_MNIST if experiment == "permuted-mnist" else {}
    theirs = {memory(name): scores["last_five_accuracy"] for name, scores in paper.items() if memory(name)}
    places = _places({n for n in [*ours, *theirs] if n is not None})

    def draw(axes: Axes) -> None:
        drawn = sorted((n, score) for n, score in ours.items() if n is not None and score["mean"] is not None)
        where = [places[n] for n, _ in drawn]
        axes.plot(where, [score["mean"] for _, score in drawn], color=colour("mesu"), linewidth=1.2, zorder=2)
        for n, score in drawn:
            axes.errorbar(
                places[n],
                score["mean"],
                yerr=score["std"] if score["seeds"] > 1 else None,
                color=colour(f"mesu-{n:.15g}"),
                ecolor=INK,
                marker="o",
                markersize=6,
                capsize=2.5,
                zorder=3,
            )
        axes.plot([], [], "o-", color=colour("mesu"), label="MESU")
        if theirs:
            diamonds(axes, [places[n] for n in theirs if n is not None], list(theirs.values()), PAPERS)
        axes.set_xscale("log")
        axes.set_xticks(list(places.values()), _ticks(places))
        axes.set_xticks([], minor=True)
        axes.set(xlabel="N, updates that MESU remembers", ylabel="last five, at the end")
        percent_axis(axes.yaxis)

    chosen = {name: scores for name, scores in summary.items() if memory(name) is not None}
    caption = "Too short a memory forgets the last five tasks; too long a one may leave no room for them."
    return [
        Panel(
            "memory",
            "how long to remember",
            caption + DIAMONDS * bool(theirs),
            in_words(chosen, "last_five_accuracy"),
            draw,
        )
    ]


def _places(memories: set[float]) -> dict[float, float]:
    """Where each N stands on a logarithmic axis: those without end a step to the right of the others."""
    finite = sorted(n for n in memories if n < ENDLESS)
    right = 3 * finite[-1] if finite else 1.0
    return {n: n for n in finite} | {n: right for n in sorted(memories) if n >= ENDLESS}


def _ticks(places: dict[float, float]) -> list[str]:
    """180k, 1.2M, ∞; nothing where there is no room beside the one before."""
    texts, last = [], 0.0
    for n, place in places.items():
        room, last = place >= 1.4 * last, place if place >= 1.4 * last else last
        short = f"{n / 1e6:.3g}M" if n >= 1e6 else f"{n / 1e3:.3g}k" if n >= 1e3 else f"{n:g}"
        texts.append(("∞" if n >= ENDLESS else short) if room else "")
    return texts
