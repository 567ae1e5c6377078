"""The compiled stream loop of a posterior, weights drawn (estimator "weights"): the paper's own form.

Every sample has its own e for every weight, w = mu + sigma e, and

    g_mu = sum_s dLoss/dw_s           g_sigma = sum_s e_s dLoss/dw_s                                   eq. 12

Nearly all of the time goes into the normals: `samples` times as many as there are weights.
"""

from typing import Any

import numba

from mesu.engine.compiled import FLAGS, on_disk
from mesu.engine.kernels import back_through, constants_of, loss_gradient, move_row, nonlinear
from mesu.engine.noise import fill_normals, take_normals


@numba.njit(**FLAGS)
def dot_drawn(h, mean, std, noise):
    """H . (mu + sigma e)."""
    total = h.dtype.type(0)
    for j in range(h.size):
        total += h[j] * (mean[j] + std[j] * noise[j])
    return total


@numba.njit(**FLAGS)
def forward(mean, std, net, work, x, start, layer):
    """Outputs of one layer for every sample of every example."""
    n, k = net.sizes[layer], net.sizes[layer + 1]
    rows, size = net.samples * net.batch, mean.size
    here = rows * net.units[layer]
    for unit in range(k):
        at = net.weights[layer] + unit * n
        weight, sigma = mean[at : at + n], std[at : at + n]
        for s in range(net.samples):
            noise = work.noise[s * size + at : s * size + at + n]
            for b in range(net.batch):
                r = s * net.batch + b
                if layer == 0:
                    out = dot_drawn(x[start + b], weight, sigma, noise)
                else:
                    row = rows * net.units[layer - 1] + r * n
                    out = dot_drawn(work.h[row : row + n], weight, sigma, noise)
                if net.has_bias:
                    bias = net.biases[layer] + unit
                    out += mean[bias] + std[bias] * work.noise[s * size + bias]
                work.h[here + r * k + unit] = out
    if layer < len(net.sizes) - 2:
        nonlinear(work.h, here, rows * k, net.tanh)


@numba.njit(**FLAGS)
def backward(mean, std, net, starts, work, x, start, layer, c):
    """Send the slope of the loss down through one layer, then move that layer's weights."""
    n, k = net.sizes[layer], net.sizes[layer + 1]
    rows, size = net.samples * net.batch, mean.size
    here = rows * net.units[layer]
    zero = mean.dtype.type(0)
    each = 2 if net.has_bias else 1  # parameters of a layer
    own, of_biases = constants_of(c, starts[layer * each]), constants_of(c, starts[layer * each + each - 1])
    down = work.down[: rows * n]
    below = rows * net.units[layer - 1] if layer > 0 else 0
    if layer > 0:
        down[:] = zero
    negative = zero
    g_mean, g_std, through = work.g_mean[:n], work.g_std[:n], work.var[:n]
    for unit in range(k):
        at = net.weights[layer] + unit * n
        weight, sigma = mean[at : at + n], std[at : at + n]
        g_mean[:] = zero
        g_std[:] = zero
        g_bias, g_bias_std = zero, zero
        for s in range(net.samples):
            noise = work.noise[s * size + at : s * size + at + n]
            through[:] = zero  # dLoss/dw of this sample
            for b in range(net.batch):
                r = s * net.batch + b
                d = work.d[here + r * k + unit]
                if layer > 0:
                    row, into = work.h[below + r * n : below + r * n + n], down[r * n : r * n + n]
                    for j in range(n):
                        through[j] += d * row[j]
                        into[j] += d * (weight[j] + sigma[j] * noise[j])
                else:
                    example = x[start + b]
                    for j in range(n):
                        through[j] += d * example[j]
                if net.has_bias:
                    g_bias += d
                    g_bias_std += d * work.noise[s * size + net.biases[layer] + unit]
            for j in range(n):
                g_mean[j] += through[j]
                g_std[j] += through[j] * noise[j]
        negative += move_row(mean, std, at, n, g_mean, g_std, own, True)
        if net.has_bias:
            bias = net.biases[layer] + unit
            g_mean[0], g_std[0] = g_bias, g_bias_std
            negative += move_row(mean, std, bias, 1, g_mean, g_std, of_biases, True)
    if layer > 0:
        span = rows * n
        back_through(work.h, work.d, below, span, down, work.zeros, 0, net.tanh)
    return negative


def build(label: str) -> Any:
    """The loop of a rule; the label is the name of its compiled form on disk."""

    @on_disk(label)
    def learn(mean, std, net, starts, x, y, given_noise, seed, first_step, c, idle, work):
        """As `mesu.engine.local`, with ``samples * weights`` normals an update."""
        layers = len(net.sizes) - 1
        negative = mean.dtype.type(0)
        for update in range(len(x) // net.batch):
            start = update * net.batch
            if len(given_noise):
                take_normals(work.noise, given_noise, update)
            else:
                fill_normals(work.noise, seed, first_step + update)
            for layer in range(layers):
                forward(mean, std, net, work, x, start, layer)
            loss_gradient(work.h, work.d, net.samples * net.batch * net.units[layers - 1], net, y, start)
            for layer in range(layers - 1, -1, -1):
                negative += backward(mean, std, net, starts, work, x, start, layer, c)
        return negative

    return learn
