"""Layers above the first in local form: products of all their weights with every row (a sample of an example).

A weight here meets another input in each row, so this is where the arithmetic is: 20 multiply-adds a weight and pass at ten
samples. Sums stay in registers (`mesu.engine.lanes`); the layer is taken a few units at a time, so that it is read from the
nearest cache.

    m_ku = sum_j h_ju mu_kj               v_ku = sum_j h_ju^2 sigma_kj^2
    dL/dh_ju = sum_k d_ku mu_kj + h_ju sum_k (d_ku e_ku / s_ku) sigma_kj^2
"""

import numba

from mesu.engine.compiled import FLAGS
from mesu.engine.lanes import LANES, multiply_add, read, spread, write
from mesu.engine.rows import INLINE, U, back_through, move_row, squares

L = U(LANES)
NEAR = 4096  # weights of the units taken together: their means and variances fill the nearest cache, 32 KiB
FEWEST = 8  # units taken together however wide they are


def whole(count: int) -> int:
    """The next multiple of LANES: how long a row is that vectors may run over."""
    return -(-count // LANES) * LANES


def together(inputs: int) -> int:
    """How many units are taken at a time."""
    return max(FEWEST, NEAR // whole(inputs))


@numba.njit(**INLINE)
def _whole(count):
    return (U(count) + L - U(1)) // L * L


@numba.njit(**INLINE)
def turn(h, start, rows, n, turned):
    """Activations with the rows in the lanes: ``turned[j, r] = h[r, j]``."""
    start, n, lanes = U(start), U(n), _whole(rows)
    for r in range(U(rows)):
        row = start + r * n
        for j in range(n):
            turned[j * lanes + r] = h[row + j]


@numba.njit(**INLINE)
def turn_back(turned, rows, k, m):
    """Results of all rows, a row at a time again: ``m[r, unit] = turned[unit, r]``."""
    k, lanes = U(k), _whole(rows)
    for r in range(U(rows)):
        for unit in range(k):
            m[r * k + unit] = turned[unit * lanes + r]


@numba.njit(**FLAGS)
def moments(mean, std, at, n, k, rows, h, start, m, v, work):
    """Mean and variance of every row's pre-activations, four units at a time."""
    zero = spread(mean.dtype.type(0))
    turned, turned2, var, turned_m, turned_v = work.turned, work.turned2, work.layer_var, work.turned_m, work.turned_v
    turn(h, start, rows, n, turned)
    squares(turned, 0, U(n) * _whole(rows), turned2)
    squares(std, at, k * n, var)
    n, k, at, lanes = U(n), U(k), U(at), _whole(rows)
    for first in range(U(0), lanes, L):
        for unit in range(U(0), k, U(4)):
            # a fourth unit that is not there repeats the last one
            u1, u2, u3 = min(unit + U(1), k - U(1)), min(unit + U(2), k - U(1)), min(unit + U(3), k - U(1))
            s0, s1, s2, s3 = unit * n, u1 * n, u2 * n, u3 * n
            m0 = m1 = m2 = m3 = v0 = v1 = v2 = v3 = zero
            here = first
            for j in range(n):
                a, a2 = read(turned, here), read(turned2, here)
                m0 = multiply_add(spread(mean[at + s0 + j]), a, m0)
                m1 = multiply_add(spread(mean[at + s1 + j]), a, m1)
                m2 = multiply_add(spread(mean[at + s2 + j]), a, m2)
                m3 = multiply_add(spread(mean[at + s3 + j]), a, m3)
                v0 = multiply_add(spread(var[s0 + j]), a2, v0)
                v1 = multiply_add(spread(var[s1 + j]), a2, v1)
                v2 = multiply_add(spread(var[s2 + j]), a2, v2)
                v3 = multiply_add(spread(var[s3 + j]), a2, v3)
                here += lanes
            t0, t1, t2, t3 = unit * lanes + first, u1 * lanes + first, u2 * lanes + first, u3 * lanes + first
            write(turned_m, t3, m3)
            write(turned_m, t2, m2)
            write(turned_m, t1, m1)
            write(turned_m, t0, m0)
            write(turned_v, t3, v3)
            write(turned_v, t2, v2)
            write(turned_v, t1, v1)
            write(turned_v, t0, v0)
    turn_back(turned_m, rows, k, m)
    turn_back(turned_v, rows, k, v)


@numba.njit(**INLINE)
def pick(d, q, start, stride, count, step, work):
    """Keep what is not zero of ``d[start::stride]``, with q and with where its row of `step` numbers begins; says how many."""
    zero, kept = d.dtype.type(0), U(0)
    here = U(start)
    for i in range(U(count)):
        work.where[kept] = i * U(step)
        work.picked_d[kept] = d[here]
        work.picked_q[kept] = q[here]
        kept += U(d[here] != zero)
        here += U(stride)
    return kept


@numba.njit(**INLINE)
def combine(out, out2, to, length, rows, rows2, count, anew, work):
    """Sums of the picked rows: ``out[to:][:length] += sum_i d_i rows[where_i:]``, the same of q and rows2; from 0 if `anew`."""
    where, ds, qs = work.where, work.picked_d, work.picked_q
    zero = spread(out.dtype.type(0))
    at, end = U(0), U(length)
    l2, l3, l4 = U(2) * L, U(3) * L, U(4) * L
    while at + l4 <= end:
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero
        t = U(to) + at
        if not anew:
            a0, a1, a2, a3 = read(out, t), read(out, t + L), read(out, t + l2), read(out, t + l3)
            b0, b1, b2, b3 = read(out2, t), read(out2, t + L), read(out2, t + l2), read(out2, t + l3)
        for i in range(count):
            row, d, q = where[i] + at, spread(ds[i]), spread(qs[i])
            a0 = multiply_add(d, read(rows, row), a0)
            a1 = multiply_add(d, read(rows, row + L), a1)
            a2 = multiply_add(d, read(rows, row + l2), a2)
            a3 = multiply_add(d, read(rows, row + l3), a3)
            b0 = multiply_add(q, read(rows2, row), b0)
            b1 = multiply_add(q, read(rows2, row + L), b1)
            b2 = multiply_add(q, read(rows2, row + l2), b2)
            b3 = multiply_add(q, read(rows2, row + l3), b3)
        write(out, t, a0)
        write(out, t + L, a1)
        write(out, t + l2, a2)
        write(out, t + l3, a3)
        write(out2, t, b0)
        write(out2, t + L, b1)
        write(out2, t + l2, b2)
        write(out2, t + l3, b3)
        at += l4
    while at < end:
        a0 = b0 = zero
        t = U(to) + at
        if not anew:
            a0, b0 = read(out, t), read(out2, t)
        for i in range(count):
            a0 = multiply_add(spread(ds[i]), read(rows, where[i] + at), a0)
            b0 = multiply_add(spread(qs[i]), read(rows2, where[i] + at), b0)
        write(out, t, a0)
        write(out2, t, b0)
        at += L


@numba.njit(**INLINE)
def widen(values, start, count, n, wide, squared):
    """Copy `count` rows of `n` numbers, or their squares, into rows that are whole vectors long; the filling is not used."""
    zero = spread(values.dtype.type(0))
    n, count, length = U(n), U(count), _whole(n)
    safe = (count * n - length) // n + U(1) if count * n >= length else U(0)  # rows followed by enough others
    for i in range(safe):
        row, to = U(start) + i * n, i * length
        for j in range(U(0), length, L):
            some = read(values, row + j)
            write(wide, to + j, multiply_add(some, some, zero) if squared else some)
    for i in range(safe, count):
        for j in range(n):
            one = values[U(start) + i * n + j]
            wide[i * length + j] = one * one if squared else one


@numba.njit(**FLAGS)
def back(mean, std, at, n, k, rows, h, d, q, below, here, c, tanh, work):
    """Slopes at the layer below, and this layer's weights moved; q is d e / s. Rows without a slope are left out.

    Returns:
        Zero, unless a sigma went negative: then how far, summed up.
    """
    length, negative = _whole(n), mean.dtype.type(0)
    widen(h, below, rows, n, work.wide_h, False)
    widen(h, below, rows, n, work.wide_h2, True)
    block = max(U(FEWEST), U(NEAR) // length)
    for first in range(U(0), U(k), block):
        units = min(block, U(k) - first)
        weights, anew = U(at) + first * U(n), first == U(0)
        widen(mean, weights, units, n, work.wide_mean, False)
        widen(std, weights, units, n, work.wide_var, True)
        for r in range(U(rows)):
            count = pick(d, q, U(here) + r * U(k) + first, 1, units, length, work)
            combine(work.down, work.down2, r * length, length, work.wide_mean, work.wide_var, count, anew, work)
        for unit in range(units):
            # a row of gradients may run over into the next one, which is written after it
            count = pick(d, q, U(here) + first + unit, k, rows, length, work)
            combine(work.g_mean, work.g_std, unit * U(n), length, work.wide_h, work.wide_h2, count, True, work)
        negative += move_row(mean, std, weights, units * U(n), work.g_mean, work.g_std, c, False)
    for r in range(U(rows)):
        back_through(h, d, U(below) + r * U(n), n, work.down, work.down2, r * length, tanh)
    return negative
