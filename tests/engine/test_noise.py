"""The engine's noise is standard normal, and unrelated from place to place, step to step and seed to seed."""

import numpy as np
from scipy import stats

from mesu.engine.noise import fill_normals


def normals(steps, count, seed=3):
    out = np.zeros((steps, count), np.float32)
    for step in range(steps):
        fill_normals(out[step], seed, step)
    return out


def test_noise_is_standard_normal():
    x = normals(20, 100_000).astype(np.float64)
    assert stats.kstest(x.ravel(), "norm").pvalue > 0.01
    n = x.size
    for moment, expected, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((x**moment).mean() - expected) < 4 * (spread / n) ** 0.5
    assert np.abs(x).max() > 4.9  # the tails are there


def test_noise_of_other_places_steps_and_seeds_is_unrelated():
    x = normals(1000, 300)
    for rows in (x, x.T, np.abs(x), np.abs(x).T):
        z = np.corrcoef(rows)[~np.eye(len(rows), dtype=bool)] * rows.shape[1] ** 0.5
        assert abs(z.std() - 1) < 0.02
        assert np.abs(z).max() < 6
    assert abs(np.corrcoef(x.ravel(), normals(1000, 300, seed=4).ravel())[0, 1]) < 4 / x.size**0.5
    assert np.array_equal(normals(2, 300), x[:2])
