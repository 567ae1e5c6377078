"""What the scikit-learn estimators refuse, by name, and that a refused call changes nothing."""

from math import inf, nan

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from made_up import clusters, same

import mesu

BAD_NUMBERS = st.sampled_from([nan, inf, -inf])


BAD_OBJECTS = st.one_of(
    st.none(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.complex_numbers(min_magnitude=1, allow_nan=False).filter(lambda c: c.imag != 0),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=3), min_size=2, max_size=3),
)


@st.composite
def bad_rows(draw):
    """Inputs for a model of five columns that are no rows."""
    kind = draw(st.sampled_from(["not finite", "width", "axes", "empty", "object", "dates", "words", "ragged"]))
    rows = draw(st.integers(1, 4))
    X = np.full((rows, 5), draw(st.floats(-1e3, 1e3)))
    if kind == "not finite":
        X[draw(st.integers(0, rows - 1)), draw(st.integers(0, 4))] = draw(BAD_NUMBERS)
        return draw(st.sampled_from([X, X.tolist(), X.astype(np.float32)]))
    if kind == "width":
        return np.zeros((rows, draw(st.integers(1, 12).filter(lambda n: n != 5))))
    if kind == "axes":
        return draw(st.sampled_from([X[0], X[:, :, None], X[0, 0]]))
    if kind == "empty":
        return draw(st.sampled_from([np.zeros((0, 5)), [], np.zeros((rows, 0))]))
    if kind == "dates":
        return np.full((rows, 5), "2020-01-01", "M8[D]")
    if kind == "words":
        return X.astype("U8")
    if kind == "ragged":
        return [[0.0] * 5, [0.0] * draw(st.integers(0, 4))]
    return draw(BAD_OBJECTS)


@st.composite
def bad_targets(draw, regression):
    """Targets for three rows that a model of whole-number labels, or of numbers, cannot learn."""
    kind = draw(
        st.sampled_from(["length", "not finite", "axes", "object", "mixed"] + ["continuous"] * (not regression))
    )
    if kind == "length":
        return np.zeros(draw(st.integers(0, 9).filter(lambda n: n != 3)), int)
    if kind == "not finite":
        y = np.zeros(3)
        y[draw(st.integers(0, 2))] = draw(BAD_NUMBERS)
        return y
    if kind == "axes":
        return np.zeros((3, draw(st.integers(2, 3))), int)
    if kind == "mixed":
        return np.array([0, draw(st.text(min_size=1, max_size=3)), None], dtype=object)
    if kind == "continuous":
        return np.array([0.0, 1.0, draw(st.floats(0.01, 0.99))])
    return draw(BAD_OBJECTS)


def untouched(model, before, live):
    assert model._online.snapshot is before
    assert all(np.array_equal(a, b) for a, b in zip(live, model._online._learner(before).live[:2], strict=True))
    learner = model._online._learner(before).learner
    assert learner.net.estimator in ("linear", "joint") or learner.net.noise.step == before.updates
    assert model.n_features_in_ == 5


@pytest.fixture(scope="module")
def learned():
    X, y = clusters(120)
    return {
        kind: kind(hidden=(8,), random_state=0).partial_fit(X, y) for kind in (mesu.MESUClassifier, mesu.MESURegressor)
    }


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")  # of a column where a line was expected
@pytest.mark.parametrize("kind", [mesu.MESUClassifier, mesu.MESURegressor])
def test_bad_input_changes_nothing(kind, learned):
    model = learned[kind]
    before = model._online.snapshot
    live = [a.copy() for a in model._online._learner(before).live[:2]]
    good = np.zeros((3, 5)), np.array([0, 1, 2])
    counted = 0

    bad = st.one_of(
        st.tuples(st.just("rows"), bad_rows()),
        st.tuples(st.just("targets"), bad_targets(kind is mesu.MESURegressor)),
    )

    @settings(max_examples=250, phases=[Phase.generate])  # twenty at a time are not worth shrinking
    @given(st.lists(bad, min_size=20, max_size=20))
    def refuses(inputs):
        nonlocal counted
        for what, bad in inputs:
            counted += 1
            X, y = (bad, good[1]) if what == "rows" else (good[0], bad)
            calls = [lambda X=X, y=y: model.partial_fit(X, y)]
            if what == "rows":
                calls.append(lambda X=X: model.predict(X))
            elif not counted % 10:
                calls.append(lambda X=X, y=y: model.fit(X, y))
            for call in calls:
                with pytest.raises((ValueError, TypeError), match=r"\w"):
                    call()
        untouched(model, before, live)

    refuses()
    assert counted >= 5000  # with both kinds, ten thousand
    # and what comes after is what would have come
    X, y = clusters(60, seed=2)
    twin = kind(hidden=(8,), random_state=0).partial_fit(*clusters(120)).partial_fit(X, y)
    assert same(model.partial_fit(X, y)._online.snapshot, twin._online.snapshot)


def test_a_refused_first_set_leaves_no_trace():
    model = mesu.MESUClassifier()
    before = dict(vars(model))
    for call in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match="NaN"):
            call([[0.0, nan]], [0])
        with pytest.raises(ValueError, match="continuous"):
            call([[0.0, 1.0]], [0.5])
    assert vars(model) == before


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"size": [1.0, 2.0], "colour": ["red", "blue"]}),
        pd.DataFrame({"size": [1.0, 2.0], "colour": pd.Categorical(["red", "blue"])}),
        pd.DataFrame({"size": [1.0, 2.0], "colour": [None, "red"]}),
        pl.DataFrame({"size": [1.0, 2.0], "colour": ["red", "blue"]}),
        [[1.0, "red"], [2.0, "blue"]],
        np.array([[1.0, "red"], [2.0, "blue"]], dtype=object),
    ],
)
def test_a_column_of_words_is_named(table):
    name = "'colour'" if hasattr(table, "columns") else "1"
    words = f"column {name} must be numbers, got 'red': encode it first, as with sklearn.preprocessing.OneHotEncoder"
    for model in (mesu.MESUClassifier(), mesu.MESURegressor()):
        for call in (model.fit, model.partial_fit):
            with pytest.raises(ValueError, match=words):
                call(table, [0, 1])
    names = {"columns": ["size", "colour"]} if hasattr(table, "columns") else None
    X = pd.DataFrame([[0.0, 1.0], [1.0, 0.0]], **names) if names else [[0.0, 1.0], [1.0, 0.0]]
    with pytest.raises(ValueError, match=words):
        mesu.MESUClassifier().fit(X, [0, 1]).predict(table)


def test_other_complaints_about_a_table_stay_what_they_are():
    X = pd.DataFrame({"size": [1.0, 2.0]})
    model = mesu.MESUClassifier(random_state=0).fit(X, [0, 1])
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(X.assign(colour="red"))
    with pytest.raises(ValueError, match="y must be numbers"):
        mesu.MESURegressor().fit(X, ["red", "blue"])


@pytest.mark.parametrize("kind", [mesu.MESUClassifier, mesu.MESURegressor])
def test_a_wrong_argument_of_fit_names_the_class_that_was_called(kind):
    with pytest.raises(TypeError, match=rf"{kind.__name__}\.fit\(\).*sample_weights"):
        kind().fit([[0.0], [1.0]], [0, 1], sample_weights=[1, 1])
