"""The network beneath an online model: how its weights start, and the learner that continues from a snapshot.

Weights are flat arrays of means and standard deviations (`mesu.engine.predict.Weights`). No torch module is built until
something is to be learned.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from torch import nn

from mesu.engine.layout import share_flat
from mesu.engine.predict import Weights, layer_edges
from mesu.learners import BayesianLearner
from mesu.online.settings import Settings
from mesu.optim import MESU
from mesu.posterior import initial
from mesu.posterior.bayesian import Bayesian
from mesu.posterior.noise import Noise

MAX_STEP = 1.0  # sigmas: keeps a single extreme row from moving the weights too far


def start_weights(settings: Settings, sizes: tuple[int, ...]) -> Weights:
    """The weights of a network that has learned nothing: a function of the settings and the sizes."""
    draw = np.random.default_rng([settings.seed, *sizes])
    mean = np.empty(layer_edges(sizes)[-1], settings.dtype)
    weights = Weights(mean, np.empty_like(mean), sizes)
    for layer, parts in zip(_empty_layers(sizes), layers(weights), strict=True):
        for name, part in zip(("weight", "bias"), parts, strict=True):
            part.mean[...] = draw.uniform(-1, 1, part.mean.shape) / layer.in_features**0.5  # as torch's own start
            _, std = initial.start(layer, name, "keep", None, Noise(settings.seed), settings.init_scale)
            part.std[...] = std.numpy()
    return weights


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
        estimator="local",
        init_scale=settings.init_scale,
        seed=settings.seed,
    )
    net = net.double() if settings.dtype is np.float64 else net
    pairs = list(net.pairs())
    live = Weights(share_flat([pair.mean for pair in pairs]), share_flat([pair.std for pair in pairs]), weights.sizes)
    live.mean[:], live.std[:] = weights.mean, weights.std
    net.noise.step = updates
    optimizer = MESU(net, memory=settings.memory, prior_std=settings.prior_std, max_step=MAX_STEP)
    return BayesianLearner(net, optimizer, samples=settings.samples), live


def set_memory(learner: BayesianLearner, memory: float) -> None:
    """Let a learner remember this many updates from now on."""
    for group in learner.optimizer.param_groups:
        group["memory"] = memory


def set_noise(learner: BayesianLearner, noise_std: float) -> None:
    """Let a learner take the noise of its targets to be this."""
    learner.net.likelihood.noise_std = noise_std  # type: ignore[attr-defined]


def _empty_layers(sizes: tuple[int, ...]) -> Iterator[nn.Linear]:
    for inputs, outputs in pairwise(sizes):
        # torch's own start would be drawn from, and so change, its global generator
        yield nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
