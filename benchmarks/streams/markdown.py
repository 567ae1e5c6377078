"""The tables of docs/streams.md, from the results."""

from collections.abc import Callable, Collection
from statistics import fmean, stdev

import numpy as np
from benchmarks.streams.data import GROUPS
from benchmarks.streams.models import MODELS, name_of
from benchmarks.streams.table import Cost, Result

Results = dict[tuple[str, str, int], Result]
Costs = dict[tuple[str, str], Cost]
NUMBERS = GROUPS["Real streams, numbers"] + GROUPS["Numbers by a formula"]
NOT_RUN = "-"
CHANGING = ("permuted", "recurring")
TASK_BLOCKS = 36  # of 50 rows, the last a little shorter: the 1,797 digits


def tables(results: Results, costs: Costs) -> str:
    """Scores, log losses, times and sizes of each group of streams."""
    parts = []
    for group, streams in GROUPS.items():
        there = [name for name in streams if any(key[0] == name for key in results)]
        if not there:
            continue
        numbers = there[0] in NUMBERS
        parts += [f"### {group}", "Mean absolute error" if numbers else "Accuracy, %"]
        parts.append(_table(there, results, lambda s, m: _spread(results, s, m, "score", 1 if s in NUMBERS else 100)))
        if not numbers:
            parts += [
                "Log loss, nats a row",
                _table(there, results, lambda s, m: _spread(results, s, m, "log_loss", 1)),
            ]
        whole = [name for name in there if name in CHANGING and _is_whole(results, name)]
        if whole:
            parts.append("Right in the first 200 rows of each task, %")
            parts.append(_table(whole, results, lambda s, m: _early(of(results, s, m))))
        parts += ["us a row / KiB", _table(there, results, lambda s, m: _cost(results, costs, s, m))]
    return "\n\n".join(parts)


def mean(results: Collection[Result], field: str) -> float:
    """Of one column over seeds."""
    return fmean(getattr(result, field) for result in results)


def of(results: Results, stream: str, model: str) -> list[Result]:
    """One model on one stream, all seeds."""
    return [result for (s, m, _), result in results.items() if (s, m) == (stream, model)]


def _table(streams: list[str], results: Results, cell: Callable[[str, str], str]) -> str:
    lines = [f"| | {' | '.join(streams)} |", "|---" * (len(streams) + 1) + "|"]
    for model in MODELS:
        if any(of(results, stream, model) for stream in streams):
            label = name_of(model, streams[0] in NUMBERS)
            lines.append(f"| {label} | {' | '.join(cell(stream, model) for stream in streams)} |")
    return "\n".join(lines)


def _is_whole(results: Results, stream: str) -> bool:
    """Whether its tasks were not cut short."""
    return all(result.rows % 1_797 == 0 for key, result in results.items() if key[0] == stream)


def _early(found: list[Result]) -> str:
    if not found:
        return NOT_RUN
    tasks = np.mean([result.blocks for result in found], 0).reshape(-1, TASK_BLOCKS)
    return ", ".join(f"{100 * right / 200:.0f}" for right in tasks[:, :4].sum(1))


def _spread(results: Results, stream: str, model: str, field: str, times: float) -> str:
    values = [times * getattr(result, field) for result in of(results, stream, model)]
    if not values:
        return NOT_RUN
    digits = 1 if times == 100 or fmean(values) >= 10 else 2
    around = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):,.{digits}f}{around}"


def _cost(results: Results, costs: Costs, stream: str, model: str) -> str:
    found, cost = of(results, stream, model), costs.get((stream, model))
    if not found:
        return NOT_RUN
    time, kib = f"{cost.us_per_row:,.0f}" if cost else "?", mean(found, "kib")
    return f"{time} / {kib:,.0f}" if kib >= 10 else f"{time} / {kib:.1f}"
