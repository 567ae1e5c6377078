"""The figure of docs/signals.md: how many of the changes each detector has found after how many rows."""

from math import inf
from pathlib import Path

import numpy as np
from benchmarks.signals.table import Line, delay, false_alarms
from benchmarks.signals.work import DETECTORS, SOON
from matplotlib.figure import Figure

from mesu.disk import replacing
from mesu.lab.drawing.style import INK, figure_style

COLOURS = ("#D55E00", "#E69F00", "#CC79A7", "#0072B2", "#56B4E9", "#009E73", "#7F7F7F")  # Okabe and Ito's


def draw(lines: list[Line], file: Path) -> None:
    """Draw abrupt changes by rows after them, and gradual ones beside the false alarms."""
    with figure_style():
        figure = Figure(figsize=(9.2, 3.6), layout="constrained")
        soon, both = figure.subplots(1, 2)
        for name, colour in zip(DETECTORS, COLOURS, strict=True):
            own = [line for line in lines if line["detector"] == name]
            abrupt = np.sort([delay(line) for line in own if line["kind"] != "calm" and not line["slow"]])
            rows = np.arange(SOON + 1)
            width = 2.2 if "signals" in name else 1.3
            soon.plot(rows, 100 * np.searchsorted(abrupt, rows, side="right") / len(abrupt), color=colour, lw=width)
            slow = [delay(line) < inf for line in own if line["slow"]]
            both.plot(false_alarms(own), 100 * np.mean(slow), "o", ms=8, color=colour, label=name)
        soon.set(xlabel="rows after the change", ylabel="abrupt changes found, %", ylim=(0, 102), xlim=(0, SOON))
        both.set(xlabel="false alarms in 10,000 rows", ylabel="gradual changes found, %", ylim=(0, 105))
        both.set_xlim(-0.1, None)
        both.axvline(1, color=INK, lw=0.6, ls=":")
        figure.legend(*both.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
        with replacing(file) as aside:
            figure.savefig(aside, dpi=110, format="png")
