"""What an online model still remembers: how many examples count, and how the sigmas of each layer have changed.

A weight's variance is its learning rate, so sigma tells how fast it still learns:

    consolidated    sigma < 1/2 of its first sigma (or of the prior's, if smaller): it learns at most 1/4 as fast as at first
    at the prior    sigma > 0.95 of the prior's: what the stream said about it is forgotten
    free            in between, as at the start: the first sigma is below the prior's unless `init_scale` says otherwise
"""

from dataclasses import dataclass
from itertools import pairwise
from math import expm1, inf, log1p
from typing import Any

import numpy as np

from mesu.engine.predict import layer_edges
from mesu.online.network import start_weights
from mesu.online.snapshot import Snapshot

CONSOLIDATED, AT_PRIOR = 0.5, 0.95
COLOURS = {"free": "#009E73", "consolidated": "#0072B2", "at the prior": "#B0B6BC"}  # Okabe and Ito


@dataclass(frozen=True)
class Layer:
    """The sigmas of one layer, or of the whole network."""

    name: str
    weights: int  # how many
    low: float  # 5 % of the sigmas are below
    median: float
    high: float  # 5 % of the sigmas are above
    free: float  # shares of the weights; they add up to 1
    consolidated: float
    at_prior: float


@dataclass(frozen=True)
class MemoryReport:
    """What an online model still remembers. `print` shows a table; `figure()` draws it."""

    rows: int  # examples learned
    memory: float  # examples remembered at most
    window: float  # of the examples learned, how many still count: each counts (1 - 1/N)^age
    prior_std: float
    layers: tuple[Layer, ...]
    all: Layer  # every weight of the network

    def __str__(self) -> str:
        lines = [
            f"{self.rows:,} examples learned; {self.window:,.0f} of them still count (memory {self.memory:,.0f})",
            "",
            f"{'layer':14}{'weights':>9}{'sigma 5 %':>11}{'median':>8}{'95 %':>8}"
            f"{'free':>8}{'consolidated':>14}{'at the prior':>14}",
        ]
        lines += [
            f"{part.name:14}{part.weights:9,}{part.low:11.3f}{part.median:8.3f}{part.high:8.3f}"
            f"{part.free:8.0%}{part.consolidated:14.0%}{part.at_prior:14.0%}"
            for part in (*self.layers, self.all)
        ]
        return "\n".join(lines)

    def figure(self) -> Any:
        """The same as a matplotlib figure: shares of the weights, and the range of sigma, by layer.

        Raises:
            ImportError: without matplotlib, which `pip install 'mesu[lab]'` brings.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError("drawing needs matplotlib: pip install 'mesu[lab]'") from error
        parts = (*self.layers, self.all)[::-1]
        lines, edge = np.arange(len(parts)), np.zeros(len(parts))
        figure = Figure(figsize=(8, 1.4 + 0.4 * len(parts)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        for kind, colour in COLOURS.items():
            share = np.array([getattr(part, kind.replace("at the ", "at_")) for part in parts])
            left.barh(lines, share, left=edge, color=colour, label=kind)
            edge += share
        left.set(xlim=(0, 1), xlabel="share of the weights", yticks=lines, yticklabels=[part.name for part in parts])
        left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
        blue, grey = COLOURS["consolidated"], COLOURS["at the prior"]
        right.hlines(lines, [part.low for part in parts], [part.high for part in parts], color=blue)
        right.plot([part.median for part in parts], lines, "o", color=blue, label="median and 5-95 %")
        right.axvline(self.prior_std, color=grey, linestyle="--", label="prior")
        right.set(xscale="log", xlabel="sigma")
        right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
        figure.suptitle(f"{self.window:,.0f} of {self.rows:,} examples still count", x=0.01, ha="left")
        return figure


def report(snapshot: Snapshot) -> MemoryReport:
    """What an online model remembers."""
    settings, (_, std, sizes) = snapshot.settings, snapshot.weights
    start = start_weights(settings, sizes).std
    layers = [
        _layer(f"{inputs} -> {outputs}", std[at:end], start[at:end], settings.prior_std)
        for (inputs, outputs), (at, end) in zip(pairwise(sizes), pairwise(layer_edges(sizes)), strict=True)
    ]
    return MemoryReport(
        rows=snapshot.rows,
        memory=settings.memory,
        window=effective_window(snapshot.rows, settings.memory),
        prior_std=settings.prior_std,
        layers=tuple(layers),
        all=_layer("all", std, start, settings.prior_std),
    )


def effective_window(rows: int, memory: float) -> float:
    """The sum of (1 - 1/N)^age over the examples learned: all of them at first, N in the end."""
    return float(rows) if memory == inf else -memory * expm1(rows * log1p(-1 / memory))


def _layer(name: str, std: np.ndarray, start: np.ndarray, prior_std: float) -> Layer:
    consolidated = std < CONSOLIDATED * np.minimum(start, prior_std)
    at_prior = std > AT_PRIOR * prior_std
    low, median, high = np.quantile(std, (0.05, 0.5, 0.95))
    shares = (float(kind.mean()) for kind in (~consolidated & ~at_prior, consolidated, at_prior))
    return Layer(name, std.size, float(low), float(median), float(high), *shares)
