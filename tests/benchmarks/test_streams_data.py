"""The streams of the benchmark, their groups, and what their rows are made of."""

import numpy as np
import pytest

pytest.importorskip("river")

from benchmarks.streams.data import GROUPS, STREAMS


def test_a_series_is_predicted_from_numbers_before_it():
    stream = STREAMS["airline"](0)
    last, season = (stream.columns.index(name) for name in ("last", "a season ago"))
    np.testing.assert_array_equal(stream.X[1:, last], stream.y[:-1])
    np.testing.assert_array_equal(stream.X[12:, season], stream.y[:-12])


def test_every_stream_is_in_one_group():
    assert sorted(STREAMS) == sorted(name for names in GROUPS.values() for name in names)
