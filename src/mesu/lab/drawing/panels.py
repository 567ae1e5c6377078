"""Panels of a figure. The page shows each panel as a separate picture; `overview` draws all of them in one figure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import ceil, floor, log10
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from mesu.disk import replacing
from mesu.lab.drawing.numbers import NOTHING, known, mean_and_spread, number
from mesu.lab.drawing.style import INK, NIGHT, PAPER, colour, figure_style, label, line_style, short_label, short_number
from mesu.lab.table import mean_and_std

WIDTH = 4.3  # inches: 9-point text stays readable when a phone scales the picture to its screen
MARKED = 25  # curves with at most this many points get a marker at each


class Panel(NamedTuple):
    """One picture."""

    name: str  # of its files, without suffix
    title: str
    caption: str  # text below the picture
    numbers: str  # the numbers shown, as the picture's alternative text
    draw: Callable[[Axes], None]
    height: float = 2.6  # inches, without a legend
    alone: bool = False  # has too much detail for the overview, where panels are smaller


class Curve(NamedTuple):
    """One learner's curves: x positions, and values [seeds, positions], NaN if not measured."""

    learner: str
    where: np.ndarray
    values: np.ndarray


def picture(panel: Panel) -> Figure:
    """A figure with one panel."""
    with figure_style():
        figure = Figure(figsize=(WIDTH, panel.height), layout="constrained")
        axes = figure.subplots()
        panel.draw(axes)
        figure.suptitle(panel.title, x=0.02, ha="left", fontsize=9.5)  # an axes' title would start right of long labels
        _legend(figure, [axes], columns=3)
        return figure


def overview(panels: Iterable[Panel]) -> Figure:
    """One figure with all panels except those marked `alone`, in two columns, with letters."""
    panels = [panel for panel in panels if not panel.alone]
    rows = [panels[i : i + 2] for i in range(0, len(panels), 2)]
    heights = [max(panel.height for panel in row) for row in rows]
    with figure_style():
        figure = Figure(figsize=(2 * WIDTH + 0.6, sum(heights)), layout="constrained")
        figure.get_layout_engine().set(h_pad=0.09, w_pad=0.09)  # type: ignore[union-attr]
        grid = figure.add_gridspec(len(rows), 2, height_ratios=heights)
        drawn = []
        for index, panel in enumerate(panels):
            axes = figure.add_subplot(grid[index // 2, index % 2])
            panel.draw(axes)
            axes.set_title(f"{chr(ord('a') + index)}  {panel.title}")
            drawn.append(axes)
        _legend(figure, drawn, columns=6)
        return figure


def _legend(figure: Figure, drawn: list[Axes], columns: int) -> None:
    """Add one legend below all axes, and make the figure taller for it."""
    handles = {}
    for axes in drawn:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    for name in [name for name in handles if name.startswith("paper")]:  # move to the end
        handles[name] = handles.pop(name)
    if not handles:
        return
    if max(len(name) for name in handles) > 13:
        columns = columns * 2 // 3
    columns = min(len(handles), columns)
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + 0.12 + 0.18 * -(-len(handles) // columns))
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns)


def save(figure: Figure, base: Path) -> str:
    """Write `base`.png and `base`.svg; the same figure gives the same bytes.

    Returns:
        The SVG, which switches to dark colours if the reader's system prefers them.
    """
    with figure_style():
        with replacing(base.parent / f"{base.name}.png", flush=False) as path:
            figure.savefig(path, format="png")
        figure.set_layout_engine("none")  # keep the layout of the PNG for the SVG
        with replacing(base.parent / f"{base.name}.svg", flush=False) as path:
            figure.savefig(path, format="svg", metadata={"Date": None})
            text = _with_night(path.read_text(encoding="utf-8"))
            path.write_text(text, encoding="utf-8")
    return text


def _with_night(svg: str) -> str:
    """Add the dark colours to an SVG, as a media query."""
    rules = "".join(
        f'[style*="{what}: {day}"]{{{what}:{night}!important}}'
        for day, night in NIGHT.items()
        for what in ("fill", "stroke")
    )
    return svg.replace("</style>", f"@media (prefers-color-scheme:dark){{{rules}}}</style>", 1)


def bars(axes: Axes, summary: Mapping, measure: str, paper: str) -> None:
    """Draw one bar per learner with its spread over the seeds, and a diamond for the paper's number.

    Args:
        axes: Axes to draw on.
        summary: What `summarise` gives.
        measure: Which of its measures.
        paper: Legend entry of the diamonds.
    """
    with _learners(axes, summary, measure, paper) as rows:
        for position, learner, score in rows:
            several = score["seeds"] > 1
            error = {"xerr": score["std"], "ecolor": INK, "capsize": 2.5} if several else {}
            axes.barh(position, score["mean"], height=0.7, color=colour(learner), **error)
    axes.set_xlim(0, 1)
    axes.set_xticks(np.linspace(0, 1, 6))
    if known(measure).percent:
        percent_axis(axes.xaxis)


def dots(axes: Axes, summary: Mapping, measure: str, paper: str) -> None:
    """Draw one dot per learner on a logarithmic axis (a bar would need a zero), and a diamond for the paper's number."""
    axes.set_xscale("log")
    with _learners(axes, summary, measure, paper) as rows:
        for position, learner, score in rows:
            axes.plot(score["mean"], position, "o", color=colour(learner), markersize=7)
    axes.margins(x=0.08)
    plain_log(axes.xaxis, *axes.get_xlim())


@contextmanager
def _learners(axes: Axes, summary: Mapping, measure: str, paper: str) -> Iterator[list[tuple[int, str, dict]]]:
    """Yield (position, learner, score) rows to draw, then add names on the left, numbers on the right and the diamonds."""
    scores = {learner: scores.get(measure) for learner, scores in summary.items()}
    yield [(i, learner, s) for i, (learner, s) in enumerate(scores.items()) if s and s["mean"] is not None]
    told = False
    for position, score in enumerate(scores.values()):
        text = mean_and_spread(measure, score) if score else NOTHING
        where = {"xy": (1, position), "xycoords": ("axes fraction", "data")}
        axes.annotate(text, **where, xytext=(5, 0), textcoords="offset points", va="center", fontsize=8.5)
        if score and score["paper"] is not None:
            diamonds(axes, score["paper"], position, None if told else paper)
            told = True
    axes.set_yticks(range(len(scores)), [short_label(learner) for learner in scores])
    axes.set_ylim(len(scores) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)


def diamonds(axes: Axes, x: Any, y: Any, name: str | None = None, edge: str = INK, **more: Any) -> None:
    """Draw the paper's numbers as diamonds; with empty x and y, add only the legend entry."""
    inside = not np.size(x)  # a legend entry without points must not enlarge the axes
    style: Any = {"markersize": 5.5, "markerfacecolor": PAPER, "markeredgecolor": edge, "zorder": 5, "clip_on": inside}
    axes.plot(x, y, "D", label=name, **style, **more)


def papers(axes: Axes, points: Iterable[tuple[float, float | None, str]]) -> None:
    """Draw a diamond for each (x, the paper's number, colour), if the paper has one, and one legend entry for all."""
    there = [(x, y, edge) for x, y, edge in points if y is not None]
    for x, y, edge in there:
        diamonds(axes, x, y, edge=edge)
    if there:
        diamonds(axes, [], [], "paper")


def lines(axes: Axes, curves: Iterable[Curve]) -> None:
    """Draw each learner's mean over the seeds and a band of one standard deviation."""
    for learner, where, values in curves:
        mean, std = mean_and_std(values)
        seen = np.isfinite(mean)
        where, mean, std = where[seen], mean[seen], std[seen]
        marked = {"marker": "o", "markersize": 3} if len(where) <= MARKED else {}
        axes.plot(where, mean, label=short_label(learner), **line_style(learner), **marked)
        if len(values) > 1:
            axes.fill_between(where, mean - std, mean + std, color=colour(learner), alpha=0.15, linewidth=0)


def percent_axis(axis) -> None:
    """Show fractions as per cent."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}%"))


def whole_numbers(axis) -> None:
    """Put ticks at whole numbers only, as for tasks."""
    axis.set_major_locator(MaxNLocator(integer=True, nbins=6))


def plain_log(axis, low: float, high: float) -> None:
    """Label a logarithmic axis 1, 10, 100, ...; a short one also 2, 5, 20, 50, ..."""
    between = (1, 2, 5) if high < 50 * low else (1,)
    ticks = [m * 10.0**k for k in range(floor(log10(low)), ceil(log10(high)) + 1) for m in between]
    ticks = [tick for tick in ticks if low <= tick <= high]
    axis.set_major_locator(FixedLocator(ticks) if len(ticks) > 1 else MaxNLocator(3))
    axis.set_major_formatter(FuncFormatter(lambda value, _: short_number(float(f"{value:.6g}"))))
    axis.set_minor_formatter(NullFormatter())
    if len(ticks) < 2:
        axis.set_minor_locator(NullLocator())


def in_words(summary: Mapping, measure: str) -> str:
    """The numbers of a measure as text, learner by learner."""
    unit = " %" if known(measure).percent else ""
    said = []
    for learner, scores in summary.items():
        if measure in scores:
            score = scores[measure]
            beside = "" if score["paper"] is None else f" (paper: {number(measure, score['paper'])}{unit})"
            said.append(f"{label(learner)} {mean_and_spread(measure, score)}{unit}{beside}")
    return "; ".join(said)


def ends_in_words(curves: Iterable[Curve], percent: bool) -> str:
    """The first and last point of each learner's mean curve, as text."""
    said = []
    for learner, where, values in curves:
        mean, _ = mean_and_std(values)
        seen = np.flatnonzero(np.isfinite(mean))
        if len(seen):
            first, last = ((f"{100 * mean[i]:.1f} %" if percent else f"{mean[i]:.3g}") for i in seen[[0, -1]])
            said.append(f"{label(learner)} from {first} at {where[seen[0]]:g} to {last} at {where[seen[-1]]:g}")
    return "; ".join(said)
