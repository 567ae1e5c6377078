"""Inputs that are not standardised may be of any size: the first row, or the first set, tells."""

from itertools import pairwise

import numpy as np
import pytest

import mesu

DRAW = np.random.RandomState(0)
X = DRAW.randn(120, 20)
Y = (X[:, 0] + X[:, 1] > 0).astype(int)


def model(**settings):
    return mesu.MESUClassifier(hidden=(8,), standardise=False, random_state=0, **settings)


def streamed(x, cuts=(0, 120), **settings):
    learned = model(**settings)
    for a, b in pairwise(cuts):
        learned.partial_fit(x[a:b], Y[a:b], classes=[0, 1])
    return learned


@pytest.mark.parametrize("power", [-8, 4, 9])
def test_rows_that_are_a_power_of_two_larger_teach_the_very_same(power):
    x = X * 2.0**power
    assert np.array_equal(streamed(X).predict_proba(X), streamed(x, (0, 1, 7, 120)).predict_proba(x))
    assert np.array_equal(model().fit(X, Y).predict_proba(X), model().fit(x, Y).predict_proba(x))


def test_a_saved_model_goes_on_with_its_size(tmp_path):
    x = 1000 * X
    learned = streamed(x, (0, 60))
    learned.save(tmp_path / "model")
    loaded = mesu.load(tmp_path / "model")
    for one in (learned, loaded):
        one.partial_fit(x[60:], Y[60:])
    assert np.array_equal(learned.predict_proba(x), loaded.predict_proba(x))
    assert np.array_equal(learned.predict_proba(x), streamed(x).predict_proba(x))


def test_draws_take_inputs_as_they_are_and_say_that_they_are_large():
    with pytest.warns(mesu.LearningWarning, match=r"inputs are of size 8.*standardise them"):
        streamed(8 * X, estimator="local")
