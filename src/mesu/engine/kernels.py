"""Parts of the compiled loops: the layout of a network, the workspace, and operations on rows of weights.

All of it is compiled into the loops that use it. A row is given as a whole array and the index where it starts: a slice would
count references, which costs as much as the work on a short row.
"""

import math
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.extending import overload

from mesu.engine.compiled import FLAGS, in_precision, precision_of
from mesu.rules import Gaussian
from mesu.rules.curvature import gradient_of_sigma
from mesu.rules.parts import rule_of

INLINE: Any = {**FLAGS, "forceinline": True}
LOG2_E, SMALLEST, HALF = np.float32(np.log2(np.e)), np.float32(-87.0), np.float32(0.5)
EXP2 = tuple(
    np.float32(c) for c in (1.0, 0.693147206, 0.240226466, 0.05550329, 0.00961851953, 0.00133998604, 0.000153375768)
)  # 2^f, |f| <= 1/2; least squares on Chebyshev nodes
U = np.uint64  # a signed index could be negative, and the test for that stops the compiler from using vectors


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
    d: Any  # dLoss / d pre-activation
    m: Any  # the first layer's mean pre-activations of the next examples
    v: Any  # and their variances; while drawing, s, with 1/s behind it
    x2: Any  # squares of the examples being learned
    upcoming2: Any  # squares of the next examples
    down: Any  # sums of each row: dLoss / d activation below, through the means; in the forward pass, m
    down2: Any  # the same through the variances, divided by the activation; in the forward pass, v
    g_mean: Any  # gradients of some rows of weights
    g_std: Any
    var: Any  # sigma^2 of one row
    h2: Any  # squares of a layer's inputs
    tile: Any  # a tile of means (`mesu.engine.hidden_layers`), and one of variances
    tile2: Any
    panels: Any  # a layer's inputs in panels, and their squares
    panels2: Any
    marks: Any  # a bit for each number of a row that is not zero
    columns: Any  # the same bits unit by unit
    zeros: Any  # the slopes through the variance, where no variance takes part


def apply_rule(q, g, c):
    """The posterior rule that the type of `c` stands for; compiled code only."""
    raise NotImplementedError


@overload(apply_rule, jit_options=FLAGS)
def _apply_rule(q, g, c):
    return in_precision(rule_of(c.instance_class).step, precision_of(q[0]))


class ThroughSlope(NamedTuple):
    """Constants of a rule that has no step for a curvature: it is given the gradient of sigma instead."""

    constants: Any


def for_curvature(c):
    """The constants of a step for a known curvature (see `mesu.rules.parts`); compiled code only."""
    raise NotImplementedError


@overload(for_curvature, jit_options=FLAGS)
def _for_curvature(c):
    known = getattr(rule_of(c.instance_class), "for_curvature", None)
    if known is None:
        return lambda c: ThroughSlope(c)
    return in_precision(known, precision_of(c[0]))


def apply_for_curvature(q, g, c):
    """The step for a curvature that the type of `c` stands for; compiled code only."""
    raise NotImplementedError


@overload(apply_for_curvature, jit_options=FLAGS)
def _apply_for_curvature(q, g, c):
    if c.instance_class is not ThroughSlope:
        return lambda q, g, c: apply_rule(q, g, c)
    slope: Any = numba.njit(in_precision(gradient_of_sigma, precision_of(q[0])), **FLAGS)
    return lambda q, g, c: apply_rule(q, Gaussian(g.mean, slope(q.std, g.std)), c.constants)


def keeps_positive(reach, c):
    """Whether the rule says that no sigma can turn negative (see `mesu.rules.parts`); compiled code only."""
    raise NotImplementedError


@overload(keeps_positive, jit_options=FLAGS)
def _keeps_positive(reach, c):
    promise = getattr(rule_of(c.instance_class), "keeps_positive", None)
    if promise is None:
        return lambda reach, c: False
    return in_precision(promise, precision_of(reach))


def constants_of(c, precision):
    """The constants of weights that started with this precision (see `mesu.rules.parts`); compiled code only."""
    raise NotImplementedError


@overload(constants_of, jit_options=FLAGS)
def _constants_of(c, precision):
    scaled = getattr(rule_of(c.instance_class), "scaled", None)
    if scaled is None:
        return lambda c, precision: c
    return in_precision(scaled, precision_of(precision))


@numba.njit(**INLINE)
def accumulate(total, n, scales, scale, stride, count, rows, row):
    """total[:n] += sum_r scales[scale + r stride] * rows[row + r n:][:n], four rows at a time: fewer reads and writes."""
    n, scale, stride, row, four = U(n), U(scale), U(stride), U(row), U(4)
    full, rest = U(count) // four, U(count) % four
    for _ in range(full):
        a, b = scales[scale], scales[scale + stride]
        c, d = scales[scale + U(2) * stride], scales[scale + U(3) * stride]
        at_b, at_c, at_d = row + n, row + U(2) * n, row + U(3) * n
        for j in range(n):
            total[j] += a * rows[row + j] + b * rows[at_b + j] + c * rows[at_c + j] + d * rows[at_d + j]
        scale += four * stride
        row += four * n
    for _ in range(rest):
        a = scales[scale]
        for j in range(n):
            total[j] += a * rows[row + j]
        scale += stride
        row += n


@numba.njit(**INLINE)
def clear(values, count):
    """Set the first `count` values to zero."""
    zero = values.dtype.type(0)
    for j in range(U(count)):
        values[j] = zero


@numba.njit(**INLINE)
def squares(values, start, count, into):
    """into[:count] = values[start:][:count] squared."""
    start = U(start)
    for j in range(U(count)):
        into[j] = values[start + j] * values[start + j]


@numba.njit(**INLINE)
def add_biases(mean, std, bias, k, rows, m, v):
    """Add a layer's biases to the means and variances of every row of pre-activations."""
    bias, k = U(bias), U(k)
    for r in range(U(rows)):
        for j in range(k):
            m[r * k + j] += mean[bias + j]
            v[r * k + j] += std[bias + j] * std[bias + j]


@numba.njit(**INLINE)
def nonlinear(h, start, count, tanh):
    """Apply the activation in place to ``h[start:][:count]``."""
    zero, start = h.dtype.type(0), U(start)
    if tanh:
        for j in range(U(count)):
            h[start + j] = math.tanh(h[start + j])
    else:
        for j in range(U(count)):
            h[start + j] = max(h[start + j], zero)


@numba.njit(**INLINE)
def back_through(h, d, start, n, down, down2, at, tanh):
    """Slopes at the pre-activations of one row of units, from those at its activations through means and variances."""
    one, zero, start, at = h.dtype.type(1), h.dtype.type(0), U(start), U(at)
    if tanh:
        for j in range(U(n)):
            a = h[start + j]
            d[start + j] = (one - a * a) * (down[at + j] + a * down2[at + j])
    else:
        for j in range(U(n)):
            a = h[start + j]
            d[start + j] = (down[at + j] + a * down2[at + j]) if a > zero else zero


@numba.njit(**INLINE)
def move_row(mean, std, start, n, g_mean, g_std, c, drawn):
    """Move ``n`` weights from `start` on by the rule. Unless weights were `drawn`, g_std lacks its factor sigma.

    Returns:
        Zero, unless a sigma went negative: then how far, summed up.
    """
    zero, start = mean.dtype.type(0), U(start)
    negative = zero
    for j in range(U(n)):
        q = Gaussian(mean[start + j], std[start + j])
        sigma_slope = g_std[j] if drawn else g_std[j] * q.std
        new = apply_rule(q, Gaussian(g_mean[j], sigma_slope), c)
        mean[start + j] = new.mean
        std[start + j] = new.std
        negative += -new.std if new.std < zero else zero
    return negative


@numba.njit(**INLINE)
def row_negative(std, start, n):
    """How far sigmas of a row are below zero, summed up."""
    zero, start = std.dtype.type(0), U(start)
    negative = zero
    for j in range(U(n)):
        negative += -std[start + j] if std[start + j] < zero else zero
    return negative


def exponential(x):
    """The exponential of a number that is not positive; compiled code only."""
    raise NotImplementedError


@overload(exponential, jit_options=INLINE)
def _exponential(x):
    if x != numba.float32:
        return lambda x: math.exp(x)

    def single(x):
        # 2^(n + f): n goes into the float's exponent, f through a polynomial; relative error 2e-7
        t = max(x, SMALLEST) * LOG2_E
        n = np.floor(t + HALF)
        f = t - n
        power = EXP2[6]
        for k in range(5, -1, -1):
            power = power * f + EXP2[k]
        return power * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)

    return single


@numba.njit(**FLAGS)
def loss_gradient(out, d, at, net, y, start):
    """Write dLoss / d output of every drawn output, the loss averaged over samples and summed over examples."""
    _slopes(out, d, at, net, y, start, out.dtype.type(1.0 / net.samples))


@numba.njit(**FLAGS)
def _slopes_of_classes(out, d, at, net, y, start, share):
    """Softmax minus the label, over all rows at once: p - 1[y]."""
    rows, k, at = U(net.samples * net.batch), U(net.sizes[-1]), U(at)
    for r in range(rows):
        row = at + r * k
        top = out[row]
        for j in range(k):
            top = max(top, out[row + j])
        for j in range(k):
            d[row + j] = out[row + j] - top
    for j in range(rows * k):
        d[at + j] = exponential(d[at + j])
    for r in range(rows):
        row = at + r * k
        total = out.dtype.type(0)
        for j in range(k):
            total += d[row + j]
        scale = share / total
        for j in range(k):
            d[row + j] *= scale
        d[row + U(y[start + np.int64(r % U(net.batch))])] -= share


@numba.njit(**FLAGS)
def _slopes_of_targets(out, d, at, net, y, start, share):
    """Error over noise variance."""
    k = net.sizes[-1]
    scale = share * out.dtype.type(net.precision)
    for r in range(net.samples * net.batch):
        for j in range(k):
            d[at + r * k + j] = (out[at + r * k + j] - y[start + r % net.batch, j]) * scale


def _slopes(out, d, at, net, y, start, share):
    raise NotImplementedError


@overload(_slopes, jit_options=FLAGS)
def _slopes_typed(out, d, at, net, y, start, share):
    if isinstance(y.dtype, numba.types.Integer):
        return lambda out, d, at, net, y, start, share: _slopes_of_classes(out, d, at, net, y, start, share)
    return lambda out, d, at, net, y, start, share: _slopes_of_targets(out, d, at, net, y, start, share)
