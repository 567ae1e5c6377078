"""The kernels' own exponential against numpy's."""

import numba
import numpy as np

from mesu.engine.kernels import exponential


@numba.njit
def exponentials(x):
    out = np.empty_like(x)
    for j in range(x.size):
        out[j] = exponential(x[j])
    return out


def test_single_precision_exponentials_are_right_to_a_rounding_of_theirs_and_of_their_argument():
    x = np.append(-np.geomspace(1e-6, 87, 100_000), 0).astype(np.float32)
    error = exponentials(x) / np.exp(x.astype(np.float64)) - 1
    assert (np.abs(error) <= 2**-23 * (1 - x)).all()
    assert exponentials(np.float32([-1e30]))[0] < 1e-37
