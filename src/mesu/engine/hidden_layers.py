"""Layers above the first in local form: products of all their weights with every row (a sample of an example).

A weight here meets another input in each row, so this is where the arithmetic is: 20 multiply-adds a weight and pass at ten
samples, of which those with a zero, about half under ReLU, are left out.

    m_ku = sum_j h_ju mu_kj               v_ku = sum_j h_ju^2 sigma_kj^2
    dL/dh_ju = sum_k d_ku mu_kj + h_ju sum_k (d_ku e_ku / s_ku) sigma_kj^2

Each of these, and each gradient, is a sum of rows times numbers (`combine`). The rows lie in a tile: a few rows of a panel's
length, one after the other, which the nearest cache holds. Sums stay in registers (`mesu.engine.lanes`).
"""

from typing import Any, NamedTuple

import numba

from mesu.engine.compiled import FLAGS
from mesu.engine.kernels import INLINE, U, back_through, move_row, squares
from mesu.engine.lanes import LANES, lowest, multiply_add, nonzero, read, spread, turn, turn_squares, write

PANEL = 4 * LANES  # numbers of a row that are summed at a time
TILE = 32  # rows of a tile of weights: means and variances fill half of the first-level cache, 32 KiB
FEWEST = 8  # rows of a tile at least, however many inputs a unit has
WAITING = 16384  # gradients that are computed before they are used: they stay in the second-level cache
BITS = 64  # in a word of marks
L, P = U(LANES), U(PANEL)


class Rows(NamedTuple):
    """Rows to be summed: they begin at `start`, a panel apart."""

    first: Any
    second: Any
    start: Any


class Factors(NamedTuple):
    """What they are multiplied with: `of_first` from `start`, `of_second` from `start2`, both in steps of `stride`."""

    of_first: Any
    start: Any
    of_second: Any
    start2: Any
    stride: Any


class Marks(NamedTuple):
    """Which of the rows are added: a bit for each, `words` words of bits from `start` in steps of `stride`.

    A word is shifted right by `skip`, then masked: bits outside of `mask` belong to other rows.
    """

    bits: Any
    start: Any
    words: Any
    stride: Any
    skip: Any
    mask: Any


def whole(count: int, unit: int = LANES) -> int:
    """The next multiple of `unit`: the length of a row that is read and written in whole vectors."""
    return -(-count // unit) * unit


def words(count: int) -> int:
    """How many words hold a bit for each of `count` numbers."""
    return -(-count // BITS)


def together(inputs: int) -> int:
    """How many units are taken at a time: as many as a tile has rows, or less where they have many inputs."""
    units = TILE
    while units > FEWEST and units * whole(inputs) > WAITING:
        units //= 2
    return units


@numba.njit(**INLINE)
def _whole(count):
    return (U(count) + L - U(1)) // L * L


@numba.njit(**INLINE)
def _words(count):
    return (U(count) + U(BITS) - U(1)) // U(BITS)


@numba.njit(**INLINE)
def _together(inputs):
    units = U(TILE)
    while units > U(FEWEST) and units * _whole(inputs) > U(WAITING):
        units //= U(2)
    return units


@numba.njit(**INLINE)
def mark_rows(values, start, rows, n, bits):
    """A bit for each number that is not zero, row by row."""
    zero, n, each = values.dtype.type(0), U(n), _words(n)
    for r in range(U(rows)):
        row, to = U(start) + r * n, r * each
        for word in range(each):
            bits[to + word] = U(0)
        full = n // L * L
        for j in range(U(0), full, L):
            bits[to + j // U(BITS)] |= nonzero(values, row + j) << (j % U(BITS))
        for j in range(full, n):
            bits[to + j // U(BITS)] |= U(values[row + j] != zero) << (j % U(BITS))


@numba.njit(**INLINE)
def mark_columns(values, start, rows, n, bits):
    """The same column by column: the first words of all columns, then the second words, ..."""
    zero, n = values.dtype.type(0), U(n)
    for j in range(n * _words(rows)):
        bits[j] = U(0)
    for r in range(U(rows)):
        row, to, bit = U(start) + r * n, r // U(BITS) * n, r % U(BITS)
        for j in range(n):
            bits[to + j] |= U(values[row + j] != zero) << bit


@numba.njit(**INLINE)
def combine(out, out2, to, lanes, rows, factors, marks, anew):
    """Add the marked rows times their factors: ``out[to:][:lanes] += sum_i factor_i row_i``, `out2` likewise; from 0 if `anew`.

    `lanes` is a whole number of vectors, a panel at most.
    """
    zero = spread(out.dtype.type(0))
    l2, l3 = U(2) * L, U(3) * L
    if lanes == P:
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero
        if not anew:
            a0, a1, a2, a3 = read(out, to), read(out, to + L), read(out, to + l2), read(out, to + l3)
            b0, b1, b2, b3 = read(out2, to), read(out2, to + L), read(out2, to + l2), read(out2, to + l3)
        for word in range(marks.words):
            left = (marks.bits[marks.start + word * marks.stride] >> marks.skip) & marks.mask
            while left != U(0):
                i = word * U(BITS) + lowest(left)
                left &= left - U(1)
                row, step = rows.start + i * P, i * factors.stride
                x, y = spread(factors.of_first[factors.start + step]), spread(factors.of_second[factors.start2 + step])
                a0 = multiply_add(x, read(rows.first, row), a0)
                a1 = multiply_add(x, read(rows.first, row + L), a1)
                a2 = multiply_add(x, read(rows.first, row + l2), a2)
                a3 = multiply_add(x, read(rows.first, row + l3), a3)
                b0 = multiply_add(y, read(rows.second, row), b0)
                b1 = multiply_add(y, read(rows.second, row + L), b1)
                b2 = multiply_add(y, read(rows.second, row + l2), b2)
                b3 = multiply_add(y, read(rows.second, row + l3), b3)
        write(out, to, a0)
        write(out, to + L, a1)
        write(out, to + l2, a2)
        write(out, to + l3, a3)
        write(out2, to, b0)
        write(out2, to + L, b1)
        write(out2, to + l2, b2)
        write(out2, to + l3, b3)
    else:
        for j in range(U(0), lanes, L):
            a0 = b0 = zero
            if not anew:
                a0, b0 = read(out, to + j), read(out2, to + j)
            for word in range(marks.words):
                left = (marks.bits[marks.start + word * marks.stride] >> marks.skip) & marks.mask
                while left != U(0):
                    i = word * U(BITS) + lowest(left)
                    left &= left - U(1)
                    row, step = rows.start + i * P + j, i * factors.stride
                    a0 = multiply_add(spread(factors.of_first[factors.start + step]), read(rows.first, row), a0)
                    b0 = multiply_add(spread(factors.of_second[factors.start2 + step]), read(rows.second, row), b0)
            write(out, to + j, a0)
            write(out2, to + j, b0)


@numba.njit(**INLINE)
def tile_of_inputs(mean, std, start, n, units, inputs, work):
    """Tiles of means and variances with a row for each input: ``tile[j, unit] = mean[unit, j]``."""
    for unit in range(U(0), units, L):
        for j in range(U(0), inputs, L):
            at, to, count = start + unit * n + j, j * P + unit, min(L, units - unit)
            if at + (count - U(1)) * n + L <= U(mean.size):
                turn(mean, at, n, count, work.tile, to, P)
                turn_squares(std, at, n, count, work.tile2, to, P)
            else:
                for u in range(count):
                    for i in range(min(L, inputs - j)):
                        work.tile[to + i * P + u] = mean[at + u * n + i]
                        work.tile2[to + i * P + u] = std[at + u * n + i] * std[at + u * n + i]


@numba.njit(**INLINE)
def tile_of_units(mean, std, start, n, units, inputs, work):
    """Tiles of means and variances with a row for each unit; what vectors write past the end of a row is not used."""
    zero, lanes = spread(mean.dtype.type(0)), _whole(inputs)
    for unit in range(units):
        row, to = start + unit * n, unit * P
        if row + lanes <= U(mean.size):
            for j in range(U(0), lanes, L):
                sigma = read(std, row + j)
                write(work.tile, to + j, read(mean, row + j))
                write(work.tile2, to + j, multiply_add(sigma, sigma, zero))
        else:
            for j in range(inputs):
                work.tile[to + j] = mean[row + j]
                work.tile2[to + j] = std[row + j] * std[row + j]


@numba.njit(**INLINE)
def panels_of_inputs(h, start, n, rows, work):
    """All inputs of a layer and their squares, panel after panel, a row for each row."""
    for j in range(U(0), n, P):
        for r in range(rows):
            row, to = start + r * n + j, j * rows + r * P
            for i in range(min(n - j, P)):
                work.panels[to + i] = h[row + i]
                work.panels2[to + i] = h[row + i] * h[row + i]


@numba.njit(**FLAGS)
def moments(mean, std, at, n, k, rows, h, start, m, v, work):
    """Mean and variance of every row's pre-activations."""
    squares(h, start, rows * n, work.h2)
    mark_rows(h, start, rows, n, work.marks)
    at, n, k, rows, start, length, each = U(at), U(n), U(k), U(rows), U(start), _whole(k), _words(n)
    tile, mask = Rows(work.tile, work.tile2, U(0)), (U(1) << U(TILE)) - U(1)
    for unit in range(U(0), k, P):
        lanes = min(length - unit, P)
        for j in range(U(0), n, U(TILE)):
            tile_of_inputs(mean, std, at + unit * n + j, n, min(k - unit, P), min(n - j, U(TILE)), work)
            for r in range(rows):
                inputs = Factors(h, start + r * n + j, work.h2, r * n + j, U(1))
                marks = Marks(work.marks, r * each + j // U(BITS), U(1), U(1), j % U(BITS), mask)
                combine(work.down, work.down2, r * length + unit, lanes, tile, inputs, marks, j == U(0))
    for r in range(rows):
        for j in range(k):
            m[r * k + j] = work.down[r * length + j]
            v[r * k + j] = work.down2[r * length + j]


@numba.njit(**FLAGS)
def back(mean, std, at, n, k, rows, h, d, q, below, here, c, tanh, work):
    """Slopes at the layer below, and this layer's weights moved; q is d e / s.

    Returns:
        Zero, unless a sigma went negative: then how far, summed up.
    """
    negative = mean.dtype.type(0)
    at, n, k, rows, below, here = U(at), U(n), U(k), U(rows), U(below), U(here)
    length, last, each, block = _whole(n), (n - U(1)) // P * P, _words(k), _together(n)
    mark_rows(d, here, rows, k, work.marks)
    mark_columns(d, here, rows, k, work.columns)
    panels_of_inputs(h, below, n, rows, work)
    tile, mask = Rows(work.tile, work.tile2, U(0)), (U(1) << block) - U(1)
    for first in range(U(0), k, block):
        units, weights = min(block, k - first), at + first * n
        # panels from the last to the first, and units in order: vector stores overrun into the next row, which is then written
        # afterwards
        for before in range(U(0), n, P):
            j = last - before
            inputs = min(n - j, P)
            lanes = _whole(inputs)
            tile_of_units(mean, std, weights + j, n, units, inputs, work)
            for r in range(rows):
                start = here + r * k + first
                slopes = Factors(d, start, q, start, U(1))
                marks = Marks(work.marks, r * each + first // U(BITS), U(1), U(1), first % U(BITS), mask)
                combine(work.down, work.down2, r * length + j, lanes, tile, slopes, marks, first == U(0))
            panel = Rows(work.panels, work.panels2, j * rows)
            for unit in range(units):
                start = here + first + unit
                slopes = Factors(d, start, q, start, k)
                marks = Marks(work.columns, first + unit, _words(rows), k, U(0), ~U(0))
                combine(work.g_mean, work.g_std, unit * n + j, lanes, panel, slopes, marks, True)
        negative += move_row(mean, std, weights, units * n, work.g_mean, work.g_std, c, False)
    for r in range(rows):
        back_through(h, d, below + r * n, n, work.down, work.down2, r * length, tanh)
    return negative
