"""Standard normals for compiled code: a function of (seed, step, index) and nothing else.

There is no state to carry: the same step of the same seed has the same noise whatever the chunk, the thread or the resume
point. A counter is scrambled by two rounds of a 32-bit mixing function under two keys, and each pair of words gives a pair
of normals (Box and Muller). Logarithm, sine and cosine are polynomials, so that the loop runs on vectors: about half a
nanosecond a normal.
"""

import numba
import numpy as np

from mesu.engine.compiled import FLAGS

U32, I32, F32 = np.uint32, np.int32, np.float32

# Least-squares fits on Chebyshev nodes; largest errors 6e-8, 1e-11 and 2e-10.
LOG2 = tuple(  # log2(1 + m) = m * poly(m), 0 <= m < 1
    F32(c)
    for c in (
        1.44268912, -0.721147451, 0.478529945, -0.346684012, 0.240532607, -0.135935271, 0.0510780883, -0.00906306863
    )
)  # fmt: skip
SIN = tuple(F32(c) for c in (3.14159265, -5.16771274, 2.55016279, -0.599247391, 0.0820311735, -0.00700041791))
COS = tuple(F32(c) for c in (1.0, -4.93480214, 4.05870916, -1.335212, 0.234937314, -0.0243963244))
MINUS_TWO_LN_2 = F32(-2.0 * np.log(2.0))
TO_UNIT = F32(2.0**-24)
HALF, ONE, TWO = F32(0.5), F32(1.0), F32(2.0)


@numba.njit(**FLAGS)
def _mix(x):
    """A bijection of 32-bit words whose output bits each depend on all input bits (xor-shift and multiply)."""
    x = U32(x ^ (x >> U32(16)))
    x = U32(x * U32(0x7FEB352D))
    x = U32(x ^ (x >> U32(15)))
    x = U32(x * U32(0x846CA68B))
    return U32(x ^ (x >> U32(16)))


@numba.njit(**FLAGS)
def step_keys(seed, step):
    """Two 32-bit keys for one step of one seed (the finaliser of splitmix64)."""
    z = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(step) * np.uint64(0xD1B54A32D192ED03)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return U32(z & np.uint64(0xFFFFFFFF)), U32(z >> np.uint64(32))


@numba.njit(**FLAGS)
def fill_normals(out, seed, step):
    """Fill an array with the standard normals of one step. Its length must be even: see `even`."""
    first, second = step_keys(seed, step)
    half = out.size // 2
    cosines, sines = out[:half], out[half:]
    for i in range(half):
        counter = U32(i)
        a = _mix(U32(U32(counter * U32(0x9E3779B9)) + first))
        b = _mix(U32(a ^ second))
        a = U32(_mix(U32(b + U32(0x85EBCA6B))) ^ counter)
        # radius: sqrt(-2 ln u), u in (0, 1), its logarithm from the float's exponent and mantissa
        u = F32((F32(I32(a >> U32(8))) + HALF) * TO_UNIT)
        bits = u.view(I32)
        exponent = F32(I32((bits >> I32(23)) - I32(127)))
        m = I32((bits & I32(0x7FFFFF)) | I32(0x3F800000)).view(F32) - ONE
        log2 = LOG2[7]
        for k in range(6, -1, -1):
            log2 = log2 * m + LOG2[k]
        radius = np.sqrt(MINUS_TWO_LN_2 * (exponent + log2 * m))
        # angle 2 pi v, v in [-1/2, 1/2), from the sine and cosine of half of it
        v = F32(I32(b >> U32(8))) * TO_UNIT - HALF
        t = v * v
        sine, cosine = SIN[5], COS[5]
        for k in range(4, -1, -1):
            sine = sine * t + SIN[k]
            cosine = cosine * t + COS[k]
        sine = sine * v
        cosines[i] = radius * (ONE - TWO * sine * sine)
        sines[i] = radius * (TWO * sine * cosine)


@numba.njit(**FLAGS)
def take_normals(out, given, step):
    """Use the normals that were given for one step."""
    for i in range(given.shape[1]):
        out[i] = given[step, i]


def even(count: int) -> int:
    """The smallest even number that is not less: how long an array of normals must be."""
    return count + count % 2
