"""The compiled stream loop of a posterior, pre-activations drawn (estimator "local"): no Python between examples.

For each update: draw e; a = m + s e with m = x mu, s^2 = x^2 sigma^2 in every layer; back-propagate through both; hand
each weight its two gradients,

    g_mu_kj = sum_r d_kr h_jr           g_sigma_kj = sigma_kj sum_r (d_kr e_kr / s_kr) h_jr^2

over the rows r (samples times examples), to the rule. The first layer meets the same input in every sample, so its sums
over samples are done beforehand; and as soon as one of its rows of weights is moved, while it is still in a register, it
is multiplied with the next example. So each weight is read and written once per update.
"""

from typing import Any

import numba
import numpy as np

from mesu.engine import hidden_layers
from mesu.engine.compiled import FLAGS, on_disk
from mesu.engine.kernels import (
    INLINE,
    U,
    accumulate,
    add_biases,
    apply_rule,
    clear,
    constants_of,
    keeps_positive,
    loss_gradient,
    move_row,
    nonlinear,
    row_negative,
    squares,
)
from mesu.engine.noise import fill_normals, take_normals
from mesu.rules import Gaussian

TINY = 1e-30  # as in mesu.posterior.layers: an all-zero input has no slope under the root


@numba.njit(**INLINE)
def draw(m, v, noise, q, h, here, rows, different, k):
    """Draw a = m + s e for every row and keep q = e / s for the way back.

    `different` is the number of distinct rows of m and v, which are used again cyclically.
    """
    zero, one, tiny = m.dtype.type(0), m.dtype.type(1), m.dtype.type(TINY)
    here, k, different = U(here), U(k), U(different)
    # s replaces v, and 1/s is written behind it
    inverse = different * k
    for j in range(different * k):
        s = np.sqrt(v[j]) if v[j] > tiny else zero
        v[j] = s
        v[inverse + j] = one / s if s > zero else zero
    # one pass if every row has an m and v of its own
    length = different * k
    for s in range(U(rows) // different):
        row = here + s * length
        for j in range(length):
            e = noise[row + j]
            q[row + j] = e * v[inverse + j]
            h[row + j] = m[j] + v[j] * e


@numba.njit(**FLAGS)
def forward(mean, std, net, work, layer):
    """Draw one layer's outputs for every sample of every example. The first layer's m and s^2 are in `work` already."""
    n, k = net.sizes[layer], net.sizes[layer + 1]
    rows = net.samples * net.batch
    here = rows * net.units[layer]
    different = net.batch
    if layer > 0:
        different = rows
        below = rows * net.units[layer - 1]
        hidden_layers.moments(mean, std, net.weights[layer], n, k, rows, work.h, below, work.m, work.v, work)
    if net.has_bias:
        add_biases(mean, std, net.biases[layer], k, different, work.m, work.v)
    draw(work.m, work.v, work.noise, work.q, work.h, here, rows, different, k)
    if layer < len(net.sizes) - 2:
        nonlinear(work.h, here, rows * k, net.tanh)


@numba.njit(**FLAGS)
def backward(mean, std, net, starts, work, layer, c):
    """Send the slope of the loss down through one layer, then move that layer's weights."""
    n, k = net.sizes[layer], net.sizes[layer + 1]
    rows = net.samples * net.batch
    here, below, at = rows * net.units[layer], rows * net.units[layer - 1], net.weights[layer]
    scale_by(work.q, work.d, here, rows * k)
    each = 2 if net.has_bias else 1  # parameters of a layer
    own = constants_of(c, starts[layer * each])
    negative = hidden_layers.back(mean, std, at, n, k, rows, work.h, work.d, work.q, below, here, own, net.tanh, work)
    if net.has_bias:
        negative += move_biases(mean, std, net, work, layer, rows, constants_of(c, starts[layer * each + 1]))
    return negative


@numba.njit(**INLINE)
def scale_by(q, d, start, count):
    """Turn q into d e / s."""
    start = U(start)
    for j in range(U(count)):
        q[start + j] *= d[start + j]


@numba.njit(**FLAGS)
def move_biases(mean, std, net, work, layer, rows, c):
    """Move a layer's biases: their input is 1."""
    k, here = net.sizes[layer + 1], net.samples * net.batch * net.units[layer]
    clear(work.g_mean, k)
    clear(work.g_std, k)
    for r in range(rows):
        start = U(here + r * k)
        for j in range(U(k)):
            work.g_mean[j] += work.d[start + j]
            work.g_std[j] += work.q[start + j]
    return move_row(mean, std, net.biases[layer], k, work.g_mean, work.g_std, c, False)


@numba.njit(**FLAGS)
def move_and_multiply(mean, std, x, x2, d, q, c, following, following2, m, v, units):
    """Move the first layer by the gradient of one example, an outer product, and multiply it with the one that follows.

    Returns:
        Zero, unless a sigma went negative: then how far, summed up.
    """
    zero, n = mean.dtype.type(0), U(x.size)
    negative = zero
    for unit in range(U(units)):
        at = unit * n
        slope, curvature = d[unit], q[unit]
        # sigma g_sigma of each weight lies between 0 and the sum over the row, curvature s^2
        risky = not keeps_positive(curvature * v[unit] * v[unit], c)
        total, spread = zero, zero
        for j in range(n):
            old = Gaussian(mean[at + j], std[at + j])
            new = apply_rule(old, Gaussian(slope * x[j], curvature * x2[j] * old.std), c)
            mean[at + j] = new.mean
            std[at + j] = new.std
            total += following[j] * new.mean
            spread += following2[j] * (new.std * new.std)
        m[unit] = total
        v[unit] = spread
        if risky:
            negative += row_negative(std, at, n)
    return negative


@numba.njit(**FLAGS)
def first_layer_of_many(mean, std, net, work, x, start, upcoming, moving, c):
    """The same for several examples an update: gradients, then moves, then the next examples' products, row by row.

    It also serves single examples under a rule without `idle`, the constants that move nothing.
    """
    batch, inputs, first = net.batch, net.sizes[0], net.sizes[1]
    negative = mean.dtype.type(0)
    flat = x.reshape(-1)
    for unit in range(first):
        at = unit * inputs
        if moving:
            clear(work.g_mean, inputs)
            clear(work.g_std, inputs)
            accumulate(work.g_mean, inputs, work.d, unit, first, batch, flat, start * inputs)
            accumulate(work.g_std, inputs, work.q, unit, first, batch, work.x2, 0)
            negative += move_row(mean, std, at, inputs, work.g_mean, work.g_std, c, False)
        squares(std, at, inputs, work.var)
        for b in range(batch):
            total, spread = mean.dtype.type(0), mean.dtype.type(0)
            row, row2, weight = U((upcoming + b) * inputs), U(b * inputs), U(at)
            for j in range(U(inputs)):
                total += flat[row + j] * mean[weight + j]
                spread += work.upcoming2[row2 + j] * work.var[j]
            work.m[b * first + unit] = total
            work.v[b * first + unit] = spread
    return negative


@numba.njit(**INLINE)
def next_normals(noise, given_noise, update, seed, first_step):
    """The noise of an update: what was given, or drawn from the counter."""
    if len(given_noise):
        take_normals(noise, given_noise, update)
    else:
        fill_normals(noise, seed, first_step + update)


@numba.njit(**INLINE)
def add_samples(d, q, samples, span):
    """Add the slopes of all samples to those of the first, for the first layer: every sample met the same examples."""
    span = U(span)
    for s in range(U(1), U(samples)):
        for j in range(span):
            d[j] += d[s * span + j]
            q[j] += q[s * span + j]


def build(label: str) -> Any:
    """The loop of a rule; the label is the name of its compiled form on disk."""

    @on_disk(label)
    def learn(mean, std, net, starts, x, y, given_noise, seed, first_step, c, idle, work):
        """Learn ``x`` and ``y``, `net.batch` examples an update. Returns zero if every sigma stayed positive.

        Args:
            mean: Means of all layers, one after the other, weights then bias.
            std: Standard deviations, laid out the same.
            net: `Network`.
            starts: The precision 1/sigma_0^2 with which each parameter started, in the order in which they are laid out.
            x: Inputs, one a row.
            y: Class numbers, or targets one a row.
            given_noise: Noise for each update, or an array without rows to draw it.
            seed: Seed of the noise.
            first_step: Number of updates made before this chunk: the noise's counter.
            c: Constants; their type says which rule.
            idle: Constants under which a step moves nothing; None if the rule has none.
            work: `Work`, its slopes zero.
        """
        batch, layers = net.batch, len(net.sizes) - 1
        rows = net.samples * batch
        inputs, first = net.sizes[0], net.sizes[1]
        updates = len(x) // batch
        negative = mean.dtype.type(0)
        own = constants_of(c, starts[0])
        # update -1 moves nothing and multiplies the first example. It runs the same machine code as every other update, so
        # that the weights do not depend on where a chunk begins
        for update in range(-1, updates):
            start = update * batch
            upcoming = min(start + batch, len(x) - batch)
            if update >= 0:
                next_normals(work.noise, given_noise, update, seed, first_step)
                for layer in range(layers):
                    forward(mean, std, net, work, layer)
                loss_gradient(work.h, work.d, rows * net.units[layers - 1], net, y, start)
                for layer in range(layers - 1, 0, -1):
                    negative += backward(mean, std, net, starts, work, layer, c)
                scale_by(work.q, work.d, 0, rows * first)
                add_samples(work.d, work.q, net.samples, batch * first)
                if net.has_bias:
                    negative += move_biases(mean, std, net, work, 0, batch, constants_of(c, starts[1]))
                for j in range(U(batch * inputs)):
                    work.x2[j] = work.upcoming2[j]
            squares(x.reshape(-1), upcoming * inputs, batch * inputs, work.upcoming2)
            if idle is None:
                negative += first_layer_of_many(mean, std, net, work, x, start, upcoming, update >= 0, own)
            elif batch == 1:
                now = own if update >= 0 else constants_of(idle, starts[0])
                negative += move_and_multiply(
                    mean,
                    std,
                    x[max(start, 0)],
                    work.x2,
                    work.d,
                    work.q,
                    now,
                    x[upcoming],
                    work.upcoming2,
                    work.m,
                    work.v,
                    first,
                )
            else:
                negative += first_layer_of_many(mean, std, net, work, x, start, upcoming, update >= 0, own)
        return negative

    return learn
