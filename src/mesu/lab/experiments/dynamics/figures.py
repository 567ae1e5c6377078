"""The panels of the dynamics experiment: sigma of single weights over time, and Proposition 5."""

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from mesu.lab.drawing.panels import Panel, plain_log
from mesu.lab.drawing.style import INK, label, short_number
from mesu.lab.table import Summary, mean_and_std

# one for each weight: curvature from low to high, told apart by colour-blind readers too
WEIGHTS = ("#56B4E9", "#0072B2", "#CC79A7", "#D55E00", "#009E73", "#E69F00")


def dynamics_panels(table: pl.DataFrame, _: Summary) -> list[Panel]:
    """One panel for each memory."""
    panels = []
    for learner in table["learner"].unique(maintain_order=True):
        rows = table.filter(learner=learner)
        deviation = rows.filter(measure="deviation").sort("step").group_by("seed").last()["value"].mean()
        panels.append(
            Panel(
                f"sigma-{learner}",
                label(learner),
                "Sigma of each weight, mean and spread over the seeds; dashed: Proposition 5.",
                f"mean deviation at the end {deviation:.1%}",
                lambda axes, rows=rows: _draw(axes, rows),
            )
        )
    return panels


def _draw(axes: Axes, rows: pl.DataFrame) -> None:
    for weight in sorted(rows["index"].drop_nulls().unique()):
        own = rows.filter(index=weight).sort("step")
        steps = np.unique(own["step"].to_numpy())
        std = np.array([own.filter(measure="std", step=int(step))["value"].to_numpy() for step in steps])
        expected = own.filter(measure="proposition_5", seed=int(own["seed"][0]))["value"].to_numpy()
        colour = WEIGHTS[int(weight) % len(WEIGHTS)]
        mean, spread = mean_and_std(std.T)
        axes.plot(steps, mean, color=colour, linewidth=1.5, label=f"weight {weight + 1}")
        axes.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
        axes.plot(steps, expected, color=INK, linewidth=1.0, linestyle=(0, (4, 2)))
    axes.plot([], [], color=INK, linewidth=1.0, linestyle=(0, (4, 2)), label="Proposition 5")
    axes.set(xscale="log", yscale="log", xlabel="updates", ylabel="sigma")
    axes.xaxis.set_major_formatter(lambda value, _: short_number(value))
    axes.xaxis.set_minor_formatter(NullFormatter())
    plain_log(axes.yaxis, *axes.get_ylim())
