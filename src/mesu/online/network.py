"""The network of an online model: how its weights start, and the learner that continues from a snapshot.

Weights are flat arrays of means and standard deviations (`mesu.engine.predict.Weights`). No torch module is built until
something is to be learned.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from mesu.engine.layout import share_flat
from mesu.engine.predict import Weights, layer_edges
from mesu.health import silence
from mesu.learners import BayesianLearner
from mesu.online.settings import CAUTION, LONGEST_STEP, Settings
from mesu.optim import MESU
from mesu.posterior.bayesian import Bayesian
from mesu.posterior.initial import KEEP_SCALE
from mesu.rules.bounds import drawn


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
    edges = pairwise(layer_edges(weights.sizes))
    for inputs, (start, end) in zip(weights.sizes, edges, strict=False):
        narrow = (settings.narrowing - 1) / first_std(settings, inputs) ** 2
        std[start:end] = drawn(torch.from_numpy(weights.std[start:end]), narrow).numpy()
    return weights._replace(std=std)


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


def make_learner(
    settings: Settings, weights: Weights, updates: int, noise_std: float
) -> tuple[BayesianLearner, Weights]:
    """The learner that continues from these weights bit for bit, and the flat arrays that change when it learns.

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
    pairs = list(net.pairs())
    live = Weights(share_flat([pair.mean for pair in pairs]), share_flat([pair.std for pair in pairs]), weights.sizes)
    live.mean[:], live.std[:] = weights.mean, weights.std
    net.noise.step = updates
    group: dict[str, Any] = {"params": net}
    if settings.estimator == "linear":
        # a joint step cannot overshoot
        group |= {"max_step": None} if settings.joint else {"max_step": LONGEST_STEP, "narrowing": CAUTION}
    optimizer = MESU([group], memory=settings.memory, prior_std=settings.prior_std)
    return BayesianLearner(net, optimizer, samples=settings.samples), live


def set_memory(learner: BayesianLearner, memory: float) -> None:
    """Let a learner remember this many updates from now on."""
    for group in learner.optimizer.param_groups:
        group["memory"] = memory


def set_noise(learner: BayesianLearner, noise_std: float) -> None:
    """Set the noise of the targets that a learner assumes."""
    learner.net.likelihood.noise_std = noise_std  # type: ignore[attr-defined]


def _empty_layers(sizes: tuple[int, ...]) -> Iterator[nn.Linear]:
    for inputs, outputs in pairwise(sizes):
        # torch's own start would be drawn from, and so change, its global generator
        yield nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
