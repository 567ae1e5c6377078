"""The compiled stream loop of the estimator "joint": one number, one example an update (see `mesu.posterior.joint`).

The slopes and curvatures are those of `mesu.engine.linear`. Their common scale follows from the variance that the network
itself gives the output: with q_k = J_k^2 / n^2 of unit k, and v_k the variance of its pre-activation,

    S / n^2 = 1 + sum_k q_k v_k               v_k = sum_j sigma_kj^2 h_j^2
"""

from typing import Any

import numba
import numpy as np
from numba.extending import overload

from mesu.engine.compiled import FLAGS, in_precision, on_disk, precision_of
from mesu.engine.deterministic import forward
from mesu.engine.kernels import INLINE, U, apply_for_curvature, constants_of, for_curvature
from mesu.engine.linear import linearise
from mesu.rules import Gaussian
from mesu.rules.curvature import FURTHEST, share_of_joint_step


def share(std, g_mean, h):
    """`mesu.rules.curvature.share_of_joint_step`; compiled code only."""
    raise NotImplementedError


@overload(share, jit_options=FLAGS)
def _share(std, g_mean, h):
    return in_precision(share_of_joint_step, precision_of(std))


@numba.njit(**FLAGS)
def first_products(mean, std, net, x, m, v):
    """Multiply the first layer with an example: means of its pre-activations, and their variances."""
    n = U(net.sizes[0])
    for unit in range(U(net.sizes[1])):
        at = U(net.weights[0]) + unit * n
        total, spread = mean.dtype.type(0), mean.dtype.type(0)
        for j in range(n):
            wide = std[at + j] * x[j]
            total += mean[at + j] * x[j]
            spread += wide * wide
        m[unit], v[unit] = total, spread


@numba.njit(**FLAGS)
def believed_variance(std, net, work, v):
    """The variance of the output through all weights, in units of the noise: sum_k q_k v_k."""
    total = std.dtype.type(0)
    for layer in range(len(net.sizes) - 1):
        n, k = U(net.sizes[layer]), U(net.sizes[layer + 1])
        here = U(net.units[layer])
        for unit in range(k):
            spread = std.dtype.type(0)
            if layer == 0:
                spread += v[unit]
            else:
                at, below = U(net.weights[layer]) + unit * n, U(net.units[layer - 1])
                for j in range(n):
                    wide = std[at + j] * work.h[below + j]
                    spread += wide * wide
            if net.has_bias:
                bias = std[U(net.biases[layer]) + unit]
                spread += bias * bias
            total += work.q[here + unit] * spread
    return total


@numba.njit(**FLAGS)
def share_out(net, work, believed):
    """Scale the slopes and the curvatures of all units by n^2 / S, and limit the residual."""
    one = work.d.dtype.type(1)
    scale = one / (one + believed)
    top = U(net.units[len(net.sizes) - 2])
    # the slope at the output is r / n^2; FURTHEST sqrt(S) / n^2 is the most that r may be
    furthest = work.d.dtype.type(FURTHEST) * np.sqrt((one + believed) * work.d.dtype.type(net.precision))
    size = abs(work.d[top])
    limited = scale * furthest / size if size > furthest else scale
    for k in range(top + U(net.sizes[-1])):
        work.d[k] *= limited
        work.q[k] *= scale


@numba.njit(**INLINE)
def move(mean, std, start, n, slope, curvature, inputs, at, c):
    """Move the ``n`` weights of a unit by their parts of the joint step. Returns how far sigmas went below zero."""
    zero, start, at = mean.dtype.type(0), U(start), U(at)
    negative = zero
    for j in range(U(n)):
        q, x = Gaussian(mean[start + j], std[start + j]), inputs[at + j]
        g = share(q.std, slope * x, curvature * (x * x))
        new = apply_for_curvature(q, g, c)
        mean[start + j] = new.mean
        std[start + j] = new.std
        negative += -new.std if new.std < zero else zero
    return negative


def build(label: str) -> Any:
    """The loop of a rule; the label is the name of its compiled form on disk."""

    @on_disk(label)
    def learn(mean, std, net, starts, x, y, given_noise, seed, first_step, c, idle, work):
        """As `mesu.engine.linear`, for one example an update and one output."""
        each = 2 if net.has_bias else 1  # parameters of a layer
        negative = mean.dtype.type(0)
        # buffers of the estimator "linear" for rows of gradients, which this one does not have
        v, bias_input = work.g_std, work.g_mean
        bias_input[0] = mean.dtype.type(1)
        for row in range(len(x)):
            first_products(mean, std, net, x[row], work.m, v)
            for layer in range(len(net.sizes) - 1):
                forward(mean, net, work, layer)
            linearise(mean, net, work, y, row)
            share_out(net, work, believed_variance(std, net, work, v))
            for layer in range(len(net.sizes) - 1):
                n, here = net.sizes[layer], net.units[layer]
                own = for_curvature(constants_of(c, starts[layer * each]))
                for unit in range(net.sizes[layer + 1]):
                    at, d, q = net.weights[layer] + unit * n, work.d[U(here + unit)], work.q[U(here + unit)]
                    if layer == 0:
                        negative += move(mean, std, at, n, d, q, x[row], 0, own)
                    else:
                        negative += move(mean, std, at, n, d, q, work.h, net.units[layer - 1], own)
                    if net.has_bias:
                        of_biases = for_curvature(constants_of(c, starts[layer * each + 1]))
                        negative += move(mean, std, net.biases[layer] + unit, 1, d, q, bias_input, 0, of_biases)
        return negative

    return learn
