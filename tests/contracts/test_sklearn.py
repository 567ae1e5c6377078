"""scikit-learn's own checks, and its tools: pipelines, searches, calibration, frames."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris, make_classification, make_regression
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from mesu import MESUClassifier, MESURegressor


@parametrize_with_checks(
    [
        MESUClassifier(),
        MESURegressor(),
        MESUClassifier(hidden=(), memory=float("inf"), standardise=False),
        MESURegressor(hidden=(16, 8), memory=1000, samples=4, predict_samples=32),
    ],
    expected_failed_checks=lambda estimator: {
        "check_sample_weight_equivalence_on_dense_data": "a row that comes twice is learned twice, the second time from other "
        "weights; a weight of two is one step (tests/online/test_evidence.py)"
    },
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True, as_frame=True)
    return X, y.map({0: "setosa", 1: "versicolor", 2: "virginica"})


def test_in_a_pipeline(iris):
    X, y = iris
    model = make_pipeline(StandardScaler(), MESUClassifier(standardise=False, random_state=0)).fit(X, y)
    assert model.score(X, y) > 0.93
    assert list(model.classes_) == ["setosa", "versicolor", "virginica"]
    curve = make_pipeline(PolynomialFeatures(2), MESURegressor(random_state=0))
    x = np.linspace(-2, 2, 300)[:, None]
    assert curve.fit(x, x[:, 0] ** 2).score(x, x[:, 0] ** 2) > 0.95
    mean, std = curve.predict(x, return_std=True)
    assert mean.shape == std.shape == (300,)


def test_searched_over(iris):
    search = GridSearchCV(MESUClassifier(random_state=0), {"hidden": [(), (20,)], "epochs": [1, 10]}, cv=3)
    search.fit(*iris)
    assert search.best_score_ > 0.93
    assert search.best_params_["epochs"] == 10
    assert cross_val_score(MESUClassifier(random_state=0), *iris, cv=3).min() > 0.88


def test_calibrated_and_bagged(iris):
    X, y = iris
    for method in ("sigmoid", "isotonic"):
        model = CalibratedClassifierCV(MESUClassifier(random_state=0, epochs=3), method=method, cv=3).fit(X, y)
        np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)
        assert model.score(X, y) > 0.9
    bag = BaggingClassifier(MESUClassifier(epochs=3), n_estimators=3, random_state=0).fit(X.to_numpy(), y)
    assert bag.score(X.to_numpy(), y) > 0.9


def test_several_targets():
    X, y = make_regression(200, 5, n_targets=2, random_state=0)
    assert MultiOutputRegressor(MESURegressor(random_state=0)).fit(X, y).score(X, y) > 0.95


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("kind", [MESUClassifier, MESURegressor])
def test_frames_are_arrays_with_names(frame, kind):
    X, y = make_classification(120, 4, random_state=0)
    names = ["height", "width", "depth", "weight"]
    column = pd.Series(y) if frame is pd.DataFrame else pl.Series(y)
    table = frame(dict(zip(names, X.T, strict=True)))
    model = kind(random_state=0).partial_fit(table, column)
    plain = kind(random_state=0).partial_fit(X, y)
    np.testing.assert_array_equal(model.predict(table), plain.predict(X))
    assert list(model.feature_names_in_) == names
    with pytest.raises(ValueError, match="feature names should match"):
        model.partial_fit(table[names[::-1]], column)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(table[names[::-1]])


@pytest.mark.parametrize("kind", [MESUClassifier, MESURegressor])
def test_sparse_input_is_refused_with_the_remedy(kind):
    X, y = make_classification(60, 4, random_state=0)
    model = kind(random_state=0, epochs=1).fit(X, y)
    before = model._online.snapshot
    for call in (lambda: model.fit(sparse.csr_matrix(X), y), lambda: model.partial_fit(sparse.csr_array(X), y)):
        with pytest.raises(TypeError, match="toarray"):
            call()
    with pytest.raises(TypeError, match="toarray"):
        model.predict(sparse.csr_matrix(X))
    assert model._online.snapshot is before


def test_a_clone_has_the_parameters_and_nothing_learned():
    model = MESUClassifier(hidden=(7, 3), memory=50, random_state=4).fit([[0.0], [1.0]], [0, 1])
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert not hasattr(twin, "classes_")
    assert not hasattr(twin, "n_features_in_")
