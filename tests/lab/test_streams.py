"""Streams: their tasks, and how streams are cut up and joined."""

import numpy as np
import pytest

from mesu.lab.data import Dataset, digits
from mesu.lab.experiments.cifar import experiment as experiment
from mesu.lab.streams import FirstExamples, InTurn, MultiHead, Permuted, Splits


def test_permuted_tasks_are_shuffles_of_the_same_pixels():
    stream = Permuted(digits(), tasks=3, seed=4)
    first, second = stream[0], stream[1]
    assert not np.array_equal(first.x_train, stream.dataset.x_train)  # the first task is permuted too
    assert not np.array_equal(first.x_train, second.x_train)
    assert np.array_equal(np.sort(first.x_train), np.sort(second.x_train))
    # test and training pixels are shuffled alike: a pixel that is always blank in training is the same one in testing
    order = np.random.default_rng([4, 0]).permutation(64)
    assert np.array_equal(first.x_test, stream.dataset.x_test[:, order])
    assert np.array_equal(Permuted(digits(), tasks=9, seed=4)[1].x_train, second.x_train)
    assert not np.array_equal(Permuted(digits(), tasks=3, seed=5)[1].x_train, second.x_train)
    assert not any(np.array_equal(stream.unseen().x_test, task.x_test) for task in stream)
    with pytest.raises(IndexError):
        stream[3]
    with pytest.raises(ValueError, match="tasks must be 1 or more, got 0"):
        Permuted(digits(), tasks=0, seed=0)


def pictures(classes, count, seed=0):
    """Noise whose brightness says its class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, count)
    x = (rng.random((count, 3, 32, 32)) * 0.2 + y[:, None, None, None] / classes).astype(np.float32)
    return Dataset("made up", x, y, x[: count // 2], y[: count // 2], classes)


def test_slices_cover_every_image_once_and_in_order():
    stream = MultiHead(pictures(10, 503), classes=2)
    for splits in (1, 3, 16):
        cut = Splits(stream, splits)
        assert [task.head for task in cut] == list(range(5)) * splits
        for task in stream:
            slices = [cut[i].train for i in range(task.index, len(cut), 5)]
            assert np.array_equal(np.concatenate(slices), task.train)  # type: ignore[arg-type]
            assert max(map(len, slices)) - min(map(len, slices)) <= 1


def test_streams_in_turn_and_first_examples():
    both = InTurn([MultiHead(pictures(10, 200), 10), MultiHead(pictures(100, 1_000), 10)])
    assert [task.head for task in both] == list(range(11))
    assert both[3].first_class == 20
    assert set(both[3].y_train.tolist()) <= set(range(10))
    few = FirstExamples(both, 7)
    assert np.array_equal(few[3].y_train, both[3].y_train[:7])
    assert len(few[3].y_test) == len(both[3].y_test)
    longer = FirstExamples(both, 7, first_task=50)
    assert [len(task.y_train) for task in longer] == [50] + 10 * [7]
    assert np.array_equal(longer[0].y_train, both[0].y_train[:50])
    uncut = FirstExamples(both, None, first_task=50)
    assert [len(task.y_train) for task in uncut] == [50, *[len(task.y_train) for task in both][1:]]
