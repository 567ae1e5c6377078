"""Drawn outputs of a perceptron for `PosteriorEngine.draw`: in local form, a block of rows at a time, on several threads.

Each row has its own noise, a function of the seed and the row's number, and its own sums, so neither threads nor
chunks change a bit.
"""

from typing import Any, NamedTuple

import numba
import numpy as np

from mesu.engine.compiled import FLAGS
from mesu.engine.hidden_layers import PANEL, TILE, moments, whole, words
from mesu.engine.kernels import U, add_biases, nonlinear
from mesu.engine.noise import even, fill_normals

MOST, LEAST = 64, 4  # rows in a block: they share the work of laying out the weights
ROOM = 1 << 19  # most activations of one layer that a block may have


class Scratch(NamedTuple):
    """Buffers for a block of rows."""

    block: int  # rows in it
    noise: Any  # of every row, sample and unit
    h: Any  # activations of every sample of every row
    m: Any  # means and standard deviations of pre-activations
    v: Any
    down: Any  # as in `mesu.engine.kernels.Work`
    down2: Any
    h2: Any
    tile: Any
    tile2: Any
    marks: Any


def scratch(sizes: tuple[int, ...], samples: int, dtype) -> Scratch:
    """Buffers to predict with a network of these sizes."""
    above, block = sizes[1:], MOST
    while block > LEAST and block * samples * max(above) > ROOM:
        block //= 2
    rows = block * samples
    inputs = max(block * sizes[0], rows * max(above))
    lengths = {
        "noise": block * even(samples * sum(above)),
        "h": rows * max(above),
        "m": rows * max(above),
        "v": rows * max(above),
        "down": rows * whole(max(above)),
        "down2": rows * whole(max(above)),
        "h2": inputs,
        "tile": TILE * PANEL,
        "tile2": TILE * PANEL,
    }
    bits = np.zeros(max(block * words(sizes[0]), rows * words(max(above))), np.uint64)
    return Scratch(block, **{name: np.zeros(length, dtype) for name, length in lengths.items()}, marks=bits)


@numba.njit(**FLAGS)
def draw(net, layer, count, work, different):
    """Pre-activations A = m + s e for every sample of `count` rows.

    There is one m and v for each row (`different` = count, the first layer) or for each sample and row.
    """
    k, at, zero = net.sizes[layer + 1], net.units[layer], work.m.dtype.type(0)
    normals = len(work.noise) // work.block
    for j in range(U(different * k)):
        work.v[j] = np.sqrt(max(work.v[j], zero))
    for s in range(net.samples):
        for b in range(count):
            row, noise = U((s * count + b) * k), U(b * normals + s * net.units[-1] + at)
            of = U(b * k) if different == count else row
            for j in range(U(k)):
                work.h[row + j] = work.m[of + j] + work.v[of + j] * work.noise[noise + j]


def build(fingerprint: str):
    """The compiled loop. It names the `fingerprint` of the sources, so that numba's cache is not used after a change."""

    @numba.njit(cache=True, **FLAGS)
    def predict(mean, std, net, x, seed, first_row, out, work):
        """Fill ``out[samples, rows, outputs]`` with drawn outputs; `first_row` is the number of the first row."""
        fingerprint  # noqa: B018  # type: ignore[reportUnusedExpression]
        flat, samples, normals = x.reshape(-1), net.samples, len(work.noise) // work.block
        for start in range(0, len(x), work.block):
            count = min(work.block, len(x) - start)
            for b in range(count):
                fill_normals(work.noise[b * normals : (b + 1) * normals], seed, first_row + start + b)
            for layer in range(len(net.sizes) - 1):
                n, k = net.sizes[layer], net.sizes[layer + 1]
                # the inputs of the first layer are the same in every sample
                rows = samples * count if layer > 0 else count
                if layer > 0:
                    nonlinear(work.h, 0, rows * n, net.tanh)
                    moments(mean, std, net.weights[layer], n, k, rows, work.h, 0, work.m, work.v, work)
                else:
                    moments(mean, std, net.weights[0], n, k, rows, flat, start * n, work.m, work.v, work)
                if net.has_bias:
                    add_biases(mean, std, net.biases[layer], k, rows, work.m, work.v)
                draw(net, layer, count, work, rows)
            for s in range(samples):
                for b in range(count):
                    for j in range(net.sizes[-1]):
                        out[s, start + b, j] = work.h[(s * count + b) * net.sizes[-1] + j]

    return predict
