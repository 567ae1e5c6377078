"""The idx format: what was written comes back, everything else is refused."""

import numpy as np
import pytest
from tests.lab.data.made_up import ARRAYS, as_idx

from mesu.lab.data.idx import read_idx


def test_idx_gives_back_what_was_written():
    for name in ARRAYS:
        assert np.array_equal(read_idx(as_idx(ARRAYS[name])), ARRAYS[name])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not an idx file"),
        (b"\x1f\x8b\x08\x00", "not an idx file"),
        (b"\0\0\x0d\1\0\0\0\1abcd", "idx file of type 13, expected 8"),
        (b"\0\0\x08\0", "with 0 axes"),
        (b"\0\0\x08\3\0\0\0\1", "ends inside its header of 16 bytes"),
        (b"\0\0\x08\1\0\0\0\3ab", r"shape \(3,\) has 2 values, expected 3"),
        (b"\0\0\x08\1\0\0\0\3abcd", r"shape \(3,\) has 4 values, expected 3"),
        (b"\0\0\x08\2\xff\xff\xff\xff\xff\xff\xff\xffab", "has 2 values, expected 18446744065119617025"),
    ],
)
def test_idx_refuses_everything_else(content, words):
    with pytest.raises(ValueError, match=words):
        read_idx(content)
