"""The compiled stream loop of a plain network under a weight rule (SGD, EWC, SI, ...), and the Fisher pass of a boundary.

As in `mesu.engine.local`, each row of the first layer is moved and at once multiplied with the next example, so that each
weight is read and written once per update.
"""

from typing import Any

import numba
from numba.extending import overload

from mesu.engine.compiled import FLAGS, in_precision, on_disk, precision_of
from mesu.engine.kernels import INLINE, U, accumulate, back_through, clear, loss_gradient, nonlinear
from mesu.rules.parts import rule_of

MOST_STATE = 4  # numbers that a rule may remember of a weight


def state_rows(state, start, size, c):
    """The slices of the rule's state that belong to a row of weights; compiled code only."""
    raise NotImplementedError


@overload(state_rows, jit_options=FLAGS)
def _state_rows(state, start, size, c):
    fields = len(rule_of(c.instance_class).State._fields)
    if fields == 0:
        return lambda state, start, size, c: ()
    if fields == 1:
        return lambda state, start, size, c: (state[0, start : start + size],)
    if fields == 2:
        return lambda state, start, size, c: (state[0, start : start + size], state[1, start : start + size])
    if fields == 3:
        return lambda state, start, size, c: (
            state[0, start : start + size],
            state[1, start : start + size],
            state[2, start : start + size],
        )
    if fields == 4:
        return lambda state, start, size, c: (
            state[0, start : start + size],
            state[1, start : start + size],
            state[2, start : start + size],
            state[3, start : start + size],
        )
    return None


def move_weight(w, g, kept, j, c):
    """One step of the weight rule that the type of `c` stands for; compiled code only."""
    raise NotImplementedError


@overload(move_weight, jit_options=FLAGS)
def _move_weight(w, g, kept, j, c):
    rule = rule_of(c.instance_class)
    State: Any = rule.State
    step: Any = numba.njit(in_precision(rule.step, precision_of(w)), **FLAGS)

    def stateless(w, g, kept, j, c):
        return step(w, g, State(), c)[0]

    def one(w, g, kept, j, c):
        new, state = step(w, g, State(kept[0][j]), c)
        kept[0][j] = state[0]
        return new

    def two(w, g, kept, j, c):
        new, state = step(w, g, State(kept[0][j], kept[1][j]), c)
        kept[0][j] = state[0]
        kept[1][j] = state[1]
        return new

    def three(w, g, kept, j, c):
        new, state = step(w, g, State(kept[0][j], kept[1][j], kept[2][j]), c)
        kept[0][j] = state[0]
        kept[1][j] = state[1]
        kept[2][j] = state[2]
        return new

    def four(w, g, kept, j, c):
        new, state = step(w, g, State(kept[0][j], kept[1][j], kept[2][j], kept[3][j]), c)
        kept[0][j] = state[0]
        kept[1][j] = state[1]
        kept[2][j] = state[2]
        kept[3][j] = state[3]
        return new

    return {0: stateless, 1: one, 2: two, 3: three, 4: four}[len(State._fields)]


@numba.njit(**INLINE)
def dot(h, start, weight, at, n):
    """One pre-activation."""
    total, start, at = h.dtype.type(0), U(start), U(at)
    for j in range(U(n)):
        total += h[start + j] * weight[at + j]
    return total


@numba.njit(**FLAGS)
def forward(weight, net, work, layer):
    """Outputs of one layer; the first layer's products are in `work.m` already."""
    n, k, rows = net.sizes[layer], net.sizes[layer + 1], net.batch
    here = rows * net.units[layer]
    for r in range(rows):
        for unit in range(k):
            if layer == 0:
                out = work.m[r * k + unit]
            else:
                below = rows * net.units[layer - 1] + r * n
                out = dot(work.h, below, weight, net.weights[layer] + unit * n, n)
            if net.has_bias:
                out += weight[net.biases[layer] + unit]
            work.h[here + r * k + unit] = out
    if layer < len(net.sizes) - 2:
        nonlinear(work.h, here, rows * k, net.tanh)


@numba.njit(**FLAGS)
def send_down(weight, net, work, layer):
    """Slopes of the loss at the pre-activations of the layer below."""
    n, k = net.sizes[layer], net.sizes[layer + 1]
    here, below = net.batch * net.units[layer], net.batch * net.units[layer - 1]
    for r in range(net.batch):
        clear(work.down, n)
        accumulate(work.down, n, work.d, here + r * k, 1, k, weight, net.weights[layer])
        back_through(work.h, work.d, below + r * n, n, work.down, work.zeros, 0, net.tanh)


@numba.njit(**INLINE)
def move_row(weight, state, start, n, g, c):
    """Move ``n`` weights from `start` on by their gradients."""
    kept = state_rows(state, start, n, c)
    start = U(start)
    for j in range(U(n)):
        weight[start + j] = move_weight(weight[start + j], g[j], kept, j, c)


@numba.njit(**FLAGS)
def move_layer(weight, state, net, work, layer, c):
    """Move the weights of a layer above the first."""
    n, k = net.sizes[layer], net.sizes[layer + 1]
    here, below = net.batch * net.units[layer], net.batch * net.units[layer - 1]
    for unit in range(k):
        clear(work.g_mean, n)
        accumulate(work.g_mean, n, work.d, here + unit, k, net.batch, work.h, below)
        move_row(weight, state, net.weights[layer] + unit * n, n, work.g_mean, c)


@numba.njit(**FLAGS)
def move_biases(weight, state, net, work, layer, c):
    """Move a layer's biases: their input is 1."""
    k, here = net.sizes[layer + 1], net.batch * net.units[layer]
    clear(work.g_mean, k)
    for r in range(net.batch):
        for j in range(k):
            work.g_mean[j] += work.d[here + r * k + j]
    move_row(weight, state, net.biases[layer], k, work.g_mean, c)


@numba.njit(**FLAGS)
def move_and_multiply(weight, state, spare, moving, x, d, c, following, m, units):
    """Move the first layer by the gradient of one example, an outer product, and multiply it with the one that follows.

    While nothing moves, the rule is given a spare state to write to.
    """
    n = U(x.size)
    for unit in range(U(units)):
        at = unit * n
        kept = state_rows(state if moving else spare, at if moving else U(0), n, c)
        slope, total = d[unit], weight.dtype.type(0)
        for j in range(n):
            new = move_weight(weight[at + j], slope * x[j], kept, j, c)
            weight[at + j] = new
            total += following[j] * new
        m[unit] = total


@numba.njit(**FLAGS)
def first_layer_of_many(weight, state, net, work, x, start, upcoming, moving, c):
    """The same for several examples an update: gradients, then moves, then the next examples' products, row by row.

    It also serves single examples under a rule without `idle`, the constants that move nothing.
    """
    inputs, first = net.sizes[0], net.sizes[1]
    flat = x.reshape(-1)
    for unit in range(first):
        at = unit * inputs
        if moving:
            clear(work.g_mean, inputs)
            accumulate(work.g_mean, inputs, work.d, unit, first, net.batch, flat, start * inputs)
            move_row(weight, state, at, inputs, work.g_mean, c)
        for b in range(net.batch):
            work.m[b * first + unit] = dot(flat, (upcoming + b) * inputs, weight, at, inputs)


def build(label: str) -> Any:
    """The loop of a rule; the label is the name of its compiled form on disk."""

    @on_disk(label)
    def learn(weight, state, spare, net, x, y, c, idle, work):
        """Learn ``x`` and ``y``, `net.batch` examples an update.

        Args:
            weight: Weights of all layers, one after the other, weights then bias.
            state: What the rule remembers of each weight, a row for each field of its `State`.
            spare: A state for one row of the first layer, to be written to and not read.
            net: `Network` with one sample.
            x: Inputs, one a row.
            y: Class numbers, or targets one a row.
            c: Constants; their type says which rule.
            idle: Constants under which a step moves nothing; None if the rule has none.
            work: `Work`.
        """
        batch, layers = net.batch, len(net.sizes) - 1
        first = net.sizes[1]
        updates = len(x) // batch
        for update in range(-1, updates):
            start = update * batch
            upcoming = min(start + batch, len(x) - batch)
            if update >= 0:
                for layer in range(layers):
                    forward(weight, net, work, layer)
                loss_gradient(work.h, work.d, batch * net.units[layers - 1], net, y, start)
                for layer in range(layers - 1, 0, -1):
                    send_down(weight, net, work, layer)
                    move_layer(weight, state, net, work, layer, c)
                    if net.has_bias:
                        move_biases(weight, state, net, work, layer, c)
                if net.has_bias:
                    move_biases(weight, state, net, work, 0, c)
            if idle is None:
                first_layer_of_many(weight, state, net, work, x, start, upcoming, update >= 0, c)
            elif batch == 1:
                # update -1 only multiplies the first example. It runs the same machine code as every other update, with
                # constants that move nothing: so the weights do not depend on where a chunk begins
                now = c if update >= 0 else idle
                here = max(start, 0)
                move_and_multiply(weight, state, spare, update >= 0, x[here], work.d, now, x[upcoming], work.m, first)
            else:
                first_layer_of_many(weight, state, net, work, x, start, upcoming, update >= 0, c)
        return 0

    return learn


def build_fisher(label: str) -> Any:
    """The pass over a task's examples at its end, which is the same for all rules."""

    @on_disk(label)
    def fisher(weight, net, x, y, total, work):
        """Add the squared gradient of every example, one at a time, to `total`."""
        layers = len(net.sizes) - 1
        for example in range(len(x)):
            for unit in range(net.sizes[1]):
                work.m[unit] = dot(x[example], 0, weight, unit * net.sizes[0], net.sizes[0])
            for layer in range(layers):
                forward(weight, net, work, layer)
            loss_gradient(work.h, work.d, net.units[layers - 1], net, y, example)
            for layer in range(layers - 1, -1, -1):
                if layer > 0:
                    send_down(weight, net, work, layer)
                n, k, below = net.sizes[layer], net.sizes[layer + 1], net.units[max(layer - 1, 0)]
                for unit in range(k):
                    d = work.d[net.units[layer] + unit]
                    at = net.weights[layer] + unit * n
                    into = total[at : at + n]
                    row = x[example] if layer == 0 else work.h[below : below + n]
                    for j in range(n):
                        into[j] += (d * row[j]) * (d * row[j])
                    if net.has_bias:
                        total[net.biases[layer] + unit] += d * d

    return fisher
