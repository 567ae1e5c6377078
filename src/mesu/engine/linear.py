"""The compiled stream loop of a posterior without a draw (estimator "linear"): gradient and curvature at the means.

For each example, with r = dLoss / d outputs, Lambda the curvature of the loss in the outputs (diag(p) - p p^T of classes,
1/noise^2 of numbers) and G[c, k] = d output_c / d pre-activation k at the means,

    d_k = (G^T r)_k                     g_mu_kj = sum_b d_k x_j
    q_k = (G^T Lambda G)_kk             h_kj    = sum_b q_k x_j^2

over the examples b of an update: the Gauss-Newton part of the Hessian, of which `mesu.rules.curvature` makes sigma's gradient.
G is carried down the layers, a row for each output. As q is never negative, evidence only narrows sigma.

The first layer is moved as in `mesu.engine.local`: each row is multiplied with the next example while it is in a register.
"""

from typing import Any, NamedTuple

import numba
from numba.extending import overload

from mesu.engine.compiled import FLAGS, on_disk
from mesu.engine.deterministic import forward
from mesu.engine.kernels import INLINE, U, accumulate, clear, constants_of, loss_gradient, move_row, squares
from mesu.engine.layout import aligned
from mesu.engine.local import first_layer_of_many, move_and_multiply, move_biases


class Scratch(NamedTuple):
    """Buffers, made once for a chunk."""

    h: Any  # activations
    d: Any  # slopes: dLoss / d pre-activation
    q: Any  # curvatures of the loss in each pre-activation
    m: Any  # the first layer's pre-activations of the next examples
    x2: Any  # squares of the examples being learned
    upcoming2: Any  # squares of the next examples
    g_mean: Any  # gradients of one row of weights, those of sigma without their factor sigma
    g_std: Any
    h2: Any  # squares of a layer's inputs
    jacobian: Any  # d output / d activation of one layer and example, a row for each output
    below: Any  # the same of the layer below it
    p: Any  # probabilities of the classes
    average: Any  # of the rows of the Jacobian, under these probabilities


def scratch(sizes: tuple[int, ...], batch: int, dtype) -> Scratch:
    """Buffers to learn a network of these sizes."""
    widest, units, outputs = max(sizes), batch * sum(sizes[1:]), sizes[-1]
    lengths = {
        "h": units,
        "d": units,
        "q": units,
        "m": batch * sizes[1],
        "x2": batch * sizes[0],
        "upcoming2": batch * sizes[0],
        "g_mean": widest,
        "g_std": widest,
        "h2": batch * max(sizes[1:]),
        "jacobian": outputs * max(sizes[1:]),
        "below": outputs * max(sizes[1:]),
        "p": outputs,
        "average": max(sizes[1:]),
    }
    return Scratch(**{name: aligned(length, dtype) for name, length in lengths.items()})


def curvature(jacobian, rows, n, q, at, net, target, work):
    """Write q_k = (G^T Lambda G)_kk of one example, G still without the slopes of the activations; compiled code only.

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
        # the variance of G's rows under p, from their average: a difference of squares could turn negative
        rows, n, at = U(rows), U(n), U(at)
        clear(work.average, n)
        for c in range(U(net.sizes[-1])):
            p, row = work.p[c], rows + c * n
            for j in range(n):
                work.average[j] += p * jacobian[row + j]
        for j in range(n):
            q[at + j] = q.dtype.type(0)
        for c in range(U(net.sizes[-1])):
            p, row = work.p[c], rows + c * n
            for j in range(n):
                apart = jacobian[row + j] - work.average[j]
                q[at + j] += p * apart * apart

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
    for j in range(n):
        work.d[here + j] = mean.dtype.type(0)
    for c in range(outputs):
        r, row = work.d[top + c], U(rows) + c * n
        for j in range(n):
            work.d[here + j] += r * jacobian[row + j]
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


@numba.njit(**FLAGS)
def move_layer(mean, std, net, work, layer, c):
    """Move the weights of a layer above the first."""
    n, k = net.sizes[layer], net.sizes[layer + 1]
    here, below = net.batch * net.units[layer], net.batch * net.units[layer - 1]
    negative = mean.dtype.type(0)
    squares(work.h, below, net.batch * n, work.h2)
    for unit in range(k):
        clear(work.g_mean, n)
        clear(work.g_std, n)
        accumulate(work.g_mean, n, work.d, here + unit, k, net.batch, work.h, below)
        accumulate(work.g_std, n, work.q, here + unit, k, net.batch, work.h2, 0)
        negative += move_row(mean, std, net.weights[layer] + unit * n, n, work.g_mean, work.g_std, c, None)
    return negative


def build(label: str) -> Any:
    """The loop of a rule; the label is the name of its compiled form on disk."""

    @on_disk(label)
    def learn(mean, std, net, starts, x, y, given_noise, seed, first_step, c, idle, work):
        """As `mesu.engine.local`, without noise; `net` has one sample and `work` is a `Scratch`."""
        batch, layers = net.batch, len(net.sizes) - 1
        first = net.sizes[1]
        each = 2 if net.has_bias else 1  # parameters of a layer
        updates = len(x) // batch
        negative = mean.dtype.type(0)
        own = constants_of(c, starts[0])
        for update in range(-1, updates):
            start = update * batch
            upcoming = min(start + batch, len(x) - batch)
            if update >= 0:
                for layer in range(layers):
                    forward(mean, net, work, layer)
                linearise(mean, net, work, y, start)
                for layer in range(layers):
                    if layer > 0:
                        negative += move_layer(mean, std, net, work, layer, constants_of(c, starts[layer * each]))
                    if net.has_bias:
                        of_biases = constants_of(c, starts[layer * each + 1])
                        negative += move_biases(mean, std, net, work, layer, batch, of_biases, None)
                for j in range(U(batch * net.sizes[0])):
                    work.x2[j] = work.upcoming2[j]
            squares(x.reshape(-1), upcoming * net.sizes[0], batch * net.sizes[0], work.upcoming2)
            if idle is None:
                negative += first_layer_of_many(mean, std, net, work, None, x, start, upcoming, update >= 0, own)
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
                    None,
                    first,
                )
            else:
                negative += first_layer_of_many(mean, std, net, work, None, x, start, upcoming, update >= 0, own)
        return negative

    return learn
