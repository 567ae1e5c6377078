"""A model's file carries a reader's position: exactly as it was given, in the same atomic file, or not at all."""

import json
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import SMALL_RIVER, classifier, forge, learned, regressor, same, stream

import mesu
from mesu.online.carried import DEEPEST, MOST_BYTES, carriable

POSITION = {"topic": "sales", "offsets": {"0": 123, "1": 2**53 + 1}, "late": [1, 2.5, None, True, "é"]}


def river_classifier():
    from mesu import river

    return learned(river.MESUClassifier(**SMALL_RIVER), stream())


@pytest.mark.parametrize("make", [classifier, regressor, river_classifier])
def test_it_comes_back_exactly(make, path):
    model = make()
    assert model.carried is None
    model.save(path, carry=POSITION)
    twin = mesu.load(path)
    assert twin.carried == POSITION
    assert json.dumps(twin.carried) == json.dumps(POSITION)  # 1 is not True, nor 1.0
    assert same(model._online.snapshot, twin._online.snapshot)


def test_a_later_save_writes_only_what_it_is_given(path):
    classifier().save(path, carry=POSITION)
    mesu.load(path).save(path)
    assert mesu.load(path).carried is None


def test_an_empty_one_is_one(path):
    classifier().save(path, carry={})
    assert mesu.load(path).carried == {}


@pytest.mark.parametrize(
    ("carry", "message"),
    [
        (123, "carry must be a dict, got 123"),
        ({1: 2}, "the keys of carry must be words, got 1"),
        ({"a": {"b": [0, nan]}}, r"carry\['a'\]\['b'\]\[1\] must be a word, a finite number.* got nan"),
        ({"a": inf}, "finite number"),
        ({"a": (1, 2)}, r"carry\['a'\] must be .*a list"),
        ({"a": np.int64(1)}, r"carry\['a'\] must be"),
        ({"a": 2**63}, "64 bits"),
        ({"a": b"1"}, r"carry\['a'\] must be"),
        ({"a": "x" * MOST_BYTES}, "at most 65,536 bytes"),
    ],
)
def test_what_would_not_come_back_is_refused_and_the_old_file_stays(carry, message, path):
    model = classifier()
    model.save(path, carry=POSITION)
    with pytest.raises(ValueError, match=message):
        model.save(path, carry=carry)
    assert mesu.load(path).carried == POSITION


def test_depth_is_bounded():
    nested: dict = {}
    nested["in"] = nested
    with pytest.raises(ValueError, match=f"at most {DEEPEST}"):
        carriable(nested)


@given(
    st.dictionaries(
        st.text(),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**63), 2**63 - 1)
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(st.characters(exclude_categories=["Cs"])),
            lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(), inside, max_size=3),
            max_leaves=8,
        ),
        max_size=4,
    )
)
def test_whatever_is_accepted_survives_json(carry):
    assert repr(json.loads(json.dumps(carriable(carry)))) == repr(carry)


@pytest.mark.parametrize("forged", [[1], {"a": "x" * MOST_BYTES}, {"a": 2**70}])
def test_a_file_that_carries_something_else_is_refused(forged, path):
    classifier().save(path, carry=POSITION)
    forge(path, lambda header, description, tensors: description.update(carried=forged))
    with pytest.raises(ValueError, match="carry"):
        mesu.load(path)


def test_an_altered_position_is_noticed(path):
    classifier().save(path, carry={"offset": 123})
    data = path.read_bytes()
    assert data.count(b"123}") == 1
    path.write_bytes(data.replace(b"123}", b"124}"))
    with pytest.raises(ValueError, match="not what was saved"):
        mesu.load(path)


def test_files_without_one_are_as_they_were(path):
    """A file that carries nothing says nothing of it, so that it is the same file as before there was `carry`."""
    classifier().save(path)
    assert b"carried" not in path.read_bytes()
