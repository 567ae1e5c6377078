"""Dicts and frames as arrays: missing values, and rows that are refused by name."""

import pickle
from math import inf, nan

import pandas as pd
import pytest
from made_up import SMALL_RIVER, learned, same, stream

from mesu.river import MESUClassifier, MESURegressor


@pytest.mark.parametrize("kind", [MESUClassifier, MESURegressor])
@pytest.mark.parametrize("size", [1, 7, 60])
def test_a_frame_is_its_rows(kind, size):
    rows = list(stream())
    one, many = learned(kind(**SMALL_RIVER), rows), kind(**SMALL_RIVER)
    for at in range(0, 60, size):
        x, y = zip(*rows[at : at + size], strict=True)
        many.learn_many(pd.DataFrame(list(x)), pd.Series(list(y)))
    assert list(one._columns) == list(many._columns)  # order included
    assert same(one._online.snapshot, many._online.snapshot)
    asked = [x for x, _ in rows[:20]]
    assert many.predict_many(pd.DataFrame(asked)).tolist() == [one.predict_one(x) for x in asked]
    if kind is MESUClassifier:
        frame = many.predict_proba_many(pd.DataFrame(asked, index=range(5, 25)))
        assert frame.to_dict("records") == [one.predict_proba_one(x) for x in asked]
        assert list(frame.index) == list(range(5, 25))


def test_frames_say_missing_in_their_own_ways():
    rows = [({"a": 1, "b": True}, 0), ({"b": False}, 1), ({"a": 3}, 1), ({"a": 4, "b": True}, 0)]
    one = learned(MESUClassifier(**SMALL_RIVER), rows)
    for a, b in (("float64", "object"), ("Int64", "boolean"), ("object", "object")):
        frame = pd.DataFrame(
            {"a": pd.Series([1, None, 3, 4], dtype=a), "b": pd.Series([True, False, None, True], dtype=b)}
        )
        many = MESUClassifier(**SMALL_RIVER)
        many.learn_many(frame, pd.Series([0, 1, 1, 0]))
        assert same(one._online.snapshot, many._online.snapshot)


BAD_ROWS = [
    ({"d": "red"}, 1, "feature 'd' must be a number, got 'red': encode it first, as with river.preprocessing.OneHot"),
    ({"d": "3.5"}, 1, "feature 'd' must be a number"),
    ({"d": 1.0, "b": "blue"}, 1, "feature 'b'"),
    ({"d": [1.0]}, 1, "feature 'd'"),
    ({"d": 1.0, "b": [1.0]}, 1, "feature 'b'"),
    ({"d": nan}, 1, "feature 'd' must be finite, got nan: leave it out"),
    ({"d": inf}, 1, "feature 'd' must be finite, got inf"),
    ({"d": 1.0, "new": "word"}, 1, "feature 'new' must be a number"),
    ({"d": 1.0, "new": -inf}, 1, "feature 'new' must be finite"),
    ({"d": 1.0, "new": 1.0}, None, "a number, got None"),
    ({"d": 1.0, "new": 1.0}, nan, "a number, got nan|must be finite, got nan"),
    ({"d": 1.0, "new": 1.0}, "word", "words? (or|and) .*numbers?|a number, got 'word'|all numbers"),
    ({"d": 1.0, "new": 1.0}, (1, 2), "a number, got"),
]


@pytest.mark.parametrize("kind", [MESUClassifier, MESURegressor])
@pytest.mark.parametrize(("x", "y", "words"), BAD_ROWS)
def test_a_refused_row_leaves_the_model_as_it_was(kind, x, y, words):
    model, twin = (learned(kind(**SMALL_RIVER), stream(25)) for _ in range(2))
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=words):
        model.learn_one(x, y)
    assert pickle.dumps(model) == before
    for one in (model, twin):
        learned(one, stream(5, seed=1))
    assert same(model._online.snapshot, twin._online.snapshot)
    if y == 1:
        with pytest.raises(ValueError, match=words):
            kind(**SMALL_RIVER).learn_one(x, y)


def test_a_refused_frame_leaves_the_model_as_it_was():
    model = learned(MESUClassifier(**SMALL_RIVER), stream(25))
    before = pickle.dumps(model)
    for frame, y, words in (
        ({"d": [1.0, 2.0, 3.0], "new": [nan, 1.0, 1e200]}, [0, 1, 2], "must be smaller"),
        ({"d": [1.0, inf]}, [0, 1], "feature 'd' must be finite, got inf"),
        ({"d": ["1", "2"]}, [0, 1], "feature 'd' must be a number, got '1'"),
        ({"d": [1.0, 2.0]}, [0, "a"], "all words or all numbers, got 'a' and 0"),
        ({"d": [1.0, 2.0]}, [0], "2 rows and 1 targets"),
        ({"d": [1.0], "new": [2.0]}, [0, 1], "1 rows and 2 targets"),
        ({"d": [], "new": []}, [], "0 rows"),
        ({"d": [1.0, 2.0]}, [0, None], "a label must be a word or a number, got (None|nan)"),
    ):
        with pytest.raises(ValueError, match=words):
            model.learn_many(pd.DataFrame(frame), pd.Series(y))
        assert pickle.dumps(model) == before
    plain = learned(MESUClassifier(**SMALL_RIVER, standardise=False), stream(25))
    before = pickle.dumps(plain)
    with pytest.raises(ValueError, match="use standardise=True"):
        plain.learn_one({"new": 1e13}, 1)
    assert pickle.dumps(plain) == before
    with pytest.raises(ValueError, match="first row must have a feature"):
        MESUClassifier().learn_one({}, True)
