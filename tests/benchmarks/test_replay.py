"""`python -m benchmarks.replay`: its streams are what it says, and its table has the means over the seeds."""

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import replay


@pytest.fixture
def images(monkeypatch):
    """1,000 "images", each of which holds its own number."""
    x, y = np.arange(1000, dtype=np.float32)[:, None], np.arange(1000) * 7 % 10
    monkeypatch.setattr(replay, "mnist", lambda: SimpleNamespace(x_train=x, y_train=y, x_test=x[:5], y_test=y[:5]))
    monkeypatch.setattr(replay, "ROWS", 1000)


def test_classes_come_two_at_a_time(images):
    stream = replay.classes_in_turn(0)
    assert (np.diff(stream.y // 2) >= 0).all()
    assert (stream.y == stream.x[:, 0].astype(int) * 7 % 10).all()  # labels go with their images
    assert sorted(stream.x[:, 0]) == list(range(1000))
    assert not (np.diff(stream.y) >= 0).all()  # the two are mixed


def test_a_tenth_of_a_blurry_stream_comes_anywhere(images):
    stream = replay.classes_in_turn(0, blurred=0.1)
    elsewhere = stream.y // 2 != np.arange(1000) // 200
    assert 0.05 < elsewhere.mean() < 0.15
    assert sorted(stream.x[:, 0]) == list(range(1000))


def test_tasks_of_one_number_have_the_same_order_of_pixels():
    stream = replay.digits_in_orders(0, (0, 1, 0))
    first, second, third = np.split(stream.x, 3)
    assert (np.sort(first, axis=None) == np.sort(third, axis=None)).all()
    key = np.lexsort(first.T), np.lexsort(third.T)
    assert (first[key[0]] == third[key[1]]).all()
    assert not (first[key[0]] == second[np.lexsort(second.T)]).all()
    assert len(stream.x_test) == 2 * 449
    rows = {row.tobytes() for row in first}
    assert sum(row.tobytes() in rows for row in stream.x_test[:449]) < 10  # none is learned, but for equal digits


def test_the_table_has_the_means_over_the_seeds():
    numbers = {"log_loss": 0.5, "along": 80.0, "cpu_seconds": 2.0}
    rows = [
        {"stream": "permuted digits", "learner": "MESU", "seed": s, "end": e, **numbers} for s, e in enumerate((70, 80))
    ]
    assert list(replay.table(rows))[-1] == "| MESU | 75.0 ± 7.1 | 0.50 | 80.0 | 2 |"
