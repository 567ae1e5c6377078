"""The attacks count what they tried, end in time, and tell a loss from a refusal."""

import itertools

import numpy as np
import pytest
from benchmarks.attacks.attack import Attack, count

import mesu

pytest.importorskip("mesu.river")

from benchmarks.attacks import files, rows


def test_tries_are_counted_until_there_are_enough_or_none_is_left(tmp_path):
    closed = []

    def endless(random, folder):
        try:
            for i in itertools.count():
                yield None if i % 3 else f"lost {i % 2}"
        finally:
            closed.append(True)

    found = count(Attack("endless", endless, 100, 1), 10, 1e9, tmp_path)
    assert (found.tried, found.survived, found.lost, closed) == (10, 6, {"lost 0": 2, "lost 1": 2}, [True])
    assert count(Attack("endless", endless, 100, 1), 10, 0.0, tmp_path).tried == 1  # no time is left
    few = Attack("few", lambda *_: (None for _ in range(3)), 100, 1)
    assert count(few, 10, 1e9, tmp_path).survived == 3


@pytest.mark.parametrize("attack", [rows.bad_rows, files.damaged, files.made_up])
def test_a_few_tries_survive(attack, tmp_path):
    found = count(Attack("few", attack, 40, 1), 40, 1e9, tmp_path)
    assert (found.tried, found.survived) == (40, 40), found.lost


def test_a_loss_is_seen(tmp_path):
    model = mesu.MESUClassifier((3,), random_state=0).partial_fit(np.eye(3), [0, 1, 2])
    assert rows._refused(model, lambda: model.partial_fit([[1.0, 2.0, 3.0]], [0])) == "a bad row was taken"

    def changes_and_refuses():
        model.partial_fit([[1.0, 2.0, 3.0]], [0])
        raise ValueError

    assert rows._refused(model, changes_and_refuses) == "changed by a row that was refused"
    model.save(tmp_path / "model")
    assert files._refused_or(lambda _: False, tmp_path / "model") == "another model was read"
    assert files._refused_or(lambda _: True, tmp_path / "none") == "FileNotFoundError instead of a refusal"
