"""Gaussian posteriors that learned apart from one base, merged into one: the arithmetic, and `Bayesian` networks.

With precision p = 1/sigma^2 and natural mean q = p mu, evidence adds to both. One update of MESU is (`mesu.rules.curvature`)

    p' = k p + (1 - k) pp + h        q' = k q + (1 - k) pp mp + b        k = 1 - L/N,   prior N(mp, 1/pp)

so that after M updates a worker has D = k^M of its base, 1 - D of the prior, and its own evidence:

    p_i = B_i + E_i        B_i = D_i p0 + (1 - D_i) pp        D_i = k^M_i

Workers learn side by side, so time passes once, not K times: merged is what the base has faded to, and everybody's evidence,

    p = B + sum_i E_i = B + sum_i (p_i - B_i)        B = B_i of the worker that made most updates

and the same with q. For equal M this is sum_i p_i - (K - 1) B. Without forgetting, B is the base itself. It is what one learner
has that took the rows of all K workers as batches of K, one row of each: exactly, if b does not depend on the mean. That is
so for linear Gaussian models whose posterior is diagonal. Elsewhere each worker's b is from a mean of its own.

Drawn curvatures may be negative, and so may E. No merged sigma is wider than the widest of those that are merged and of
the faded base; where that bound holds, the mean is the average of the workers', weighted by their precision.
"""

import copy
from collections.abc import Sequence
from math import inf, log1p
from typing import Any

import numpy as np
import torch

from mesu.posterior.bayesian import Bayesian
from mesu.rules.checks import whole
from mesu.rules.gaussian import Gaussian

MEANS = ("sum", "average")
ROUNDING = 1e-3  # of a precision, after thousands of updates in single precision


def kept(updates: int, memory: float, rate: float = 1.0) -> float:
    """D: what is left of a base after so many updates."""
    return 1.0 if memory == inf else float(np.exp(updates * log1p(-rate / memory)))


def faded(base: Gaussian, prior: Gaussian, share: float) -> tuple[Any, Any]:
    """Precision and natural mean of the base when this share of it is left."""
    p0, pp = share * base.std**-2.0, (1 - share) * prior.std**-2.0
    return p0 + pp, p0 * base.mean + pp * prior.mean


def merged(
    base: Gaussian, workers: Sequence[Gaussian], left: Sequence[float], prior: Gaussian, means: str = "sum"
) -> tuple[Gaussian, np.ndarray]:
    """The merged posterior, and where its sigma met the bound. Arrays in double precision.

    Args:
        base: What all workers began with.
        workers: What they have now.
        left: D of each.
        prior: What is forgotten towards.
        means: ``"sum"`` as above; ``"average"`` weighs the workers' means by their precision, and never adds up their steps.
    """
    p, q = faded(base, prior, min(left))
    least, total, weighted = p, 0.0, 0.0
    for worker, share in zip(workers, left, strict=True):
        own = worker.std**-2.0
        p_faded, q_faded = faded(base, prior, share)
        p, q = p + (own - p_faded), q + (own * worker.mean - q_faded)
        least, total, weighted = np.minimum(least, own), total + own, weighted + own * worker.mean
    clipped = p < least * (1 - ROUNDING)
    average = weighted / total
    mean = average if means == "average" else np.where(clipped, average, q / np.where(clipped, least, p))
    return Gaussian(mean, np.maximum(p, least) ** -0.5), clipped


def merge_networks(
    base: Bayesian, workers: Sequence[Bayesian], optimizer: Any, updates: Any, means: str
) -> tuple[Bayesian, float]:
    """`mesu.merge` for networks: the merged one, and the share of its weights whose sigma met the bound."""
    for number, worker in enumerate(workers):
        refuse_other(base, worker, number)
    if optimizer is None and updates is not None:
        raise ValueError("updates say how much was forgotten: give the base's optimizer too, or leave them out")
    fading = _fading(base, optimizer)
    made = _updates(updates, len(workers), forgets=any(memory < inf for memory, *_ in fading.values()))
    result, clipped, weights = copy.deepcopy(base), 0, 0
    pairs = [list(net.pairs()) for net in (base, *workers)]
    for target, (first, *others) in zip(result.pairs(), zip(*pairs, strict=True), strict=True):
        memory, rate, prior_mean, prior_std = fading.get(first.name, (inf, 1.0, 0.0, 1.0))
        prior = Gaussian(prior_mean, first.start if prior_std == "start" else prior_std)
        found, bound = merged(
            _array(first), [_array(pair) for pair in others], [kept(m, memory, rate) for m in made], prior, means
        )
        target.mean.data.copy_(torch.from_numpy(found.mean))
        target.std.data.copy_(torch.from_numpy(found.std))
        clipped, weights = clipped + int(bound.sum()), weights + bound.size
    ours = {id(part) for pair in result.pairs() for part in (pair.mean, pair.std)}
    rest = [dict([*net.named_parameters(), *net.named_buffers()]) for net in workers]
    for name, value in (*result.named_parameters(), *result.named_buffers()):
        if id(value) in ours:
            continue
        theirs = [of[name].detach() for of in rest]
        if value.is_floating_point():
            value.data.copy_(torch.stack(theirs).double().mean(0))
        elif not all(torch.equal(other, theirs[0]) for other in theirs):
            raise ValueError(f"{name!r} differs and holds whole numbers, which have no average: make it the same first")
        else:
            value.data.copy_(theirs[0])
    furthest = max(workers, key=lambda net: net.noise.step)
    result.noise.state = furthest.noise.state  # not the base's, whose noise they have had
    return result, clipped / weights


def refuse_other(base: Bayesian, worker: Any, number: int) -> None:
    """Refuse a network that cannot have begun as a copy of the base, and say how it differs."""
    if not isinstance(worker, Bayesian):
        raise TypeError(f"posteriors[{number}] is a {type(worker).__name__}, and the base a Bayesian network")
    ours, theirs = ({name: tuple(value.shape) for name, value in net.named_parameters()} for net in (base, worker))
    for name in {**ours, **theirs}:
        if ours.get(name) != theirs.get(name):
            raise ValueError(
                f"posteriors[{number}] did not begin as a copy of the base: {name!r} has shape {theirs.get(name)} there, "
                f"and {ours.get(name)} in the base"
            )
    for what, of in _SETTINGS.items():
        if of(base) != of(worker):
            raise ValueError(
                f"posteriors[{number}] did not begin as a copy of the base: {what} is {of(worker)!r} there, and "
                f"{of(base)!r} in the base"
            )
    starts = [[pair.start for pair in net.pairs()] for net in (base, worker)]
    if starts[0] != starts[1]:
        raise ValueError(
            f"posteriors[{number}] started with other sigmas than the base: let the base meet its inputs, "
            "`base.fit_inputs(x)`, before it is copied"
        )


_SETTINGS = {
    "estimator": lambda net: net.estimator,
    "likelihood": lambda net: type(net.likelihood).__name__,
    "noise_std": lambda net: getattr(net.likelihood, "noise_std", None),
    "narrowing": lambda net: net.narrowing,
    "the list of covered parameters": lambda net: [pair.name for pair in net.pairs()],
}


def _fading(base: Bayesian, optimizer: Any) -> dict[str, tuple[float, float, float, Any]]:
    """Memory, rate and prior of each parameter, from the groups of an optimiser; nothing where there is none."""
    if optimizer is None:
        return {}
    names = {id(pair.mean): pair.name for pair in base.pairs()}
    found = {}
    for group in optimizer.param_groups:
        if "memory" not in group or "prior_std" not in group:
            raise ValueError(
                f"forgetting is mesu.MESU's: give the optimiser of the base, got {type(optimizer).__name__}, or none"
            )
        rate = group.get("lr", 1.0) * group["lr_std"]
        settings = (group["memory"], rate, group["prior_mean"], group["prior_std"])
        found |= {names[id(parameter)]: settings for parameter in group["params"] if id(parameter) in names}
    if not found:
        raise ValueError("the optimiser moves no weight of the base: give the one that was made with the base")
    return found


def _updates(updates: Any, workers: int, forgets: bool) -> list[int]:
    """How many updates each worker made since the base."""
    if updates is None:
        if forgets:
            raise ValueError("say how many updates each worker made since the base: what they forgot follows from it")
        return [0] * workers
    counts = list(updates) if isinstance(updates, Sequence) else [updates] * workers
    if len(counts) != workers:
        raise ValueError(f"updates must be one number or one for each of {workers} posteriors, got {len(counts)}")
    return [whole("updates", count, 0) for count in counts]


def _array(pair: Any) -> Gaussian:
    return Gaussian(*(part.detach().to("cpu", torch.float64).numpy() for part in (pair.mean, pair.std)))
