"""The network of an online model: how its weights start, and the learner that continues from a snapshot.

Weights are flat arrays of means and standard deviations (`mesu.engine.predict.Weights`). No torch module is built until
something is to be learned.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from torch import nn

from mesu.engine.compiled import in_precision, on_disk, precision_of
from mesu.engine.plan import Plan, compiled_constants
from mesu.engine.predict import Weights, layer_edges
from mesu.engine.run import PosteriorEngine
from mesu.health import silence
from mesu.learners import BayesianLearner
from mesu.online.settings import CAUTION, LONGEST_STEP, Settings
from mesu.optim import MESU
from mesu.posterior.bayesian import Bayesian
from mesu.posterior.initial import KEEP_SCALE
from mesu.rules.bounds import drawn

EXACT: Any = {"error_model": "numpy", "nogil": True}


def start_weights(settings: Settings, sizes: tuple[int, ...]) -> Weights:
    """The weights of a network that has learned nothing: a function of the settings and the sizes."""
    draw = np.random.default_rng([settings.seed, *sizes])
    mean = np.empty(layer_edges(sizes)[-1], settings.dtype)
    weights = Weights(mean, np.empty_like(mean), sizes)
    for inputs, parts in zip(sizes, layers(weights), strict=False):
        for part in parts:
            part.mean[...] = draw.uniform(-1, 1, part.mean.shape) / inputs**0.5  # as torch's own start
            part.std[...] = first_std(settings, inputs)
    return weights


def first_std(settings: Settings, inputs: int) -> float:
    """The first sigma of the weights and biases of a layer with so many inputs: that of `mesu.Bayesian`."""
    return settings.init_scale * KEEP_SCALE / inputs**0.5


def drawn_weights(settings: Settings, weights: Weights) -> Weights:
    """The weights with the sigmas that they are drawn with, at first smaller than the posterior's."""
    if settings.narrowing == 1:
        return weights
    std = np.empty_like(weights.std)
    _fill_drawn(weights.std, *_narrowing(settings, weights.sizes), std)
    return weights._replace(std=std)


@lru_cache(maxsize=32)
def _narrowing(settings: Settings, sizes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Where each layer begins in the flat arrays, and how much narrower its weights are drawn."""
    narrow = [(settings.narrowing - 1) / first_std(settings, inputs) ** 2 for inputs in sizes[:-1]]
    return np.array(layer_edges(sizes)), np.array(narrow, settings.dtype)


def _narrower(std, narrow):
    """`mesu.rules.bounds.drawn`; compiled code only."""
    raise NotImplementedError


@overload(_narrower, jit_options=EXACT)
def _narrower_typed(std, narrow):
    return in_precision(drawn, precision_of(std))


@on_disk(flags=EXACT)
def _fill_drawn(std, edges, narrow, into):
    """Nothing is fused or reordered: the bits do not depend on where in the array a weight lies."""
    for layer in range(len(narrow)):
        for i in range(edges[layer], edges[layer + 1]):
            into[i] = _narrower(std[i], narrow[layer])


def grown_weights(settings: Settings, weights: Weights, inputs: int, outputs: int) -> Weights:
    """The same network with more inputs or outputs: new weights as at a start, all others as they are."""
    grown = start_weights(settings, (inputs, *weights.sizes[1:-1], outputs))
    for old_parts, new_parts in zip(layers(weights), layers(grown), strict=True):
        for old, new in zip(old_parts, new_parts, strict=True):
            known = tuple(slice(length) for length in old.mean.shape)
            new.mean[known], new.std[known] = old.mean, old.std
    return grown


def layers(weights: Weights) -> Iterator[tuple[Weights, Weights]]:
    """Each layer's weights ``[outputs, inputs]`` and biases ``[outputs]``, as views: writing to them writes to the network."""
    for (inputs, outputs), (start, end) in zip(
        pairwise(weights.sizes), pairwise(layer_edges(weights.sizes)), strict=True
    ):
        bias, shape = end - outputs, (outputs, inputs)
        mean, std = weights.mean, weights.std
        yield (
            Weights(mean[start:bias].reshape(shape), std[start:bias].reshape(shape), (inputs, outputs)),
            Weights(mean[bias:end], std[bias:end], (outputs,)),
        )


def copy_weights(weights: Weights) -> Weights:
    """The same weights in arrays of their own."""
    return Weights(weights.mean.copy(), weights.std.copy(), weights.sizes)


class Learner(NamedTuple):
    """What moves the weights of an online model: made from a snapshot, and good until the network grows."""

    learner: BayesianLearner
    live: Weights  # the flat arrays that change when it learns
    engine: PosteriorEngine
    plan: Plan

    def remembering(self, memory: float) -> "Learner":
        """The same, with a memory of this many updates."""
        for group in self.learner.optimizer.param_groups:
            group["memory"] = memory
        return self._replace(plan=self.engine.plan())

    def with_noise(self, noise_std: float) -> "Learner":
        """The same, with another noise of the targets."""
        self.learner.net.likelihood.noise_std = noise_std  # type: ignore[attr-defined]
        constants = compiled_constants(self.learner.optimizer, self.live.mean.dtype.type)
        return self._replace(plan=self.plan.counting(*constants, noise_std**-2))

    def learn(self, x: np.ndarray, y: np.ndarray, counts: np.ndarray | None = None) -> None:
        """Learn standardised rows, with numbers of classes, or with scaled targets in the precision of the weights.

        Args:
            x: Inputs ``[T, d]``.
            y: Classes or targets.
            counts: How many times each row's evidence counts, if not once; positive.

        Raises:
            StepRefused: if the weights cannot be used afterwards.
        """
        x = np.ascontiguousarray(x, self.live.mean.dtype)  # compiled code takes that for granted
        if counts is None:
            self._run(self.plan, x, y)
            return
        changes = np.flatnonzero(np.diff(counts)) + 1
        plans: dict[float, Plan] = {}
        for start, end in pairwise([0, *changes.tolist(), len(x)]):
            times = float(counts[start])
            if times not in plans:
                plans[times] = self.engine.counting(self.plan, times)
            self._run(plans[times], x[start:end], y[start:end])

    def _run(self, plan: Plan, x: np.ndarray, y: np.ndarray) -> None:
        if not plan.run(x, y):
            raise self.engine.refusal(x)
        self.engine.learned(x, y)


def make_learner(settings: Settings, weights: Weights, updates: int, noise_std: float) -> Learner:
    """The learner that continues from these weights bit for bit.

    Args:
        settings: What the model was made with.
        weights: Copied, not shared.
        updates: How often the weights have been updated: the noise of the next update follows from it.
        noise_std: Of the targets, for regression.
    """
    parts: list[nn.Module] = []
    for layer in _empty_layers(weights.sizes):
        parts += [layer, nn.ReLU()]
    net = Bayesian(
        nn.Sequential(*parts[:-1]),
        likelihood="gaussian" if settings.regression else "categorical",
        noise_std=noise_std,
        estimator="joint" if settings.joint else settings.estimator,
        init_scale=settings.init_scale,
        narrowing=settings.narrowing,
        input_scale=1.0,
        seed=settings.seed,
    )
    net = net.double() if settings.dtype is np.float64 else net
    if settings.standardise:  # a stream with outliers may well be small: nobody could do anything about it
        silence(net, "size of inputs")
    net.noise.step = updates
    group: dict[str, Any] = {"params": net, "update": "exact"}  # which the engine runs, however deep the network
    if settings.estimator == "linear":
        # a joint step cannot overshoot
        group |= {"max_step": None} if settings.joint else {"max_step": LONGEST_STEP, "narrowing": CAUTION}
    optimizer = MESU([group], memory=settings.memory, prior_std=settings.prior_std)
    learner = BayesianLearner(net, optimizer, samples=settings.samples)
    assert learner.engine is not None  # it runs all networks that are made here
    plan = learner.engine.plan()
    live = Weights(plan.mean, plan.std, weights.sizes)
    live.mean[:], live.std[:] = weights.mean, weights.std
    return Learner(learner, live, learner.engine, plan)


def _empty_layers(sizes: tuple[int, ...]) -> Iterator[nn.Linear]:
    for inputs, outputs in pairwise(sizes):
        # torch's own start would be drawn from, and so change, its global generator
        yield nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
