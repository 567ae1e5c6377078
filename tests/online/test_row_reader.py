"""One row after the other: the short way of reading a dict gives what the careful one gives, and refuses what it refuses."""

import re
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("river")

from mesu.online.river_rows import row_of
from mesu.online.row_reader import RowReader

NAMES = ("a", "b", "c")
VALUES = st.one_of(
    st.floats(),
    st.integers(),
    st.booleans(),
    st.none(),
    st.text(max_size=2),
    st.sampled_from([np.float32(0.1), np.int64(3), np.bool_(True), Fraction(1, 3), 10**400, 1.7e308, [1.0]]),
)


@given(st.dictionaries(st.sampled_from([*NAMES, "unknown"]), VALUES), st.sampled_from([1, 2, 3]))
def test_both_ways_give_the_same(x, width):
    reader = RowReader(NAMES[:width])
    try:
        expected = row_of(x, NAMES[:width])
    except (ValueError, OverflowError) as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            reader.read(x)
    else:
        found = reader.read(x)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_large_numbers_that_cancel_are_no_infinity():
    x = {"a": 1.7e308, "b": 1.7e308, "c": -1.7e308}
    np.testing.assert_array_equal(RowReader(NAMES).read(x), [list(x.values())])
    with pytest.raises(ValueError, match="feature 'b' must be finite"):
        RowReader(NAMES).read({"a": 1.0, "b": float("inf"), "c": float("-inf")})


def test_a_mapping_is_not_asked_for_what_it_would_make_up():
    made = defaultdict(float, {"a": 1.0, "x": 2.0, "y": 3.0})
    np.testing.assert_array_equal(RowReader(NAMES).read(made), [[1.0, np.nan, np.nan]])
    assert set(made) == {"a", "x", "y"}
    np.testing.assert_array_equal(RowReader(NAMES).read(Counter("aax")), [[2.0, np.nan, np.nan]])
