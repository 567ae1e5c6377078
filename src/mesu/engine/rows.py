"""Pieces of the compiled loops: a network's layout, workspace, and work on rows of weights.

Everything here is compiled into the loops that use it. Rows are slices, which is what lets the compiler use vectors.
"""

import math
from typing import Any, NamedTuple

import numba
from numba.extending import overload

from mesu.engine.compiled import FLAGS, _precision, in_precision
from mesu.rules import Gaussian


class Network(NamedTuple):
    """The shape of a multilayer perceptron and of its updates."""

    sizes: Any  # units of each layer, inputs first
    weights: Any  # where each layer's weights begin in the flat arrays
    biases: Any  # where each layer's biases begin
    units: Any  # units of the layers before each, inputs not counted: where its activations begin, times the rows
    has_bias: bool
    tanh: bool  # else ReLU
    batch: int  # examples an update
    samples: int  # draws of an example
    precision: float  # 1/noise_std^2 of a Gaussian likelihood; 0 for classes


class Work(NamedTuple):
    """Scratch space, made once for a chunk."""

    noise: Any  # e of every drawn unit
    q: Any  # e / s
    h: Any  # activations
    h2: Any  # their squares
    d: Any  # dLoss / d pre-activation
    m: Any  # the first layer's mean pre-activations of the next examples
    v: Any  # and their variances
    x2: Any  # squares of the examples being learned
    upcoming2: Any  # and of those that follow
    down: Any  # dLoss / d activation below, through the means
    down2: Any  # and through the variances, over the activation
    g_mean: Any  # gradients of one row of weights
    g_std: Any
    var: Any  # sigma^2 of one row
    layer_var: Any  # sigma^2 of one layer above the first
    zeros: Any  # nothing, where a slope through the variance is asked for and there is none


def apply_rule(q, g, c):
    """The posterior rule that the type of `c` stands for; compiled code only."""
    raise NotImplementedError


RULE_OF: dict[type, Any] = {}


@overload(apply_rule, jit_options=FLAGS)
def _apply_rule(q, g, c):
    return in_precision(RULE_OF[c.instance_class], _precision(q[0]))


@numba.njit(**FLAGS)
def dot(h, h2, weight, var):
    """Mean and variance of a pre-activation."""
    m, v = h.dtype.type(0), h.dtype.type(0)
    for j in range(h.size):
        m += h[j] * weight[j]
        v += h2[j] * var[j]
    return m, v


@numba.njit(**FLAGS)
def add_rows(total, scales, stride, count, rows, width):
    """Total += sum_r scales[r * stride] * rows[r], four rows at a time so that the total is read and written less."""
    size = total.size
    full = count - count % 4
    for r in range(0, full, 4):
        a, b = scales[r * stride], scales[(r + 1) * stride]
        c, d = scales[(r + 2) * stride], scales[(r + 3) * stride]
        at = r * width
        row_a, row_b = rows[at : at + size], rows[at + width : at + width + size]
        row_c, row_d = rows[at + 2 * width : at + 2 * width + size], rows[at + 3 * width : at + 3 * width + size]
        for j in range(size):
            total[j] += a * row_a[j] + b * row_b[j] + c * row_c[j] + d * row_d[j]
    for r in range(full, count):
        a = scales[r * stride]
        row_a = rows[r * width : r * width + size]
        for j in range(size):
            total[j] += a * row_a[j]


@numba.njit(**FLAGS)
def nonlinear(h, tanh):
    """Apply the activation in place."""
    zero = h.dtype.type(0)
    if tanh:
        for j in range(h.size):
            h[j] = math.tanh(h[j])
    else:
        for j in range(h.size):
            h[j] = max(h[j], zero)


@numba.njit(**FLAGS)
def activate(m, s, e, q, h, h2, tanh, last):
    """One row of units: draw a = m + s e, keep q = e / s for the way back, and apply the activation."""
    zero = m.dtype.type(0)
    for j in range(m.size):
        q[j] = e[j] / s[j] if s[j] > zero else zero
        h[j] = m[j] + s[j] * e[j]
    if not last:
        nonlinear(h, tanh)
        for j in range(m.size):
            h2[j] = h[j] * h[j]


@numba.njit(**FLAGS)
def deactivate(h, d, down, down2, tanh):
    """Back through one layer's activations: d becomes dLoss / d pre-activation."""
    one, zero = h.dtype.type(1), h.dtype.type(0)
    if tanh:
        for j in range(h.size):
            d[j] = (one - h[j] * h[j]) * (down[j] + h[j] * down2[j])
    else:
        for j in range(h.size):
            d[j] = (down[j] + h[j] * down2[j]) if h[j] > zero else zero


@numba.njit(**FLAGS)
def move_row(mean, std, g_mean, g_std, c):
    """Move a row of weights by the rule; g_std comes without its factor sigma.

    Returns:
        Zero, unless a sigma went negative: then how far, summed up.
    """
    zero = mean.dtype.type(0)
    negative = zero
    for j in range(mean.size):
        q = Gaussian(mean[j], std[j])
        new = apply_rule(q, Gaussian(g_mean[j], g_std[j] * q.std), c)
        mean[j] = new.mean
        std[j] = new.std
        negative += -new.std if new.std < zero else zero
    return negative


@numba.njit(**FLAGS)
def move_row_drawn(mean, std, g_mean, g_std, c):
    """As `move_row`, for weights that were drawn themselves: g_std is whole."""
    zero = mean.dtype.type(0)
    negative = zero
    for j in range(mean.size):
        new = apply_rule(Gaussian(mean[j], std[j]), Gaussian(g_mean[j], g_std[j]), c)
        mean[j] = new.mean
        std[j] = new.std
        negative += -new.std if new.std < zero else zero
    return negative


@numba.njit(**FLAGS)
def move_and_multiply(mean, std, x, x2, d, dq, c, following, following2):
    """Move a row by the gradient of one example, an outer product, and multiply it with the example that follows.

    Returns:
        Mean and variance of the following example's pre-activation, and the sum that `move_row` returns.
    """
    zero = mean.dtype.type(0)
    m, v, negative = zero, zero, zero
    for j in range(mean.size):
        q = Gaussian(mean[j], std[j])
        new = apply_rule(q, Gaussian(d * x[j], dq * x2[j] * q.std), c)
        mean[j] = new.mean
        std[j] = new.std
        m += following[j] * new.mean
        v += following2[j] * (new.std * new.std)
        negative += -new.std if new.std < zero else zero
    return m, v, negative


@numba.njit(**FLAGS)
def loss_gradient(out, d, at, net, y, start):
    """Write dLoss / d output of every drawn output, the loss averaged over samples and summed over examples."""
    k = net.sizes[-1]
    share = out.dtype.type(1.0 / net.samples)
    for r in range(net.samples * net.batch):
        here = at + r * k
        scores, slope = out[here : here + k], d[here : here + k]
        _slope(scores, slope, y, start + r % net.batch, share, net)


@numba.njit(**FLAGS)
def _slope_of_class(scores, slope, label, share):
    top = scores[0]
    for j in range(scores.size):
        top = max(top, scores[j])
    total = scores.dtype.type(0)
    for j in range(scores.size):
        slope[j] = math.exp(scores[j] - top)
        total += slope[j]
    for j in range(scores.size):
        slope[j] *= share / total
    slope[label] -= share


@numba.njit(**FLAGS)
def _slope_of_target(scores, slope, target, share, precision):
    for j in range(scores.size):
        slope[j] = (scores[j] - target[j]) * (share * scores.dtype.type(precision))


def _slope(scores, slope, y, row, share, net):
    raise NotImplementedError


@overload(_slope, jit_options=FLAGS)
def _slope_typed(scores, slope, y, row, share, net):
    if isinstance(y.dtype, numba.types.Integer):
        return lambda scores, slope, y, row, share, net: _slope_of_class(scores, slope, y[row], share)
    return lambda scores, slope, y, row, share, net: _slope_of_target(scores, slope, y[row], share, net.precision)
