"""What a step shows when learning goes wrong: looked at now and then, told once (`mesu.health`).

not from nll     sigma's gradient is negative where a curvature cannot be: the cost is not that of `Bayesian.nll`
far above        half of a parameter's sigmas are far wider than they began, and than their prior
cut              most weights would move further than `max_step` lets them, after a hundred steps
short memory     after five memories, evidence has narrowed hardly any sigma

The engine, which keeps no gradients, looks at sigmas at the end of a chunk.
"""

from collections.abc import Iterable
from math import inf
from typing import Any

import torch
from torch import Tensor

from mesu.health import counted, is_look, warn_once
from mesu.posterior import Pair
from mesu.rules import Gaussian

NEGATIVE = 0.01  # share of the weights; of a true curvature it is 0, of drawn gradients about 1/2
FAR = 4.0  # in networks that learned, no median was above 1.01 starts
MOST = 0.75  # share of the moving weights; in networks that learned, 0.52 at the 10th step and 0.35 later
SETTLED = 100  # steps after which most are no longer cut
HELD = 0.002  # share of the weights; where a stream was learned at all, 0.011 and more were below half of their start
PAST = 5  # memories


def look_at_step(optimizer: Any, number: int, group: dict, pairs: list[Pair], g: Gaussian, q: Gaussian, new: Gaussian):
    """What this step shows: the kinds of trouble and their messages.

    Args:
        optimizer: The optimiser.
        number: Of the step.
        group: The group whose pairs move.
        pairs: Those pairs.
        g: Their gradients, as they came.
        q: Their values before the step.
        new: Their values after it.
    """
    found = []
    if group["curvature"] and _share(g.std < 0) > NEGATIVE:
        found.append(
            (
                "not from nll",
                f"sigma's gradient is negative for {_share(g.std < 0):.0%} of the weights, which a curvature cannot be: "
                "estimator='linear' learns from the cost net.nll(x, y) alone. Differentiate that one (a cost of your own is "
                "a likelihood: mesu.Bayesian(..., likelihood=...)), or make the network with "
                "mesu.Bayesian(..., estimator='local') and sum the cost over the batch",
            )
        )
    if number >= SETTLED:
        sizes = [pair.std.numel() for pair in pairs]
        found += _far_above(group, pairs, new.std.split(sizes))
        found += _cut(optimizer, group, pairs, g, q, new)
    return found


def look_at_sigmas(optimizer: Any, number: int) -> None:
    """Look at the sigmas after so many updates in the compiled engine."""
    if number >= SETTLED:
        for group in optimizer.param_groups:
            params = group["params"]
            pairs = [
                Pair(*four) for four in zip(group["names"], params[::2], params[1::2], group["starts"], strict=True)
            ]
            tell(optimizer, _far_above(group, pairs, [pair.std.detach() for pair in pairs]))
        look_at_memory(optimizer, number)


def tell(optimizer: Any, found: Iterable[tuple[str, str]]) -> None:
    """Warn of what was found, each kind once."""
    for kind, message in found:
        warn_once(optimizer, kind, message)


def look_at_memory(optimizer: Any, number: int) -> None:
    """Warn if what is learned in one memory is too little to hold any weight."""
    held = weights = 0.0
    for group in optimizer.param_groups:
        memory = group.get("memory", inf)
        if memory == inf or not group["curvature"] or group.get("prior_std") != "start" or number < PAST * memory:
            return
        for std, start in zip(group["params"][1::2], group["starts"], strict=True):
            held += float((std.detach() < 0.5 * float(start)).sum())
            weights += std.numel()
    if number >= 1000 and held < HELD * weights:
        memory = optimizer.param_groups[0]["memory"]
        warn_once(
            optimizer,
            "short memory",
            f"memory={memory:g} updates is too short: after {number:,} updates {1 - held / weights:.1%} of the sigmas are "
            "near where they began, so what is learned is forgotten at once. memory counts updates, not epochs: "
            "mesu.memory_for says what suits a stream, from its length or a half-life",
        )


def _far_above(group: dict, pairs: list[Pair], stds: Iterable[Tensor]) -> list[tuple[str, str]]:
    """Sigmas far above their start; where draws are as wide as beliefs, a wider prior is the paper's, and not meant."""
    prior = group.get("prior_std", 0.0)
    number = 0.0 if isinstance(prior, str) else float(prior)
    for pair, std in zip(pairs, stds, strict=True):
        start = pair.start
        if start is None or not std.numel():
            continue
        widest = start if group["curvature"] else max(start, number)
        if _share(std > FAR * widest) > 0.5:
            remedy = (
                f"prior_std={number:g} is what they relax to: leave it out, or take prior_std='start'"
                if number > FAR * start
                else "take max_std='start', more samples, or a lower lr_std"
            )
            return [
                (
                    "far above",
                    f"half of the sigmas of {pair.name!r} are more than {FAR:g} times as wide as they began "
                    f"({start:.3g}; their median is now {float(std.detach().median()):.3g}), which makes its weights move and "
                    f"be drawn wildly: {remedy}",
                )
            ]
    return []


def _cut(
    optimizer: Any, group: dict, pairs: list[Pair], g: Gaussian, q: Gaussian, new: Gaussian
) -> list[tuple[str, str]]:
    """Steps cut by the library's own trust region; a shorter one is somebody's choice."""
    c = optimizer.constants(group)
    limit = getattr(c, "max_step", None)
    if limit is None or (getattr(c, "narrow", None) is None and limit < 1):
        return []
    cut = share(*count_cut(optimizer, group, pairs, g, q, new))
    if cut is None or cut <= MOST:
        return []
    return [
        (
            "cut",
            f"{cut:.0%} of the weights still move as far as max_step={limit:g} lets them: the cost is too steep for sigmas "
            "of this width. Standardise the inputs, and for regression the targets (or give their noise: "
            "mesu.Bayesian(..., noise_std=...)), or start narrower: init_scale=",
        )
    ]


def count_cut(
    optimizer: Any, group: dict, pairs: list[Pair], g: Gaussian, q: Gaussian, new: Gaussian
) -> tuple[int, int]:
    """How many means went as far as the trust region let them, and how many moved at all; of a rule without one, 0 and 0."""
    c = optimizer.constants(group)
    limit, narrow = getattr(c, "max_step", None), getattr(c, "narrow", None)
    if limit is None or (narrow is not None and any(pair.first is None for pair in pairs)):
        return 0, 0
    reach: Any = limit * q.std
    if narrow is not None:
        starts = torch.cat([q.std.new_full((pair.std.numel(),), float(pair.start or 1)) for pair in pairs])
        reach = reach / torch.sqrt(1 + narrow * (q.std / starts).square())
    moving = g.mean != 0
    return int(((new.mean - q.mean).abs() >= 0.99 * reach)[moving].sum()), int(moving.sum())


def share(cut: int, moving: int) -> float | None:
    """The share of the moving weights that were cut; None where nothing moved."""
    return cut / moving if moving else None


def _share(where: Tensor) -> float:
    return float(where.float().mean()) if where.numel() else 0.0


def is_due(optimizer: Any) -> int:
    """The number of this step if it is to be looked at, else 0."""
    number = counted(optimizer)
    return number if is_look(number) else 0
