"""Predictions of a perceptron, compiled: outputs drawn in local form (eq. 11), with the noise laid out in one of two ways.

    a_ku = sum_j mu_kj h_ju + e_ku sqrt( sum_j sigma_kj^2 h_ju^2 )          unit k in draw u

**Noise shared by rows** (`classify` and `regress`, for online models): e is the same for all rows. A prediction is then a
function of the weights and of its own row, to the bit: neither the rows around it nor their order change it, and predicting
twice gives the same. Each row alone sees draws with the right distribution.

**Noise by row** (`build`, for `PosteriorEngine.draw`): e differs from row to row and is a function of the seed and the row's
number. Averages over many rows then do not share the luck of one set of draws. Rows are worked through in blocks and by several
threads; neither blocks nor threads change a bit, since each row has its own noise and its own sums.
"""

from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numba
import numpy as np

from mesu.engine.compiled import FLAGS, on_disk
from mesu.engine.hidden_layers import PANEL, TILE, moments, whole, words
from mesu.engine.kernels import U, add_biases, exponential, nonlinear
from mesu.engine.noise import even, fill_normals
from mesu.posterior.results import Prediction, RegressionPrediction

MOST, LEAST = 64, 4  # rows in a block: they share the work of laying out the weights
ROOM = 1 << 19  # most activations of one layer that a block may have


class Weights(NamedTuple):
    """The Gaussian weights of a perceptron with biases and ReLU, laid out layer by layer: weights, then biases."""

    mean: np.ndarray
    std: np.ndarray
    sizes: tuple[int, ...]  # units of each layer, inputs first


def layer_edges(sizes: tuple[int, ...]) -> list[int]:
    """Where each layer begins in the flat arrays, and where the last one ends."""
    return [0, *accumulate((inputs + 1) * outputs for inputs, outputs in pairwise(sizes))]


# -- noise shared by rows ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def _noise(units: int, samples: int, dtype: type) -> np.ndarray:
    """The noise shared by all rows. Each unit's draws have mean 0 and variance 1 exactly, which removes most of the scatter."""
    e = np.random.default_rng(0).standard_normal((units, samples))
    e -= e.mean(1, keepdims=True)
    e /= e.std(1, keepdims=True)
    return np.ascontiguousarray(e, dtype)


def classify(weights: Weights, x: np.ndarray, samples: int) -> Prediction:
    """Class probabilities of rows, averaged over `samples` draws."""
    probs = np.empty((len(x), weights.sizes[-1]))
    total, aleatoric, epistemic = np.empty(len(x)), np.empty(len(x)), np.empty(len(x))
    _classify(probs, total, aleatoric, epistemic, *_arguments(weights, x, samples))
    return Prediction(probs, total, aleatoric, epistemic)


def regress(weights: Weights, x: np.ndarray, samples: int, noise_var: float) -> RegressionPrediction:
    """The mean of one output over `samples` draws, observed with a noise of variance `noise_var`."""
    mean, epistemic = np.empty(len(x)), np.empty(len(x))
    _regress(mean, epistemic, *_arguments(weights, x, samples))
    return RegressionPrediction(mean, epistemic + noise_var, np.full(len(x), noise_var), epistemic)


def _arguments(weights: Weights, x: np.ndarray, samples: int) -> Any:
    mean, std, sizes = weights
    dtype = mean.dtype.type
    # three more lines than units: for a layer's variances, and for the sums of a softmax
    room = np.empty((2, max(sizes[1:]) + 3, samples), dtype)
    return mean, std, *_prepared(sizes, samples, dtype), np.ascontiguousarray(x, dtype), room[0], room[1]


@lru_cache(maxsize=32)
def _prepared(sizes: tuple[int, ...], samples: int, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    return np.array(sizes), _noise(sum(sizes[1:]), samples, dtype)


@numba.njit(**FLAGS)
def _draw(mean, std, sizes, x, row, noise, h, above):
    """Draw the outputs of one row, a line for each unit. Returns the buffer that holds them, then the one that is free."""
    zero, at, first = mean.dtype.type(0), 0, 0
    draws, last = noise.shape[1], len(sizes) - 2
    for layer in range(last + 1):
        n, k = sizes[layer], sizes[layer + 1]
        bias = at + n * k
        for unit in range(k):
            weight, line = at + unit * n, above[unit]
            m, v = mean[bias + unit], std[bias + unit] * std[bias + unit]
            if layer == 0:  # its inputs are the same in every draw
                for i in range(n):
                    product = std[weight + i] * x[row, i]
                    m += mean[weight + i] * x[row, i]
                    v += product * product
                s = np.sqrt(v)
                for u in range(U(draws)):
                    line[u] = m + s * noise[first + unit, u]
            else:
                variance = above[len(above) - 1]
                for u in range(U(draws)):
                    line[u], variance[u] = m, v
                for i in range(n):
                    mu, var = mean[weight + i], std[weight + i] * std[weight + i]
                    for u in range(U(draws)):
                        line[u] += mu * h[i, u]
                        variance[u] += var * h[i, u] * h[i, u]
                for u in range(U(draws)):
                    line[u] += np.sqrt(variance[u]) * noise[first + unit, u]
            if layer < last:
                for u in range(U(draws)):
                    line[u] = max(line[u], zero)
        at, first = bias + k, first + k
        h, above = above, h
    return h, above


@on_disk()
def _classify(probs, total, aleatoric, epistemic, mean, std, sizes, noise, x, h, above):
    classes, draws = sizes[-1], noise.shape[1]
    for row in range(len(x)):
        scores, spare = _draw(mean, std, sizes, x, row, noise, h, above)
        top, norm, moment = spare[0], spare[1], spare[2]
        for u in range(U(draws)):
            top[u], norm[u], moment[u] = scores[0, u], 0, 0
        for k in range(1, classes):
            for u in range(U(draws)):
                top[u] = max(top[u], scores[k, u])
        for k in range(classes):
            line = scores[k]
            for u in range(U(draws)):
                score = line[u] - top[u]
                line[u] = exponential(score)
                norm[u] += line[u]
                moment[u] += line[u] * score
        entropy, certain = 0.0, 0.0
        for u in range(U(draws)):
            entropy += np.log(np.float64(norm[u])) - moment[u] / norm[u]  # H = log Z - E[score]
        for k in range(classes):
            p = 0.0
            for u in range(U(draws)):
                p += scores[k, u] / norm[u]
            probs[row, k] = p
            certain += p
        mixed = 0.0
        for k in range(classes):
            p = probs[row, k] / certain
            probs[row, k] = p
            if p > 0.0:
                mixed -= p * np.log(p)
        total[row] = mixed
        # Jensen's inequality, past rounding; NaN stays NaN
        mean_entropy = entropy / draws
        mean_entropy = 0.0 if mean_entropy < 0.0 else mean_entropy
        aleatoric[row] = mixed if mean_entropy > mixed else mean_entropy
        epistemic[row] = mixed - aleatoric[row]


@on_disk()
def _regress(means, variances, mean, std, sizes, noise, x, h, above):
    draws = noise.shape[1]
    for row in range(len(x)):
        out, _ = _draw(mean, std, sizes, x, row, noise, h, above)
        centre, spread = 0.0, 0.0
        for u in range(U(draws)):
            centre += out[0, u]
        centre /= draws
        for u in range(U(draws)):
            spread += (out[0, u] - centre) ** 2
        means[row], variances[row] = centre, spread / draws


# -- noise by row -----------------------------------------------------------------------------------------------------


class Scratch(NamedTuple):
    """Buffers for a block of rows."""

    block: int  # rows in it
    noise: Any  # of every row, sample and unit
    h: Any  # activations of every sample of every row
    m: Any  # means and standard deviations of pre-activations
    v: Any
    down: Any  # as in `mesu.engine.kernels.Work`
    down2: Any
    h2: Any
    tile: Any
    tile2: Any
    marks: Any


def scratch(sizes: tuple[int, ...], samples: int, dtype) -> Scratch:
    """Buffers to predict with a network of these sizes."""
    above, block = sizes[1:], MOST
    while block > LEAST and block * samples * max(above) > ROOM:
        block //= 2
    rows = block * samples
    inputs = max(block * sizes[0], rows * max(above))
    lengths = {
        "noise": block * even(samples * sum(above)),
        "h": rows * max(above),
        "m": rows * max(above),
        "v": rows * max(above),
        "down": rows * whole(max(above)),
        "down2": rows * whole(max(above)),
        "h2": inputs,
        "tile": TILE * PANEL,
        "tile2": TILE * PANEL,
    }
    bits = np.zeros(max(block * words(sizes[0]), rows * words(max(above))), np.uint64)
    return Scratch(block, **{name: np.zeros(length, dtype) for name, length in lengths.items()}, marks=bits)


@numba.njit(**FLAGS)
def add_noise(net, layer, count, work, different):
    """Pre-activations A = m + s e for every sample of `count` rows.

    There is one m and v for each row (`different` = count, the first layer) or for each sample and row.
    """
    k, at, zero = net.sizes[layer + 1], net.units[layer], work.m.dtype.type(0)
    normals = len(work.noise) // work.block
    for j in range(U(different * k)):
        work.v[j] = np.sqrt(max(work.v[j], zero))
    for s in range(net.samples):
        for b in range(count):
            row, noise = U((s * count + b) * k), U(b * normals + s * net.units[-1] + at)
            of = U(b * k) if different == count else row
            for j in range(U(k)):
                work.h[row + j] = work.m[of + j] + work.v[of + j] * work.noise[noise + j]


def build(label: str) -> Any:
    """The compiled loop; the label is the name of its compiled form on disk."""

    @on_disk(label)
    def predict(mean, std, net, x, seed, first_row, out, work):
        """Fill ``out[samples, rows, outputs]`` with drawn outputs; `first_row` is the number of the first row."""
        flat, samples, normals = x.reshape(-1), net.samples, len(work.noise) // work.block
        for start in range(0, len(x), work.block):
            count = min(work.block, len(x) - start)
            for b in range(count):
                fill_normals(work.noise[b * normals : (b + 1) * normals], seed, first_row + start + b)
            for layer in range(len(net.sizes) - 1):
                n, k = net.sizes[layer], net.sizes[layer + 1]
                # the inputs of the first layer are the same in every sample
                rows = samples * count if layer > 0 else count
                if layer > 0:
                    nonlinear(work.h, 0, rows * n, net.tanh)
                    moments(mean, std, net.weights[layer], n, k, rows, work.h, 0, work.m, work.v, work)
                else:
                    moments(mean, std, net.weights[0], n, k, rows, flat, start * n, work.m, work.v, work)
                if net.has_bias:
                    add_biases(mean, std, net.biases[layer], k, rows, work.m, work.v)
                add_noise(net, layer, count, work, rows)
            for s in range(samples):
                for b in range(count):
                    for j in range(net.sizes[-1]):
                        out[s, start + b, j] = work.h[(s * count + b) * net.sizes[-1] + j]

    return predict
