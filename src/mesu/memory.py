"""How long to remember, and what is still remembered: the one knob `memory`, and how the sigmas of each layer have changed.

A weight's variance is its learning rate, so sigma tells how fast it still learns:

    consolidated    sigma < 1/2 of its first sigma (or of the prior's, if smaller): it learns at most 1/4 as fast as at first
    at the prior    sigma > 0.95 of the prior's: nothing is remembered of it, not yet or no longer
    free            in between
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from math import expm1, inf, log, log1p
from typing import Any

import numpy as np
import torch

from mesu.rules import checks

CONSOLIDATED, AT_PRIOR = 0.5, 0.95
COLOURS = {"free": "#009E73", "consolidated": "#0072B2", "at the prior": "#B0B6BC"}  # Okabe and Ito


def memory_for(
    *,
    half_life: float | timedelta | None = None,
    every: timedelta | None = None,
    rows: int | None = None,
    batch: int = 1,
) -> float:
    """The `memory` that suits a stream, from what can be said about it: give a half-life, or the stream's length.

    Args:
        half_life: After how many rows what was learned from a row shall count half; or after which time, with `every`.
        every: How much time passes from row to row, on average.
        rows: Length of a stream that does not drift: at its end, the first row still counts 37 %.
        batch: Rows an update: `memory` counts updates. It is 1 for the estimators and for River.

    Example:
        >>> round(mesu.memory_for(half_life=7_000))
        10099
        >>> from datetime import timedelta
        >>> round(mesu.memory_for(half_life=timedelta(weeks=1), every=timedelta(minutes=1)))
        14543
        >>> mesu.memory_for(rows=60_000, batch=32)
        1875.0
    """
    if (half_life is None) == (rows is None):
        raise ValueError("give either a half_life or the rows of the stream")
    if isinstance(half_life, timedelta):
        if every is None or every <= timedelta(0):
            raise ValueError(f"a half_life that is a time needs the time from row to row, got every={every!r}")
        half_life = half_life / every
    elif every is not None:
        raise ValueError(f"every={every!r} goes with a half_life that is a time, got half_life={half_life!r}")
    batch = checks.whole("batch", batch)
    if half_life is None:
        memory = checks.whole("rows", rows) / batch
    else:
        memory = -1 / expm1(-log(2) * batch / checks.positive("half_life", half_life))
    if memory <= 1:
        raise ValueError(
            f"that is a memory of {memory:.3g} updates: it must be greater than 1, or all is forgotten at once"
        )
    return memory


def effective_window(updates: int, memory: float) -> float:
    """The sum of (1 - 1/N)^age over the updates: all of them at first, N in the end."""
    return float(updates) if memory == inf else -memory * expm1(updates * log1p(-1 / memory))


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
    prior: float  # the median of the sigmas that they relax to


@dataclass(frozen=True)
class MemoryReport:
    """What a network still remembers. `print` shows a table; `figure()` draws it."""

    rows: int | None  # examples or updates learned, if it is known
    memory: float  # how many are remembered at most
    window: float | None  # of those learned, how many still count: each counts (1 - 1/N)^age
    prior_std: float | str  # "start": where each weight began
    layers: tuple[Layer, ...]
    all: Layer  # every weight of the network
    unit: str = "examples"

    def __str__(self) -> str:
        width = max(14, *(len(part.name) + 1 for part in self.layers))
        lines = [
            self._head(),
            "",
            f"{'layer':{width}}{'weights':>9}{'sigma 5 %':>11}{'median':>8}{'95 %':>8}"
            f"{'free':>8}{'consolidated':>14}{'at the prior':>14}",
        ]
        lines += [
            f"{part.name:{width}}{part.weights:9,}{part.low:11.3f}{part.median:8.3f}{part.high:8.3f}"
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
        right.plot([part.prior for part in parts], lines, "|", color=grey, markersize=16, label="prior")
        right.set(xscale="log", xlabel="sigma")
        right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
        figure.suptitle(self._head(), x=0.01, ha="left")
        return figure

    def _head(self) -> str:
        if self.rows is None or self.window is None:
            return f"{self.memory:,.0f} {self.unit} are remembered at most"
        return f"{self.rows:,} {self.unit} learned; {self.window:,.0f} of them still count (memory {self.memory:,.0f})"


def memory_report(net: Any, optimizer: Any, updates: int | None = None) -> MemoryReport:
    """What a `Bayesian` network still remembers, whatever its layers.

    Args:
        net: The network.
        optimizer: The `MESU` that moves it.
        updates: How often it was updated, if you know: the report then says how many of them still count.

    Example:
        >>> net = mesu.Bayesian(nn.Linear(4, 3), seed=0)
        >>> print(mesu.memory_report(net, mesu.MESU(net, memory=1000), updates=0))
        0 updates learned; 0 of them still count (memory 1,000)
        <BLANKLINE>
        layer           weights  sigma 5 %  median    95 %    free  consolidated  at the prior
        (the module)         15      1.500   1.500   1.500      0%            0%          100%
        all                  15      1.500   1.500   1.500      0%            0%          100%
    """
    memories, parts, words, rates = set(), [], set(), set()
    for group in optimizer.param_groups:
        if "memory" not in group or "prior_std" not in group:
            raise ValueError(
                f"a memory report is one of mesu.MESU, got {type(optimizer).__name__}, which has no memory"
            )
        memories.add(float(group["memory"]))
        words.add(group["prior_std"])
        rates.add(float(group.get("lr", 1.0)) * float(group.get("lr_std", 1.0)))
        ours = {id(parameter) for parameter in group["params"]}
        parts += [_of_pair(pair, group["prior_std"]) for pair in net.pairs() if id(pair.mean) in ours]
    if not parts:
        raise ValueError("the optimiser moves no weight of this network: make it with the network that is reported on")
    if len(memories) > 1:
        raise ValueError(
            f"the optimiser's groups have different memories, {sorted(memories)}: report on them one by one"
        )
    memory = memories.pop()
    named = _by_layer(parts)
    return MemoryReport(
        rows=updates,
        memory=memory,
        window=_window(updates, memory, rates),
        prior_std=words.pop() if len(words) == 1 else "mixed",
        layers=tuple(named[:-1]),
        all=named[-1],
        unit="updates",
    )


def _window(updates: int | None, memory: float, rates: set[float]) -> float | None:
    """How many updates still count: each forgets lr * lr_std / N. None where that is not the same everywhere."""
    if updates is None or len(rates) != 1:
        return None
    (rate,) = rates
    return effective_window(checks.whole("updates", updates, 0), memory / rate if rate else inf)


def layers_of(net: Any) -> list[Layer]:
    """The sigmas of a `Bayesian` network's layers, and of "all" of it at the end, for a rule that never forgets."""
    return _by_layer([_of_pair(pair, inf) for pair in net.pairs()])


def _by_layer(parts: list[tuple[str, Sequence[np.ndarray]]]) -> list[Layer]:
    """A line for each layer, and one for all of them at the end."""
    groups = [(name, list(these)) for name, these in groupby(parts, key=lambda part: part[0])]
    return [
        layer_of(name, *map(np.concatenate, zip(*(arrays for _, arrays in these), strict=True)))
        for name, these in [*groups, ("all", parts)]
    ]


def layer_of(name: str, std: np.ndarray, start: np.ndarray, prior: np.ndarray) -> Layer:
    """A line of the report.

    Args:
        name: Of the layer.
        std: The sigmas of its weights.
        start: The sigmas that they began with.
        prior: The sigmas that they relax to.
    """
    consolidated = std < CONSOLIDATED * np.minimum(start, prior)
    at_prior = std > AT_PRIOR * prior
    low, median, high = np.quantile(std, (0.05, 0.5, 0.95))
    shares = (float(kind.mean()) for kind in (~consolidated & ~at_prior, consolidated, at_prior))
    return Layer(name, std.size, float(low), float(median), float(high), *shares, prior=float(np.median(prior)))


def _of_pair(pair: Any, prior_std: float | str) -> tuple[str, Sequence[np.ndarray]]:
    std = pair.std.detach().to("cpu", torch.float64).reshape(-1).numpy()
    start = pair.start
    if start is None:
        raise ValueError(f"the sigma that {pair.name!r} started with is not known: report on a mesu.Bayesian")
    prior = start if prior_std == "start" else float(prior_std)
    name = pair.name.rpartition(".")[0] or "(the module)"
    return name, (std, np.full(std.shape, start), np.full(std.shape, prior))
