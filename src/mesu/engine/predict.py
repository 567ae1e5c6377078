"""Predictions of a perceptron for the online models: outputs drawn in local form, compiled, the same noise for every row.

    a_ku = sum_j mu_kj h_ju + e_ku sqrt( sum_j sigma_kj^2 h_ju^2 )          unit k in draw u; e is the same for all rows

So a prediction is a function of the weights and of its own row, to the bit: neither the rows around it nor their order change
it, and predicting twice gives the same. Each row alone sees draws with the right distribution (eq. 11).

`mesu.engine.predict_rows` draws other noise for each row instead: it serves `PosteriorEngine.draw`, where averages over many
rows must not share the luck of one set of draws.
"""

from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numba
import numpy as np

from mesu.engine.compiled import FLAGS
from mesu.engine.kernels import U, exponential
from mesu.posterior.results import Prediction, RegressionPrediction


class Weights(NamedTuple):
    """The Gaussian weights of a perceptron with biases and ReLU, laid out layer by layer: weights, then biases."""

    mean: np.ndarray
    std: np.ndarray
    sizes: tuple[int, ...]  # units of each layer, inputs first


def layer_edges(sizes: tuple[int, ...]) -> list[int]:
    """Where each layer begins in the flat arrays, and where the last one ends."""
    return [0, *accumulate((inputs + 1) * outputs for inputs, outputs in pairwise(sizes))]


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
    total, aleatoric = np.empty(len(x)), np.empty(len(x))
    _classify(probs, total, aleatoric, *_arguments(weights, x, samples))
    aleatoric = np.clip(aleatoric, 0.0, total)  # Jensen's inequality, past rounding
    return Prediction(probs, total, aleatoric, total - aleatoric)


def regress(weights: Weights, x: np.ndarray, samples: int, noise_var: float) -> RegressionPrediction:
    """The mean of one output over `samples` draws, observed with a noise of variance `noise_var`."""
    mean, epistemic = np.empty(len(x)), np.empty(len(x))
    _regress(mean, epistemic, *_arguments(weights, x, samples))
    return RegressionPrediction(mean, epistemic + noise_var, np.full(len(x), noise_var), epistemic)


def _arguments(weights: Weights, x: np.ndarray, samples: int) -> Any:
    mean, std, sizes = weights
    dtype = mean.dtype.type
    # three more lines than units: for a layer's variances, and for the sums of a softmax
    room = np.zeros((2, max(sizes[1:]) + 3, samples), dtype)
    return mean, std, np.array(sizes), np.ascontiguousarray(x, dtype), _noise(sum(sizes[1:]), samples, dtype), *room


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


@numba.njit(cache=True, **FLAGS)
def _classify(probs, total, aleatoric, mean, std, sizes, x, noise, h, above):
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
        aleatoric[row] = entropy / draws


@numba.njit(cache=True, **FLAGS)
def _regress(means, variances, mean, std, sizes, x, noise, h, above):
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
