"""A figure of each stream: the score over a sliding window of rows."""

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from benchmarks.streams.data import Stream
from benchmarks.streams.markdown import Results, mean, of
from benchmarks.streams.models import MODELS, name_of
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from PIL import Image

from mesu.lab.drawing.style import FAINT, figure_style

BLOCKS = 4  # that make the window, or a fiftieth of a long stream
COLOURS = 128  # of the file
DOTS = 110  # an inch: 1,000 pixels wide
STYLES: dict[str, dict[str, Any]] = {
    "mesu": {"linewidth": 2.2, "zorder": 3},
    "mesu-short": {"linewidth": 1.6, "zorder": 4, "linestyle": (0, (3, 1.5))},  # often on top of the other
    "baseline": {"linewidth": 1.2, "linestyle": ":"},
}


def draw(stream: Stream, results: Results, path: Path) -> None:
    """One line for each model, the mean over seeds; the best is first in the legend."""
    edges = np.array(stream.edges)
    blocks = max(BLOCKS, len(edges) // 50)
    there = {model: found for model in MODELS if (found := of(results, stream.name, model))}
    best = sorted(there, key=lambda model: mean(there[model], "score"), reverse=not stream.regression)
    with figure_style(), plt.rc_context({"savefig.dpi": DOTS}):
        figure, axes = plt.subplots(figsize=(9.2, 3.6), layout="constrained")
        curves = {
            model: _sliding(np.mean([result.blocks for result in there[model]], 0), edges, blocks)
            * (1 if stream.regression else 100)
            for model in best
        }
        low, high = _view(stream, curves)
        for model, curve in curves.items():
            hidden = model == "baseline" and curve.min() < low  # bits of it that look out would only confuse
            axes.plot(
                edges[blocks:],
                np.full_like(curve, np.nan) if hidden else curve,
                color=MODELS[model].colour,
                label=f"{name_of(model, stream.regression)}: {_number(mean(there[model], 'score'), stream)}",
                **STYLES.get(model, {"linewidth": 1.2}),
            )
        axes.set_ylim(low, high)
        for at in stream.changes:
            axes.axvline(at, color=FAINT, linewidth=0.8, linestyle=(0, (2, 3)), zorder=1)
        width = int(np.median(np.diff(edges))) * blocks
        axes.set(title=stream.title, xlabel="rows so far", xlim=(0, len(stream)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        axes.set_ylabel(
            f"mean absolute error, last {width:,} rows" if stream.regression else f"accuracy, last {width:,} rows, %"
        )
        figure.legend(loc="outside right upper", title="over the whole stream", alignment="left")
        _save(figure, path)
        plt.close(figure)


def _view(stream: Stream, curves: dict[str, np.ndarray]) -> tuple[float, float]:
    """Lowest and highest value that the picture has room for."""
    if stream.regression:  # one model far off must not flatten the others
        highest = [curve.max() for curve in curves.values()]
        return 0.0, 1.05 * min(float(np.max(highest)), 2.5 * float(np.median(highest)))
    shown = [curve for model, curve in curves.items() if model != "baseline"] or list(curves.values())
    low, high = float(np.min(shown)), float(np.max(shown))
    room = 0.05 * (high - low) or 1.0
    return max(0.0, low - room), min(100.5, high + room)


def _save(figure: Figure, path: Path) -> None:
    """As a PNG of few colours, which is a third of the size."""
    whole = BytesIO()
    figure.savefig(whole, format="png")
    path.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(whole) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def _sliding(scores: np.ndarray, edges: np.ndarray, blocks: int) -> np.ndarray:
    """The mean over the last few blocks, at the end of each."""
    total = np.concatenate([[0.0], np.cumsum(scores)])
    return (total[blocks:] - total[:-blocks]) / (edges[blocks:] - edges[:-blocks])


def _number(score: float, stream: Stream) -> str:
    return f"{score:#.3g}" if stream.regression else f"{100 * score:.1f} %"
