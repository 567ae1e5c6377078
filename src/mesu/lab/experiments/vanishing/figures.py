"""The panels of vanishing uncertainty: the paper's Fig. 4, telling outliers and the mean sigma over the epochs."""

from collections.abc import Iterator

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from mesu.lab.drawing.panels import (
    Curve,
    Panel,
    diamonds,
    ends_in_words,
    lines,
    percent_axis,
    plain_log,
    whole_numbers,
)
from mesu.lab.drawing.style import INK, colour
from mesu.lab.paper import paper_number
from mesu.lab.table import Summary

EPOCH = 60_000  # updates
PAPERS = " Diamonds: the paper, after 1,000 epochs."


KINDS = {  # of measures: title and caption
    "ood_auroc": (
        "telling shuffled digits (AUROC)",
        "Digits with their pixels shuffled, by uncertainty: 1 if they are always told apart. Dotted: chance.",
    ),
    "published_auroc": (
        "the same by 1,000 thresholds",
        "As the paper computes it, with thresholds up to the largest uncertainty of an outlier.",
    ),
    "published_aleatoric_auroc": (
        "the same by aleatoric uncertainty",
        "By 1,000 thresholds, of the learners that have both kinds of uncertainty.",
    ),
    "fashion_auroc": ("telling Fashion-MNIST (AUROC)", "Clothes instead of shuffled digits. Dotted: chance."),
    "layer_std": (
        "mean sigma of the weights",
        "The smaller, the surer is a network of its weights; mean of both layers.",
    ),
    "accuracy": ("accuracy on MNIST's test images", "On the digits that all of them learn."),
}


def vanishing_panels(table: pl.DataFrame, _: Summary) -> list[Panel]:
    """AUROC of both kinds, mean sigma and accuracy along the way."""
    panels = []
    for measure, (title, caption) in KINDS.items():
        curves = list(_curves(table, measure))
        known = any(paper_number("vanishing", curve.learner, measure) is not None for curve in curves)
        if curves:
            panels.append(
                Panel(
                    measure.replace("_", "-"),
                    title,
                    caption + PAPERS * known,
                    ends_in_words(curves, percent=measure == "accuracy"),
                    lambda axes, curves=curves, measure=measure: _draw(axes, curves, measure),
                )
            )
    return panels


def _curves(table: pl.DataFrame, measure: str) -> Iterator[Curve]:
    """A measure over the epochs, for each learner that has it; NaN where a seed has none."""
    rows = table.filter(measure=measure)
    for learner in rows["learner"].unique(maintain_order=True):
        own = rows.filter(learner=learner)
        steps, seeds = (np.unique(own[name].to_numpy()) for name in ("step", "seed"))
        values = np.full((len(seeds), len(steps)), np.nan)
        where = (np.searchsorted(seeds, own["seed"].to_numpy()), np.searchsorted(steps, own["step"].to_numpy()))
        values[where] = own["value"].to_numpy()
        yield Curve(learner, steps / EPOCH, values)


def _draw(axes: Axes, curves: list[Curve], measure: str) -> None:
    lines(axes, curves)
    papers = {curve.learner: paper_number("vanishing", curve.learner, measure) for curve in curves}
    for learner, value in papers.items():
        if value is not None:  # beyond the right end, since the paper's number is after more epochs than most runs have
            diamonds(axes, 1.03, value, edge=colour(learner), transform=axes.get_yaxis_transform())
    if any(value is not None for value in papers.values()):
        diamonds(axes, [], [], "paper, after 1,000 epochs")
    axes.set(xlabel="epochs, of 60,000 updates each")
    whole_numbers(axes.xaxis)
    if measure.endswith("auroc"):
        axes.axhline(0.5, color=INK, linewidth=0.9, linestyle=":")
        axes.set(ylabel="AUROC", ylim=(None, 1.01))
    elif measure == "layer_std":
        axes.set(ylabel="mean sigma", yscale="log")
        plain_log(axes.yaxis, *axes.get_ylim())
    else:
        axes.set(ylabel="accuracy")
        percent_axis(axes.yaxis)
