"""Compiled prediction: outputs drawn for every row (local form), rows spread over threads.

Each row has noise of its own, a function of the seed and the row's number, so neither threads nor chunks change a bit.
"""

import numba
import numpy as np

from mesu.engine.compiled import FLAGS, MAKING_ARRAYS
from mesu.engine.noise import fill_normals
from mesu.engine.rows import U, nonlinear


@numba.njit(**FLAGS)
def moments(mean, std, net, layer, h, h2, m, s):
    """Mean and standard deviation of one layer's pre-activations for one input."""
    n, k, at, bias = U(net.sizes[layer]), U(net.sizes[layer + 1]), U(net.weights[layer]), U(net.biases[layer])
    zero = mean.dtype.type(0)
    for unit in range(k):
        weight = at + unit * n
        total, var = zero, zero
        for j in range(n):
            total += h[j] * mean[weight + j]
            var += h2[j] * (std[weight + j] * std[weight + j])
        if net.has_bias:
            total += mean[bias + unit]
            var += std[bias + unit] * std[bias + unit]
        m[unit] = total
        s[unit] = np.sqrt(var)


def build(fingerprint: str):
    """The loop; `fingerprint` of the sources is part of it, so that a change is compiled again."""

    @numba.njit(cache=True, **MAKING_ARRAYS)
    def predict(mean, std, net, x, seed, first_row, out):
        """Fill ``out[samples, rows, outputs]`` with drawn outputs; `first_row` is the number of the first row."""
        fingerprint  # noqa: B018  # type: ignore[reportUnusedExpression]
        layers, units, samples = len(net.sizes) - 1, net.units[-1], net.samples
        inputs, first, widest = net.sizes[0], net.sizes[1], net.sizes.max()
        noise = np.empty(samples * units + samples * units % 2, mean.dtype)
        h, h2, above = np.empty(widest, mean.dtype), np.empty(widest, mean.dtype), np.empty(widest, mean.dtype)
        m, s = np.empty(widest, mean.dtype), np.empty(widest, mean.dtype)
        first_m, first_s = np.empty(first, mean.dtype), np.empty(first, mean.dtype)
        for row in range(len(x)):
            fill_normals(noise, seed, first_row + row)
            for j in range(inputs):
                h2[j] = x[row, j] * x[row, j]
            # the first layer meets the same row in every sample: its mean and std once
            moments(mean, std, net, 0, x[row], h2, first_m, first_s)
            for sample in range(samples):
                drawn = U(sample * units)
                for j in range(U(first)):
                    above[j] = first_m[j] + first_s[j] * noise[drawn + j]
                for layer in range(1, layers):
                    n = net.sizes[layer]
                    nonlinear(above, 0, n, net.tanh)
                    for j in range(U(n)):
                        h[j] = above[j]
                        h2[j] = above[j] * above[j]
                    moments(mean, std, net, layer, h, h2, m, s)
                    drawn = U(sample * units + net.units[layer])
                    for j in range(U(net.sizes[layer + 1])):
                        above[j] = m[j] + s[j] * noise[drawn + j]
                for j in range(net.sizes[-1]):
                    out[sample, row, j] = above[j]

    return predict
