"""Online models that learned apart from one base, merged: weights, running scales, labels, features and noise.

Weights merge as in `mesu.posterior.merging`, in the layout of the base with every class and every feature that a worker has
met, matched by name. What a worker has not met, it has no evidence of.

Running means and variances are sums too. A column's n rows have T = (n, n m, n (v + m^2)), and a row adds (1, x, x^2) to it; at
the memory's limit, n = N, it first takes off a share of 1/N. So they merge as precisions do: T = D T0 + sum_i (T_i - D_i T0).

Targets have units that follow the stream: outputs of base and workers are brought to the units of the merged targets first.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from mesu.engine.predict import Weights
from mesu.online.growth import check_count, with_inputs, with_labels
from mesu.online.network import copy_weights, first_std, layers
from mesu.online.outliers import BEGUN, MET, SEEN
from mesu.online.scaling import Columns, Scale, unknown_columns
from mesu.online.snapshot import ASSUMED_ERRORS, WINDOW, Snapshot
from mesu.online.targets import reframed, scale_of
from mesu.posterior.merging import faded, kept, merged
from mesu.rules.gaussian import Gaussian


def merge_models(base: Any, workers: Sequence[Any], means: str) -> tuple[Any, float]:
    """`mesu.merge` for the scikit-learn and River models. Also returns the share of weights whose sigma met the bound."""
    first, parameters, names = base._kept()
    kept_by = [(*_checked(base, worker, number), number) for number, worker in enumerate(workers)]
    for snapshot, theirs, number in kept_by:
        refuse_other(first, snapshot, names, theirs, number)
    width = first.weights.sizes[0]
    columns = [np.arange(width)] * len(kept_by)
    if names is not None:
        names = list(dict.fromkeys([*names, *(name for _, theirs, _ in kept_by for name in theirs)]))
        where, width = {name: i for i, name in enumerate(names)}, len(names)
        columns = [np.array([where[name] for name in theirs]) for _, theirs, _ in kept_by]
        check_count("max_features", (), names, parameters.get("max_features"))
    labels = [label for snapshot, *_ in kept_by for label in snapshot.labels]
    check_count("max_classes", first.labels, labels, parameters.get("max_classes"))
    found, clipped = merge_snapshots(first, [snapshot for snapshot, *_ in kept_by], columns, width, means)
    return type(base)._from_kept(found, parameters, names), clipped


def _checked(base: Any, worker: Any, number: int) -> tuple[Snapshot, Any]:
    if type(worker) is not type(base):
        raise TypeError(f"posteriors[{number}] is a {type(worker).__name__}, and the base a {type(base).__name__}")
    snapshot, _, names = worker._kept()
    return snapshot, names


def refuse_other(base: Snapshot, worker: Snapshot, names: Any, theirs: Any, number: int) -> None:
    """Refuse a model that cannot have begun as a copy of the base, and say how it differs."""
    start = f"posteriors[{number}] did not begin as a copy of the base: "
    for field in fields(base.settings):
        ours, its = getattr(base.settings, field.name), getattr(worker.settings, field.name)
        if ours != its:
            raise ValueError(f"{start}{field.name} is {its!r} there, and {ours!r} in the base")
    lists = [("labels", base.labels, worker.labels)]
    if (names is None) != (theirs is None):
        raise ValueError(f"{start}one has names of features, and the other has none")
    if names is not None:
        lists.append(("features", tuple(names), tuple(theirs)))
    for what, ours, its in lists:
        if its[: len(ours)] != ours:  # new ones are appended
            raise ValueError(f"{start}its {what} begin {its[: len(ours)]!r}, and those of the base are {ours!r}")
    if worker.updates < base.updates or worker.rows < base.rows:
        raise ValueError(f"{start}it has learned {worker.rows:,} rows, and the base {base.rows:,}")


def merge_snapshots(
    base: Snapshot, workers: Sequence[Snapshot], columns: Sequence[np.ndarray], width: int, means: str = "sum"
) -> tuple[Snapshot, float]:
    """The merged snapshot, and the share of weights whose sigma met the bound.

    Args:
        base: What all began with.
        workers: What they are now.
        columns: The place of each worker's columns among those of the merged model.
        width: Columns of the merged model.
        means: As in `mesu.posterior.merging.merged`.
    """
    settings = base.settings
    new_rows = [worker.updates - base.updates for worker in workers]
    labels = tuple(dict.fromkeys([*base.labels, *(label for worker in workers for label in worker.labels)]))
    now = with_labels(with_inputs(base, width), labels)
    known = [_spread(worker.inputs, at, width) for worker, at in zip(workers, columns, strict=True)]
    now = replace(
        now,
        inputs=_merged_columns(now.inputs, known, new_rows, settings.memory),
        targets=merge_scales(now.targets, [worker.targets for worker in workers], new_rows, settings.memory),
        rows=base.rows + sum(worker.rows - base.rows for worker in workers),
        updates=base.updates + sum(new_rows),
    )
    if settings.regression:
        now = replace(now, target_scale=scale_of(now.targets))
    start = _in_units(now.weights, base, now)
    left = [kept(rows, settings.memory) for rows in new_rows]
    prior = Gaussian(np.zeros_like(start.mean), prior_std(now))
    placed = []
    for worker, at, share in zip(workers, columns, left, strict=True):
        number = {label: i for i, label in enumerate(labels)}
        outputs = np.array([number[label] for label in worker.labels]) if labels else np.arange(1)
        own = _in_units(worker.weights, worker, now)
        placed.append(_placed(_faded(start, prior, share), own, at, outputs))
    found, clipped = merged(Gaussian(*start[:2]), [Gaussian(*weights[:2]) for weights in placed], left, prior, means)
    weights = Weights(found.mean.astype(settings.dtype), found.std.astype(settings.dtype), start.sizes)
    now = _with_recent(replace(now, weights=weights), base, workers, new_rows)
    return now.with_scoring_weights(weights).copied(), float(clipped.mean())


def merge_scales(base: Scale, workers: Sequence[Scale], rows: Sequence[int], memory: float) -> Scale:
    """The mean and variance of all rows together, relative to those of the base.

    Args:
        base: Of the base.
        workers: Of the workers, in the same columns.
        rows: How many rows each learned since.
        memory: At most so many count.
    """
    centre = base.mean  # sums around it: around zero, they would cancel where a mean is large and a variance small

    def sums(scale: Scale) -> np.ndarray:
        off = scale.mean - centre
        return scale.rows * np.stack([np.ones_like(off), off, scale.var + off**2])

    before = sums(base)
    left = [_left(base.rows, scale.rows, new, memory) for scale, new in zip(workers, rows, strict=True)]
    total = np.minimum.reduce(left) * before
    for scale, share in zip(workers, left, strict=True):
        total = total + (sums(scale) - share * before)
    n, first, second = total
    seen = n > 0
    off = np.divide(first, n, out=np.zeros_like(n), where=seen)
    var = np.divide(second, n, out=np.zeros_like(n), where=seen) - off**2
    found = Scale(np.where(seen, np.minimum(n, memory), 0.0), centre + off, np.maximum(var, 0.0))
    # what the base had counted was dropped by a worker: the difference is no variance
    return _chosen(var < 1e-9 * np.max([scale.var for scale in workers], 0), pooled(workers, memory), found)


def pooled(scales: Sequence[Scale], memory: float) -> Scale:
    """The mean and variance of columns as if their models had nothing in common."""
    rows, mean, var = (np.stack([scale[part] for scale in scales]) for part in range(3))
    n = rows.sum(0)
    share = np.divide(rows, n, out=np.zeros_like(rows), where=n > 0)
    centre = (share * mean).sum(0)
    return Scale(np.minimum(n, memory), centre, (share * (var + (mean - centre) ** 2)).sum(0))


def _chosen(where: np.ndarray, one: Scale, other: Scale) -> Scale:
    return Scale(*(np.where(where, a, b) for a, b in zip(one, other, strict=True)))


def _left(before: np.ndarray, after: np.ndarray, rows: int, memory: float) -> np.ndarray:
    """D of each column: nothing fades until the memory is full. A column that began anew has nothing left."""
    if memory == np.inf:
        faded = np.zeros_like(before)
    else:
        faded = np.where(after < memory, 0.0, np.maximum(rows - (memory - before), 0.0))
    share = np.exp(faded * np.log1p(-1 / memory))
    return np.where(after < before, 0.0, share)


def _merged_columns(base: Columns, workers: Sequence[Columns], rows: Sequence[int], memory: float) -> Columns:
    """The same for inputs.

    A column that began anew, or dropped values far from its others, has statistics that do not go on from the base's: those of
    the workers are pooled. Its watch is that of the worker in which it changed last, or that has seen most of it.
    """
    own = [Scale(*worker[:3]) for worker in workers]
    watches = np.stack([worker.watch for worker in workers])
    other = (watches[:, :, BEGUN] != base.watch[:, BEGUN]).any(0) | (watches[:, :, MET] > 0).any(0)
    scale = _chosen(other, pooled(own, memory), merge_scales(Scale(*base[:3]), own, rows, memory))
    last = (watches[:, :, BEGUN] * 1e15 + watches[:, :, SEEN]).argmax(0)
    watch = watches[last, np.arange(len(last))]
    return Columns(*scale, np.where((watch[:, SEEN] > 0)[:, None], watch, base.watch))


def _spread(scale: Columns, columns: np.ndarray, width: int) -> Columns:
    """The columns in the places that they have in the merged model."""
    wide = unknown_columns(width)
    for part, own in zip(wide, scale, strict=True):
        part[columns] = own
    return wide


def _in_units(weights: Weights, own: Snapshot, now: Snapshot) -> Weights:
    """Weights in double precision, with outputs in the units of another snapshot."""
    doubled = Weights(weights.mean.astype(np.float64), weights.std.astype(np.float64), weights.sizes)
    if own.settings.regression:
        reframed(doubled, own.target_scale, now.target_scale)
    return doubled


def prior_std(now: Snapshot) -> np.ndarray:
    """The sigma that each weight relaxes to."""
    std = np.empty(now.weights.std.shape)
    if now.settings.prior_std != "start":
        std[:] = now.settings.prior_std
        return std
    for inputs, parts in zip(now.weights.sizes, layers(Weights(std, std, now.weights.sizes)), strict=False):
        for part in parts:
            part.std[...] = first_std(now.settings, inputs)
    return std


def _faded(start: Weights, prior: Gaussian, share: float) -> Weights:
    """The base after updates in which nothing was learned."""
    p, q = faded(Gaussian(*start[:2]), prior, share)
    return Weights(q / p, p**-0.5, start.sizes)


def _placed(wide: Weights, own: Weights, columns: np.ndarray, outputs: np.ndarray) -> Weights:
    """The weights `wide` with a worker's in their places."""
    result = copy_weights(wide)
    last = len(wide.sizes) - 2
    for depth, ((weight, bias), (w, b)) in enumerate(zip(layers(result), layers(own), strict=True)):
        to = outputs if depth == last else np.arange(len(b.mean))
        at = columns if depth == 0 else np.arange(w.mean.shape[1])
        for name in ("mean", "std"):
            getattr(weight, name)[np.ix_(to, at)] = getattr(w, name)
            getattr(bias, name)[to] = getattr(b, name)
    return result


def _with_recent(now: Snapshot, base: Snapshot, workers: Sequence[Snapshot], new_rows: Sequence[int]) -> Snapshot:
    """The snapshot with the last uncertainties and errors of all workers, in turn, after those of the base."""

    def window(name: str, unit: Any) -> np.ndarray:
        parts = [
            unit(worker) * getattr(worker, name)[-min(new, WINDOW) :]
            for worker, new in zip(workers, new_rows, strict=True)
            if new
        ]
        longest = max(map(len, parts), default=0)
        turns = np.full((longest, len(parts)), np.nan)
        for i, part in enumerate(parts):
            turns[longest - len(part) :, i] = part
        turns = turns.reshape(-1)
        return np.concatenate([unit(base) * getattr(base, name), turns[~np.isnan(turns)]])

    epistemic = window("recent_epistemic", lambda of: 1.0)[-min(now.updates, WINDOW) :]
    now = replace(now, recent_epistemic=epistemic)
    if not now.settings.regression:
        return now
    errors = window("recent_errors", lambda of: (of.target_scale[1] / now.target_scale[1]) ** 2)
    since = [worker.updates - worker.noise_since for worker in workers if worker.noise_since > base.noise_since]
    return replace(
        now,
        recent_errors=errors[-min(now.updates + ASSUMED_ERRORS, WINDOW) :],
        recent_rows=now.recent_rows[:0],
        noise_since=now.updates - min(since) if since else base.noise_since,
    )
