"""The panels of the Hessian experiment: each learner's estimate against the truth, and how the agreement grows."""

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from mesu.lab.drawing.panels import Panel, papers, plain_log
from mesu.lab.drawing.style import FAINT, colour, label, line_style, short_number
from mesu.lab.paper import paper_number
from mesu.lab.table import Summary

SHOWN = 1e-6  # of the largest: what is smaller still is left out, or it would fill the picture


def hessian_panels(table: pl.DataFrame, _: Summary) -> list[Panel]:
    """The correlation over time, then a cloud of weights for each learner at the end."""
    learners = list(table["learner"].unique(maintain_order=True))
    last = int(table["step"].max())  # type: ignore[arg-type]
    agreement = {learner: _agreement(table, learner) for learner in learners}
    panels = [
        Panel(
            "correlation",
            "correlation with the true Hessian",
            "Pearson's correlation over the last layer's weights. Diamonds: the paper.",
            "; ".join(f"{label(name)} {values[-1].mean():.3f}" for name, (_, values) in agreement.items()),
            lambda axes: _correlation(axes, agreement),
        )
    ]
    for learner in learners:
        truth, estimate = (_weights(table, learner, last, name) for name in ("hessian", "estimate"))
        panels.append(
            Panel(
                f"weights-{learner}",
                f"{label(learner)}: estimate against truth",
                f"Each dot is a weight, after {last:,} updates; dotted: where both agree. Not shown: the tiniest.",
                f"{len(truth)} weights",
                lambda axes, learner=learner, truth=truth, estimate=estimate: _cloud(axes, learner, truth, estimate),
            )
        )
    return panels


def _agreement(table: pl.DataFrame, learner: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and the correlation there of each seed."""
    rows = table.filter(pl.col("measure").str.contains(r"^pearson_\d+$"), learner=learner)
    steps = np.unique(rows["step"].to_numpy())
    return steps, np.array([rows.filter(step=int(step))["value"].to_numpy() for step in steps])


def _weights(table: pl.DataFrame, learner: str, step: int, measure: str) -> np.ndarray:
    return table.filter(learner=learner, step=step, measure=measure, seed=int(table["seed"][0]))["value"].to_numpy()


def _correlation(axes: Axes, agreement: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    for learner, (steps, values) in agreement.items():
        axes.plot(steps, values.mean(1), label=label(learner), marker="o", markersize=4, **line_style(learner))
    papers(
        axes,
        (
            (step, paper_number("hessian", learner, f"pearson_{step}"), colour(learner))
            for learner, (steps, _) in agreement.items()
            for step in steps
        ),
    )
    axes.set(xscale="log", xlabel="updates", ylabel="Pearson's correlation")
    axes.xaxis.set_major_formatter(lambda value, _: short_number(value))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _cloud(axes: Axes, learner: str, truth: np.ndarray, estimate: np.ndarray) -> None:
    both = (truth > SHOWN * truth.max()) & (estimate > SHOWN * estimate.max())
    if not both.any():
        axes.text(0.5, 0.5, "nothing positive", ha="center", transform=axes.transAxes, color=FAINT)
        return
    axes.scatter(truth[both], estimate[both], s=7, color=colour(learner), linewidths=0, alpha=0.7)
    axes.set(xscale="log", yscale="log", xlabel="true Hessian", ylabel="estimate")
    low, high = truth[both].min(), truth[both].max()
    axes.plot([low, high], [low, high], color=FAINT, linewidth=0.9, linestyle=":")
    plain_log(axes.xaxis, *axes.get_xlim())
    plain_log(axes.yaxis, *axes.get_ylim())
