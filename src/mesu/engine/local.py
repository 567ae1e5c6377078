"""The compiled stream loop of a posterior, pre-activations drawn (estimator "local"): no Python between examples.

For each update: draw e; a = m + s e with m = x mu, s^2 = x^2 sigma^2 in every layer; back-propagate through both; hand each
weight its two gradients,

    g_mu_kj = sum_r d_kr h_jr           g_sigma_kj = sigma_kj sum_r (d_kr e_kr / s_kr) h_jr^2

over the rows r (samples times examples), to the rule. The first layer meets the same input in every sample, so its sums
over samples are done beforehand; and as soon as one of its rows of weights is updated, while it is still in the nearest
cache, it is multiplied with the next example. So each weight is read and written once per update.
"""

import numba
import numpy as np

from mesu.engine.compiled import FLAGS
from mesu.engine.noise import fill_normals
from mesu.engine.rows import activate, add_rows, deactivate, dot, loss_gradient, move_and_multiply, move_row

TINY = 1e-30  # as in mesu.layers: an all-zero input has no slope under the root


@numba.njit(**FLAGS)
def forward(mean, std, net, work, layer):
    """Draw one layer's outputs for every sample of every example. The first layer's m and s^2 are waiting in `work`."""
    n, k = net.sizes[layer], net.sizes[layer + 1]
    rows, units = net.samples * net.batch, net.units[layer]
    tiny = mean.dtype.type(TINY)
    zero = mean.dtype.type(0)
    last = layer == len(net.sizes) - 2
    if layer > 0:
        below = rows * net.units[layer - 1]
        for unit in range(k):
            at = net.weights[layer] + unit * n
            weight, sigma, var = mean[at : at + n], std[at : at + n], work.var[:n]
            for j in range(n):
                var[j] = sigma[j] * sigma[j]
            for r in range(rows):
                h, h2 = work.h[below + r * n : below + r * n + n], work.h2[below + r * n : below + r * n + n]
                work.m[r * k + unit], work.v[r * k + unit] = dot(h, h2, weight, var)
    different = net.batch if layer == 0 else rows  # the first layer's m and v are the same for all samples
    for r in range(different):
        m, v = work.m[r * k : r * k + k], work.v[r * k : r * k + k]
        if net.has_bias:
            bias = net.biases[layer]
            weight, sigma = mean[bias : bias + k], std[bias : bias + k]
            for j in range(k):
                m[j] += weight[j]
                v[j] += sigma[j] * sigma[j]
        for j in range(k):
            v[j] = np.sqrt(v[j]) if v[j] > tiny else zero
    for r in range(rows):
        of, here = (r % different) * k, rows * units + r * k
        activate(
            work.m[of : of + k],
            work.v[of : of + k],
            work.noise[here : here + k],
            work.q[here : here + k],
            work.h[here : here + k],
            work.h2[here : here + k],
            net.tanh,
            last,
        )


@numba.njit(**FLAGS)
def backward(mean, std, net, work, layer, c):
    """Send the slope of the loss down through one layer, then move that layer's weights."""
    n, k = net.sizes[layer], net.sizes[layer + 1]
    rows = net.samples * net.batch
    here, below = rows * net.units[layer], rows * net.units[layer - 1]
    zero = mean.dtype.type(0)
    size = k * n
    at = net.weights[layer]
    weight, sigma, var = mean[at : at + size], std[at : at + size], work.layer_var[:size]
    for j in range(size):
        var[j] = sigma[j] * sigma[j]
    d, q = work.d[here : here + rows * k], work.q[here : here + rows * k]
    for j in range(rows * k):
        q[j] *= d[j]  # from here on d e / s
    for r in range(rows):
        down, down2 = work.down[:n], work.down2[:n]
        down[:] = zero
        down2[:] = zero
        add_rows(down, d[r * k : r * k + k], 1, k, weight, n)
        add_rows(down2, q[r * k : r * k + k], 1, k, var, n)
        row = below + r * n
        deactivate(work.h[row : row + n], work.d[row : row + n], down, down2, net.tanh)
    negative = mean.dtype.type(0)
    g_mean, g_std = work.g_mean[:n], work.g_std[:n]
    h, h2 = work.h[below : below + rows * n], work.h2[below : below + rows * n]
    for unit in range(k):
        g_mean[:] = zero
        g_std[:] = zero
        add_rows(g_mean, d[unit:], k, rows, h, n)
        add_rows(g_std, q[unit:], k, rows, h2, n)
        negative += move_row(weight[unit * n : unit * n + n], sigma[unit * n : unit * n + n], g_mean, g_std, c)
    if net.has_bias:
        negative += move_biases(mean, std, net, work, layer, d, q, rows, c)
    return negative


@numba.njit(**FLAGS)
def move_biases(mean, std, net, work, layer, d, q, rows, c):
    """Move a layer's biases: their input is 1."""
    k, bias = net.sizes[layer + 1], net.biases[layer]
    g_mean, g_std = work.g_mean[:k], work.g_std[:k]
    g_mean[:] = 0
    g_std[:] = 0
    for r in range(rows):
        for j in range(k):
            g_mean[j] += d[r * k + j]
            g_std[j] += q[r * k + j]
    return move_row(mean[bias : bias + k], std[bias : bias + k], g_mean, g_std, c)


def build(fingerprint: str):
    """The loop; `fingerprint` of the sources is part of it, so that a changed rule is compiled again."""

    @numba.njit(cache=True, **FLAGS)
    def learn(mean, std, net, x, y, given_noise, seed, first_step, c, idle, work):
        """Learn ``x`` and ``y``, `net.batch` examples an update. Returns zero if every sigma stayed positive.

        Args:
            mean: Means of all layers, one after the other, weights then bias.
            std: Standard deviations, laid out the same.
            net: `Network`.
            x: Inputs, one a row.
            y: Class numbers, or targets one a row.
            given_noise: Noise for each update, or an array without rows to draw it.
            seed: Seed of the noise.
            first_step: Number of updates made before this chunk: the noise's counter.
            c: Constants; their type says which rule.
            idle: The same with rates of zero: a step that moves nothing.
            work: `Work`.
        """
        fingerprint  # noqa: B018  # type: ignore[reportUnusedExpression]
        zero = mean.dtype.type(0)
        batch, samples, layers = net.batch, net.samples, len(net.sizes) - 1
        rows = samples * batch
        inputs, first = net.sizes[0], net.sizes[1]
        updates = len(x) // batch
        negative = mean.dtype.type(0)
        # update -1 changes nothing and multiplies the first example: the same machine code as every other update, so that
        # where a chunk begins cannot be told from the weights
        for update in range(-1, updates):
            start = update * batch
            if update >= 0:
                if len(given_noise):
                    work.noise[: given_noise.shape[1]] = given_noise[update]
                else:
                    fill_normals(work.noise, seed, first_step + update)
                for layer in range(layers):
                    forward(mean, std, net, work, layer)
                loss_gradient(work.h, work.d, rows * net.units[layers - 1], net, y, start)
                for layer in range(layers - 1, 0, -1):
                    negative += backward(mean, std, net, work, layer, c)
            # the first layer: gradients of this update, and the products of the next one
            d, q = work.d[: rows * first], work.q[: rows * first]
            if update >= 0:
                for j in range(rows * first):
                    q[j] *= d[j]  # from here on d e / s
                # every sample met the same example: add the samples up
                for r in range(batch, rows):
                    for j in range(first):
                        d[(r % batch) * first + j] += d[r * first + j]
                        q[(r % batch) * first + j] += q[r * first + j]
                if net.has_bias:
                    negative += move_biases(mean, std, net, work, 0, d, q, batch, c)
            upcoming = min(start + batch, len(x) - batch)
            x2, upcoming2 = work.x2[: batch * inputs], work.upcoming2[: batch * inputs]
            for b in range(batch):
                row = x[upcoming + b]
                for j in range(inputs):
                    x2[b * inputs + j] = upcoming2[b * inputs + j]
                    upcoming2[b * inputs + j] = row[j] * row[j]
            for unit in range(first):
                at = unit * inputs
                weight, sigma = mean[at : at + inputs], std[at : at + inputs]
                if batch == 1:
                    now = c if update >= 0 else idle
                    here = max(start, 0)
                    m, v, bad = move_and_multiply(
                        weight, sigma, x[here], x2, d[unit], q[unit], now, x[upcoming], upcoming2
                    )
                    work.m[unit], work.v[unit] = m, v
                    negative += bad
                    continue
                if update >= 0:
                    g_mean, g_std = work.g_mean[:inputs], work.g_std[:inputs]
                    g_mean[:] = zero
                    g_std[:] = zero
                    for b in range(batch):
                        row = x[start + b]
                        for j in range(inputs):
                            g_mean[j] += d[b * first + unit] * row[j]
                            g_std[j] += q[b * first + unit] * x2[b * inputs + j]
                    negative += move_row(weight, sigma, g_mean, g_std, c)
                for j in range(inputs):
                    work.var[j] = sigma[j] * sigma[j]
                for b in range(batch):
                    row2 = upcoming2[b * inputs : b * inputs + inputs]
                    work.m[b * first + unit], work.v[b * first + unit] = dot(
                        x[upcoming + b], row2, weight, work.var[:inputs]
                    )
        return negative

    return learn
