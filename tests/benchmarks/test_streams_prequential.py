"""The protocol of the benchmark on streams: each row is predicted, then learned."""

import numpy as np
import pytest

pytest.importorskip("river")

from benchmarks.streams import prequential
from benchmarks.streams.data import Stream


class Spy:
    """Knows each row that it has learned, and nothing else."""

    takes_dicts = True

    def __init__(self, seen_as=lambda y: {y: 1.0}, unseen=None):
        self.seen, self.seen_as, self.unseen = {}, seen_as, {} if unseen is None else unseen

    def predict(self, x):
        return self.seen.get(tuple(x.values()), self.unseen)

    def learn(self, x, y):
        self.seen[tuple(x.values())] = self.seen_as(y)

    def __reduce__(self):  # only its size is asked for
        return (dict, ())


def rows_that_differ(y, changes=()):
    return Stream("made up", "", ("a",), np.arange(float(len(y)))[:, None], y, changes=changes)


def test_every_row_is_predicted_before_it_is_learned():
    outcome = prequential.run(rows_that_differ(["yes", "no"] * 50), Spy())
    assert outcome.blocks.sum() == 0  # a spy that had seen the labels would be right on all rows


def test_every_row_is_learned_before_the_next():
    stream = Stream("made up", "", ("a",), np.zeros((60, 1)), ["same"] * 60)
    assert prequential.run(stream, Spy()).blocks.sum() == 59


def test_errors_of_numbers_are_absolute():
    stream = Stream("made up", "", ("a",), np.arange(40.0)[:, None], [3.0, -5.0] * 20, regression=True)
    outcome = prequential.run(stream, Spy(lambda y: y, unseen=1.0))
    assert outcome.blocks.sum() == 20 * 2 + 20 * 6
    assert np.isnan(outcome.log_loss)


def test_log_loss_is_of_the_true_label_and_bounded():
    y = ["rare"] * 10 + ["never"] * 30
    outcome = prequential.run(rows_that_differ(y), Spy(unseen={"rare": 0.25, "often": 0.75}))
    assert outcome.log_loss == pytest.approx((10 * np.log(4) + 30 * np.log(1000)) / 40)
    assert outcome.blocks.sum() == 0


def test_blocks_begin_anew_with_each_task():
    stream = rows_that_differ(["a"] * 1300, changes=(120, 777))
    edges = stream.edges
    assert {0, 120, 777, 1300} <= set(edges)
    assert edges[1:4] == [50, 120, 170]  # the 20 rows left over go with the block before
    assert min(np.diff(edges)) >= 25
    assert max(np.diff(edges)) < 75
    assert len(prequential.run(stream, Spy()).blocks) == len(edges) - 1
    assert stream.first(500).changes == (120,)
