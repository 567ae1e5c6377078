"""What cannot be a class is refused before anything changes, by scikit-learn's face and by River's."""

import datetime
import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import mesu

X = np.random.default_rng(0).normal(size=(4, 2))
BIG = 2**53 + 1
UNUSABLE = {
    "dates": [datetime.date(2026, 1, day) for day in (1, 2, 1, 2)],
    "times": [datetime.datetime(2026, 1, day) for day in (1, 2, 1, 2)],
    "NumPy's dates": list(np.array(["2026-01-01", "2026-01-02"] * 2, "datetime64[D]")),
    "NumPy's nanoseconds": list(np.array(["2026-01-01", "2026-01-02"] * 2, "datetime64[ns]")),
    "no time": [0, 1, np.datetime64("NaT"), 1],
    "durations": [datetime.timedelta(days=day) for day in (1, 2, 1, 2)],
    "NumPy's durations": list(np.array([1, 2, 1, 2], "timedelta64[s]")),
    "infinity": [0.0, 1.0, np.inf, 1.0],
    "minus infinity": [0.0, -np.inf, 0.0, 1.0],
    "fractions": [Fraction(1, 3), Fraction(2, 3), Fraction(1, 3), 1],
    "decimals": [Decimal(1), Decimal(2), Decimal(1), Decimal(2)],
    "complex numbers": [1j, 2j, 1j, 2j],
    "bytes": [b"a", b"b", b"a", b"b"],
    "nothing": ["a", "b", None, "b"],
    "tuples in an array": np.array([(0, 1), (1, 0), None, (0, 1)], dtype=object).tolist(),
    "large whole numbers beside floats": [BIG, 2.0, BIG, 2.0],
    "whole numbers that no array holds": [2**63, -1, 2**63, -1],
}
USABLE = {
    "words": ["a", "b", "a", "b"],
    "whole numbers": [0, 1, 0, 1],
    "floats": [0.0, 1.0, 0.0, 1.0],
    "booleans": [True, False, True, False],
    "large whole numbers": [BIG, BIG + 1, BIG, BIG + 1],
    "the ends": [2**63 - 1, -(2**63), 2**63 - 1, -(2**63)],
}


def new():
    return mesu.MESUClassifier(hidden=(), predict_samples=2, random_state=0)


def state(model):
    """Everything that a model is."""
    return pickle.dumps(vars(model))


def made(values):
    """An array of objects, as pandas would give it."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


@pytest.mark.parametrize("make", [list, made], ids=["list", "array"])
@pytest.mark.parametrize("labels", UNUSABLE.values(), ids=UNUSABLE)
def test_scikit_learn_refuses(labels, make):
    fresh = new()
    before = state(fresh)
    for method in ("fit", "partial_fit"):
        with pytest.raises((ValueError, TypeError)):
            getattr(fresh, method)(X, make(labels))
        assert state(fresh) == before
    words = "large" in repr(labels) or isinstance(labels[0], str)
    model = new().partial_fit(X, ["a", "b", "a", "b"] if words else [0, 1, 0, 1])
    before, probs = state(model), model.predict_proba(X)
    with pytest.raises((ValueError, TypeError)):
        model.partial_fit(X, make(labels))
    assert state(model) == before
    assert (model.predict_proba(X) == probs).all()


@pytest.mark.parametrize("kind", ["datetime64[D]", "datetime64[ns]", "timedelta64[s]"])
def test_scikit_learn_refuses_arrays_of_dates(kind):
    with pytest.raises(ValueError, match=r"a label must be a word or a number, got np.(datetime|timedelta)64"):
        new().partial_fit(X, np.array([0, 1, 0, 1]).astype(kind))


@pytest.mark.parametrize(
    "classes", [[0, 1, np.inf], [0, 1, Fraction(1, 2)], [0, 1, 2**64], np.array(["2026-01-01"], "datetime64[D]")]
)
def test_classes_that_will_come_are_refused_too(classes):
    model = new().partial_fit(X, [0, 1, 0, 1])
    before = state(model)
    with pytest.raises(ValueError, match="label"):
        model.partial_fit(X, [0, 1, 0, 1], classes=classes)
    assert state(model) == before


def test_a_float_after_a_large_whole_number_is_refused():
    model = new().partial_fit(X, [BIG, BIG + 1, BIG, BIG])
    before = state(model)
    with pytest.raises(ValueError, match="cannot stand beside each other"):
        model.partial_fit(X, [1.0, 2.0, 1.0, 2.0])
    assert state(model) == before
    assert model.classes_.tolist() == [BIG, BIG + 1]


@pytest.mark.parametrize("labels", USABLE.values(), ids=USABLE)
def test_what_is_a_label_is_learned_predicted_and_saved(labels, tmp_path):
    model = new().partial_fit(X, labels)
    assert set(model.classes_.tolist()) == set(labels)
    assert set(model.predict(X).tolist()) <= set(labels)
    model.save(tmp_path / "model")
    assert mesu.load(tmp_path / "model").classes_.tolist() == model.classes_.tolist()


@pytest.mark.parametrize(
    "labels", (kinds := {k: v for k, v in UNUSABLE.items() if "no array" not in k}).values(), ids=kinds
)
def test_river_refuses(labels):
    river = pytest.importorskip("mesu.river")
    pandas = pytest.importorskip("pandas")
    model = river.MESUClassifier(hidden=(), predict_samples=2, seed=0)
    model.learn_one({"x": 1.0}, "a" if isinstance(labels[0], str) else 0)
    before, probs = model._online.snapshot, model.predict_proba_one({"x": 1.0})
    with pytest.raises(ValueError, match="label"):
        model.learn_many(pandas.DataFrame({"x": X[:, 0], "new": X[:, 1]}), pandas.Series(labels, dtype=object))
    assert model._online.snapshot is before
    refused = 0
    for label in labels:
        before = model._online.snapshot
        try:
            model.learn_one({"x": 1.0}, label)
        except ValueError:
            refused += 1
            assert model._online.snapshot is before
    assert refused > 0
    assert model.predict_proba_one({"x": 1.0}).keys() >= probs.keys()


@pytest.mark.parametrize("labels", USABLE.values(), ids=USABLE)
def test_river_learns_what_is_a_label(labels):
    river = pytest.importorskip("mesu.river")
    model = river.MESUClassifier(hidden=(), predict_samples=2, seed=0)
    for label in labels:
        model.learn_one({"x": 1.0}, label)
    assert model.predict_proba_one({"x": 1.0}).keys() == set(labels)
