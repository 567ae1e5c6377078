"""The compiled stream loop of a posterior without a draw (estimator "linear"): gradient and curvature at the means.

For each example, with r = dLoss / d outputs, Lambda the curvature of the loss in the outputs (diag(p) - p p^T of classes,
1/noise^2 of numbers) and G[c, k] = d output_c / d pre-activation k at the means,

    d_k = (G^T r)_k                     g_mu_kj = sum_b d_k x_j
    q_k = (G^T Lambda G)_kk             h_kj    = sum_b q_k x_j^2

over the examples b of an update: the Gauss-Newton part of the Hessian, for the step of `mesu.rules.curvature`. G is carried
down the layers, a row for each output. As q is never negative, evidence only narrows sigma.

The first layer is moved as in `mesu.engine.local`: each row is multiplied with the next example while it is in a register.
Rows of which no weight can meet a bound of the step, almost all of them, are moved without looking at the bounds.
"""

from typing import Any, NamedTuple

import numba
from numba.extending import overload

from mesu.engine.compiled import FLAGS, in_precision, on_disk, precision_of
from mesu.engine.deterministic import dot, forward
from mesu.engine.kernels import (
    INLINE,
    ThroughSlope,
    U,
    apply_for_curvature,
    clear,
    constants_of,
    for_curvature,
    loss_gradient,
    squares,
)
from mesu.engine.lanes import (
    LANES,
    fused,
    highest,
    larger,
    multiply_add,
    read,
    size,
    spread,
    total,
    unite,
    united,
    united_size,
    write,
)
from mesu.engine.layout import aligned
from mesu.rules import Gaussian
from mesu.rules.parts import rule_of

TOGETHER = 1024  # weights of whole rows that are moved in one go: short rows one by one would leave vectors half empty


class Scratch(NamedTuple):
    """Buffers, made once for a chunk."""

    h: Any  # activations
    d: Any  # slopes: dLoss / d pre-activation
    q: Any  # curvatures of the loss in each pre-activation
    m: Any  # the first layer's pre-activations of the next examples
    x: Any  # the example being learned, and the next one: from a cache line's beginning on, where rows are moved one by one
    following: Any
    x2: Any  # squares of the examples being learned
    g_mean: Any  # gradients of some rows of weights
    g_std: Any  # and curvatures
    widest: Any  # the largest sigma of each row of the first layer
    largest: Any  # and a bound of its |means|
    h2: Any  # squares of a layer's inputs
    jacobian: Any  # d output / d activation of one layer and example, a row for each output
    below: Any  # the same of the layer below it
    p: Any  # probabilities of the classes


def scratch(sizes: tuple[int, ...], batch: int, dtype) -> Scratch:
    """Buffers to learn a network of these sizes."""
    widest, units, outputs = max(sizes), batch * sum(sizes[1:]), sizes[-1]
    lengths = {
        "h": units,
        "d": units,
        "q": units,
        "m": batch * sizes[1],
        "x": sizes[0],
        "following": sizes[0],
        "x2": batch * sizes[0],
        "g_mean": max(widest, TOGETHER),
        "g_std": max(widest, TOGETHER),
        "widest": sizes[1],
        "largest": sizes[1],
        "h2": batch * max(sizes[1:]),
        "jacobian": outputs * max(sizes[1:]),
        "below": outputs * max(sizes[1:]),
        "p": outputs,
    }
    return Scratch(**{name: aligned(length, dtype) for name, length in lengths.items()})


def curvature(jacobian, rows, n, q, at, net, target, work):
    """Write q_k = (G^T Lambda G)_kk of one example, G still without the slopes of the activations; compiled code only.

    Of a hidden layer, d = G^T r is in `work.d` already, without the slopes of the activations too.

    Args:
        jacobian: Where G is, a row of `n` for each output from `rows` on; None at the outputs themselves.
        rows: Where it begins.
        n: Units of the layer.
        q: Where to write, from `at` on.
        at: Where that begins.
        net: `Network`.
        target: The class, or the numbers, of this example: its type tells the two likelihoods apart.
        work: `Scratch`, its `p` filled in for classes.
    """
    raise NotImplementedError


@overload(curvature, jit_options=FLAGS)
def _curvature(jacobian, rows, n, q, at, net, target, work):
    classes, outputs = isinstance(target, numba.types.Integer), isinstance(jacobian, numba.types.NoneType)

    def of_scores(jacobian, rows, n, q, at, net, target, work):
        one = q.dtype.type(1)
        for c in range(U(n)):
            q[U(at) + c] = work.p[c] * (one - work.p[c])

    def of_numbers(jacobian, rows, n, q, at, net, target, work):
        precision = q.dtype.type(net.precision)
        for c in range(U(n)):
            q[U(at) + c] = precision

    def below_scores(jacobian, rows, n, q, at, net, target, work):
        # the variance of G's rows under p, from their average: a difference of squares could turn negative. With slopes
        # p - 1[y], the average is that of the slopes and the row of y
        rows, n, at, lanes = U(rows), U(n), U(at), U(LANES)
        own, outputs, zero = rows + U(target) * n, U(net.sizes[-1]), q.dtype.type(0)
        for block in range(n // lanes):
            j = block * lanes
            average, sums = read(work.d, at + j) + read(jacobian, own + j), spread(zero)
            for c in range(outputs):
                apart = read(jacobian, rows + c * n + j) - average
                sums = multiply_add(work.p[c] * apart, apart, sums)
            write(q, at + j, sums)
        for j in range(n // lanes * lanes, n):
            average, total = work.d[at + j] + jacobian[own + j], zero
            for c in range(outputs):
                apart = jacobian[rows + c * n + j] - average
                total += work.p[c] * apart * apart
            q[at + j] = total

    def below_numbers(jacobian, rows, n, q, at, net, target, work):
        rows, n, at, precision = U(rows), U(n), U(at), q.dtype.type(net.precision)
        for j in range(n):
            q[at + j] = q.dtype.type(0)
        for c in range(U(net.sizes[-1])):
            row = rows + c * n
            for j in range(n):
                q[at + j] += precision * jacobian[row + j] * jacobian[row + j]

    if outputs:
        return of_scores if classes else of_numbers
    return below_scores if classes else below_numbers


def probabilities(d, at, outputs, target, p):
    """The probabilities of the classes, from the slopes p - 1[y]; nothing for numbers; compiled code only."""
    raise NotImplementedError


@overload(probabilities, jit_options=FLAGS)
def _probabilities(d, at, outputs, target, p):
    if not isinstance(target, numba.types.Integer):
        return lambda d, at, outputs, target, p: None

    def of_classes(d, at, outputs, target, p):
        for c in range(U(outputs)):
            p[c] = d[U(at) + c]
        p[U(target)] += p.dtype.type(1)

    return of_classes


@numba.njit(**INLINE)
def slope(h, at, tanh):
    """The slope of the activation that has the value ``h[at]``."""
    one, zero = h.dtype.type(1), h.dtype.type(0)
    if tanh:
        return one - h[at] * h[at]
    return one if h[at] > zero else zero


@numba.njit(**FLAGS)
def send_down(weight, at, n, k, outputs, jacobian, rows, h, here, tanh, into):
    """Write d outputs / d activations one layer down: `into` = G diag(slope) W, with slopes from the activations at `here`."""
    n, k, at, rows, here = U(n), U(k), U(at), U(rows), U(here)
    clear(into, U(outputs) * n)
    for unit in range(k):
        steep = slope(h, here + unit, tanh)
        if steep == h.dtype.type(0):
            continue
        row = at + unit * n
        for c in range(U(outputs)):
            scale, to = jacobian[rows + c * k + unit] * steep, c * n
            for j in range(n):
                into[to + j] += scale * weight[row + j]


@numba.njit(**FLAGS)
def slopes_and_curvatures(mean, net, work, layer, example, target, jacobian, rows):
    """Write d and q of a hidden layer and one example, from d outputs / d its activations."""
    outputs, n = U(net.sizes[-1]), U(net.sizes[layer + 1])
    here = U(net.batch * net.units[layer]) + U(example) * n
    top = U(net.batch * net.units[len(net.sizes) - 2]) + U(example) * outputs
    combine(work.d, here, n, work.d, top, 1, outputs, jacobian, rows)
    curvature(jacobian, rows, n, work.q, here, net, target, work)
    for j in range(n):
        steep = slope(work.h, here + j, net.tanh)
        work.d[here + j] *= steep
        work.q[here + j] *= steep * steep


@numba.njit(**FLAGS)
def linearise(mean, net, work, y, start):
    """Write d and q of every layer and example, at the weights as they are."""
    last = len(net.sizes) - 2
    outputs, top = net.sizes[-1], net.batch * net.units[last]
    loss_gradient(work.h, work.d, top, net, y, start)
    for b in range(net.batch):
        target, at = y[start + b], top + b * outputs
        probabilities(work.d, at, outputs, target, work.p)
        curvature(None, 0, outputs, work.q, at, net, target, work)
        if last > 0:
            # d outputs / d the activations below them are the last layer's weights
            slopes_and_curvatures(mean, net, work, last - 1, b, target, mean, net.weights[last])
        here, below = work.jacobian, work.below
        for layer in range(last - 1, 0, -1):
            n, k = net.sizes[layer], net.sizes[layer + 1]
            source, rows = (mean, net.weights[last]) if layer == last - 1 else (here, 0)
            activations = net.batch * net.units[layer] + b * k
            send_down(mean, net.weights[layer], n, k, outputs, source, rows, work.h, activations, net.tanh, below)
            here, below = below, here
            slopes_and_curvatures(mean, net, work, layer - 1, b, target, here, 0)


def uncut(q, g, c):
    """The step for a curvature where no bound can cut it (see `mesu.rules.parts`); compiled code only."""
    raise NotImplementedError


@overload(uncut, jit_options=FLAGS)
def _uncut(q, g, c):
    return in_precision(rule_of(c.instance_class).uncut_step, precision_of(q[0]))


def may_be_cut(q, g, c):
    """Whether a bound may cut the step of weights of at most these sizes (see `mesu.rules.parts`); compiled code only."""
    raise NotImplementedError


@overload(may_be_cut, jit_options=FLAGS)
def _may_be_cut(q, g, c):
    return in_precision(rule_of(c.instance_class).may_be_cut, precision_of(q[0]))


def below_zero(std, c):
    """How far a new sigma is below zero. A step for a curvature promises that it is not; compiled code only."""
    raise NotImplementedError


@overload(below_zero, jit_options=INLINE)
def _below_zero(std, c):
    zero = precision_of(std)(0)
    if c.instance_class is not ThroughSlope:
        return lambda std, c: zero
    return lambda std, c: -std if std < zero else zero


@numba.njit(**INLINE)
def move_row(mean, std, start, n, g_mean, g_std, k):
    """Move ``n`` weights from `start` on by gradients and curvatures. Returns how far sigmas are below zero, summed up."""
    start = U(start)
    negative = mean.dtype.type(0)
    for j in range(U(n)):
        new = apply_for_curvature(Gaussian(mean[start + j], std[start + j]), Gaussian(g_mean[j], g_std[j]), k)
        mean[start + j] = new.mean
        std[start + j] = new.std
        negative += below_zero(new.std, k)
    return negative


@numba.njit(**FLAGS)
def move_layer(mean, std, net, work, layer, c):
    """Move the weights of a layer above the first, some rows in one go."""
    n, k = net.sizes[layer], net.sizes[layer + 1]
    here, below = net.batch * net.units[layer], net.batch * net.units[layer - 1]
    negative = mean.dtype.type(0)
    squares(work.h, below, net.batch * n, work.h2)
    some = max(1, TOGETHER // n)
    for first in range(0, k, some):
        rows = min(some, k - first)
        for r in range(rows):
            combine(work.g_mean, r * n, n, work.d, here + first + r, k, net.batch, work.h, below)
            combine(work.g_std, r * n, n, work.q, here + first + r, k, net.batch, work.h2, 0)
        negative += move_row(mean, std, net.weights[layer] + first * n, rows * n, work.g_mean, work.g_std, c)
    return negative


@numba.njit(**INLINE)
def combine(total, to, n, scales, scale, stride, count, rows, row):
    """total[to:][:n] = sum_r scales[scale + r stride] * rows[row + r n:][:n], four rows at a time: fewer reads and writes."""
    n, to, scale, stride, row, one, four = U(n), U(to), U(scale), U(stride), U(row), U(1), U(4)
    a = scales[scale]
    for j in range(n):
        total[to + j] = a * rows[row + j]
    full, rest = (U(count) - one) // four, (U(count) - one) % four
    scale += stride
    row += n
    for _ in range(full):
        a, b = scales[scale], scales[scale + stride]
        c, d = scales[scale + U(2) * stride], scales[scale + U(3) * stride]
        at_b, at_c, at_d = row + n, row + U(2) * n, row + U(3) * n
        for j in range(n):
            total[to + j] += a * rows[row + j] + b * rows[at_b + j] + c * rows[at_c + j] + d * rows[at_d + j]
        scale += four * stride
        row += four * n
    for _ in range(rest):
        a = scales[scale]
        for j in range(n):
            total[to + j] += a * rows[row + j]
        scale += stride
        row += n


@numba.njit(**FLAGS)
def move_biases(mean, std, net, work, layer, c):
    """Move a layer's biases: their input is 1."""
    k, here = net.sizes[layer + 1], net.batch * net.units[layer]
    clear(work.g_mean, k)
    clear(work.g_std, k)
    for r in range(net.batch):
        start = U(here + r * k)
        for j in range(U(k)):
            work.g_mean[j] += work.d[start + j]
            work.g_std[j] += work.q[start + j]
    return move_row(mean, std, net.biases[layer], k, work.g_mean, work.g_std, c)


def first_layer(mean, std, net, work, x, start, upcoming, moving, own):
    """Move the first layer by the gradients of the examples from `start` on, and multiply it with those from `upcoming` on.

    If nothing is `moving`, it is only multiplied. Compiled code only.
    """
    raise NotImplementedError


@overload(first_layer, jit_options=FLAGS)
def _first_layer(mean, std, net, work, x, start, upcoming, moving, own):
    if own.instance_class is ThroughSlope or not hasattr(rule_of(own.instance_class), "uncut_step"):
        return lambda mean, std, net, work, x, start, upcoming, moving, own: first_layer_of_many(
            mean, std, net, work, x, start, upcoming, moving, own
        )

    def first_layer_of_one_or_many(mean, std, net, work, x, start, upcoming, moving, own):
        if net.batch == 1:
            return first_layer_of_one(mean, std, net, work, x, start, upcoming, moving, own)
        return first_layer_of_many(mean, std, net, work, x, start, upcoming, moving, own)

    return first_layer_of_one_or_many


@numba.njit(**FLAGS)
def first_layer_of_one(mean, std, net, work, x, start, upcoming, moving, own):
    """The gradient of one example is an outer product: each weight is moved and multiplied while it is in a register.

    A row that a bound may cut is moved first, by the whole step, and then multiplied. Both ways of multiplying give the same
    bits, so that the weights do not depend on where a chunk begins: its first example finds a layer that was moved before.
    """
    zero, inputs, flat = mean.dtype.type(0), net.sizes[0], x.reshape(-1)
    top = zero
    if moving:
        copy(flat, start * inputs, inputs, work.x)
        squares(work.x, 0, inputs, work.x2)
        top = row_size(work.x, 0, inputs)
    copy(flat, upcoming * inputs, inputs, work.following)
    for unit in range(net.sizes[1]):
        at = unit * inputs
        free = moving
        if moving:
            q, g = (
                Gaussian(work.largest[unit], work.widest[unit]),
                Gaussian(abs(work.d[unit]) * top, work.q[unit] * top * top),
            )
            free = not may_be_cut(q, g, own)
        if free:
            move_and_multiply(mean, std, at, inputs, work, unit, own)
        else:
            if moving:
                move_by_example(mean, std, at, inputs, work.x, work.x2, work.d[unit], work.q[unit], own)
            multiply(mean, std, at, inputs, work.following, work.m, work.widest, work.largest, unit)
    return zero


@numba.njit(**INLINE)
def copy(values, at, n, into):
    """into[:n] = values[at:][:n]."""
    at = U(at)
    for j in range(U(n)):
        into[j] = values[at + j]


@numba.njit(**INLINE)
def row_size(values, at, n):
    """The largest absolute value of ``values[at:][:n]``."""
    at, n, lanes = U(at), U(n), U(LANES)
    largest = values.dtype.type(0)
    most = spread(largest)
    for block in range(n // lanes):
        most = larger(size(read(values, at + block * lanes)), most)
    for j in range(n // lanes * lanes, n):
        largest = larger(size(values[at + j]), largest)
    return larger(highest(most), largest)


@numba.njit(**INLINE)
def row_bound(values, at, n):
    """A number that no absolute value of ``values[at:][:n]`` exceeds, as `move_and_multiply` finds it."""
    at, n, lanes = U(at), U(n), U(LANES)
    bits = spread(values.dtype.type(0))
    for block in range(n // lanes):
        bits = unite(read(values, at + block * lanes), bits)
    some = united(bits)
    for j in range(n // lanes * lanes, n):
        some = unite(values[at + j], some)
    return united_size(some)


@numba.njit(**INLINE)
def move_and_multiply(mean, std, at, n, work, unit, c):
    """Move a row without looking at the bounds, and multiply it with the next example."""
    at, n, lanes, slope, curvature = U(at), U(n), U(LANES), work.d[unit], work.q[unit]
    x, x2, following = work.x, work.x2, work.following
    zero = mean.dtype.type(0)
    sums, widest, bits = spread(zero), spread(zero), spread(zero)
    for block in range(n // lanes):
        j = block * lanes
        g = Gaussian(slope * read(x, j), curvature * read(x2, j))
        new = uncut(Gaussian(read(mean, at + j), read(std, at + j)), g, c)
        write(mean, at + j, new.mean)
        write(std, at + j, new.std)
        sums = fused(read(following, j), new.mean, sums)
        widest, bits = larger(new.std, widest), unite(new.mean, bits)
    rest, wide, some = zero, highest(widest), united(bits)
    for j in range(n // lanes * lanes, n):
        new = uncut(Gaussian(mean[at + j], std[at + j]), Gaussian(slope * x[j], curvature * x2[j]), c)
        mean[at + j] = new.mean
        std[at + j] = new.std
        rest = fused(following[j], mean[at + j], rest)
        wide, some = larger(new.std, wide), unite(mean[at + j], some)
    work.m[unit] = total(sums) + rest
    work.widest[unit] = wide
    work.largest[unit] = united_size(some)


@numba.njit(**FLAGS)
def multiply(mean, std, at, n, following, m, widest, largest, unit):
    """Multiply a row with the next example: the same operations in the same order as in `move_and_multiply`."""
    at, n, lanes = U(at), U(n), U(LANES)
    zero = mean.dtype.type(0)
    sums = spread(zero)
    for block in range(n // lanes):
        j = block * lanes
        sums = fused(read(following, j), read(mean, at + j), sums)
    rest = zero
    for j in range(n // lanes * lanes, n):
        rest = fused(following[j], mean[at + j], rest)
    m[unit] = total(sums) + rest
    widest[unit] = row_size(std, at, n)
    largest[unit] = row_bound(mean, at, n)


@numba.njit(**FLAGS)
def move_by_example(mean, std, at, n, x, x2, slope, curvature, c):
    """Move a row of the first layer by the gradient of one example, within the bounds of the step."""
    at = U(at)
    for j in range(U(n)):
        g = Gaussian(slope * x[j], curvature * x2[j])
        new = apply_for_curvature(Gaussian(mean[at + j], std[at + j]), g, c)
        mean[at + j] = new.mean
        std[at + j] = new.std


@numba.njit(**FLAGS)
def first_layer_of_many(mean, std, net, work, x, start, upcoming, moving, k):
    """Gradients, then moves, then the next examples' products, row by row."""
    batch, inputs, first = net.batch, net.sizes[0], net.sizes[1]
    negative = mean.dtype.type(0)
    flat = x.reshape(-1)
    if moving:
        squares(flat, start * inputs, batch * inputs, work.x2)
    for unit in range(first):
        at = unit * inputs
        if moving:
            combine(work.g_mean, 0, inputs, work.d, unit, first, batch, flat, start * inputs)
            combine(work.g_std, 0, inputs, work.q, unit, first, batch, work.x2, 0)
            negative += move_row(mean, std, at, inputs, work.g_mean, work.g_std, k)
        for b in range(batch):
            work.m[b * first + unit] = dot(flat, (upcoming + b) * inputs, mean, at, inputs)
    return negative


def build(label: str) -> Any:
    """The loop of a rule; the label is the name of its compiled form on disk."""

    @on_disk(label)
    def learn(mean, std, net, starts, x, y, given_noise, seed, first_step, c, idle, work):
        """As `mesu.engine.local`, without noise; `net` has one sample and `work` is a `Scratch`."""
        batch, layers = net.batch, len(net.sizes) - 1
        each = 2 if net.has_bias else 1  # parameters of a layer
        updates = len(x) // batch
        negative = mean.dtype.type(0)
        own = for_curvature(constants_of(c, starts[0]))
        for update in range(-1, updates):
            start = update * batch
            upcoming = min(start + batch, len(x) - batch)
            if update >= 0:
                for layer in range(layers):
                    forward(mean, net, work, layer)
                linearise(mean, net, work, y, start)
                for layer in range(layers):
                    if layer > 0:
                        of_weights = for_curvature(constants_of(c, starts[layer * each]))
                        negative += move_layer(mean, std, net, work, layer, of_weights)
                    if net.has_bias:
                        of_biases = for_curvature(constants_of(c, starts[layer * each + 1]))
                        negative += move_biases(mean, std, net, work, layer, of_biases)
            negative += first_layer(mean, std, net, work, x, start, upcoming, update >= 0, own)
        return negative

    return learn
