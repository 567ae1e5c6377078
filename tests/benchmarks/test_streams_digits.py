"""Streams of digits: permuted, recurring, rotated."""

import numpy as np
import pytest

pytest.importorskip("river")

from benchmarks.streams import digits
from benchmarks.streams.data import STREAMS

IMAGES, LABELS = digits.all_digits()


COUNT = len(LABELS)


def each_digit_once(X, y):
    """Whether these rows are the digits, in another order, when pixels are left out of account."""
    return sorted(map(unordered, X, y)) == sorted(map(unordered, IMAGES, LABELS))


def unordered(row, label):
    return (*sorted(row), label)


def test_permuted_digits_come_once_a_task_with_pixels_of_their_own():
    X, y, changes = digits.permuted(0, tasks=3)
    assert changes == (COUNT, 2 * COUNT)
    tasks = [(X[i * COUNT : (i + 1) * COUNT], y[i * COUNT : (i + 1) * COUNT]) for i in range(3)]
    assert all(each_digit_once(*task) for task in tasks)
    means = [task.mean(0) for task, _ in tasks]
    np.testing.assert_allclose(means[0], IMAGES.mean(0))  # the first leaves the pixels
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not np.allclose(means[one], means[other])
        np.testing.assert_allclose(np.sort(means[one]), np.sort(means[other]))


def test_recurring_digits_bring_the_same_permutation_back():
    X, y, changes = digits.recurring(1, order="ABCAB")
    assert len(changes) == 4
    means = X.reshape(5, COUNT, 64).mean(1)
    np.testing.assert_allclose(means[3], means[0])
    np.testing.assert_allclose(means[4], means[1])
    assert not np.allclose(means[2], means[0])
    assert not np.allclose(means[2], means[1])
    visits = X.reshape(5, COUNT, 64)
    assert not np.array_equal(visits[0], visits[3])  # in another order
    rows = [sorted(map(tuple, visit)) for visit in (visits[1], visits[4])]
    assert rows[0] == rows[1]
    assert all(each_digit_once(visits[i], y.reshape(5, COUNT)[i]) for i in range(5))


def test_rotated_digits_turn_slowly():
    np.testing.assert_allclose(digits.turned(IMAGES[3], 0), IMAGES[3])
    upside_down = digits.turned(IMAGES[3], 180).reshape(8, 8)
    np.testing.assert_allclose(upside_down, IMAGES[3].reshape(8, 8)[::-1, ::-1], atol=1e-9)
    X, y, changes = digits.rotated(2, passes=2, degrees=180)
    order = np.random.default_rng(2).permutation(COUNT)
    assert changes == ()
    np.testing.assert_array_equal(y[:COUNT], LABELS[order])
    assert sorted(y[COUNT:]) == sorted(LABELS)
    np.testing.assert_allclose(X[0], IMAGES[order[0]])
    middle = COUNT - 1
    np.testing.assert_allclose(X[middle], digits.turned(IMAGES[order[middle]], 180 * middle / (2 * COUNT - 1)))


def test_another_seed_is_another_order_only_for_digits():
    one, other = (STREAMS["recurring"](seed) for seed in (0, 1))
    assert not np.array_equal(one.X[:COUNT], other.X[:COUNT])
    one, other = (STREAMS["phishing"](seed) for seed in (0, 1))
    np.testing.assert_array_equal(one.X, other.X)
