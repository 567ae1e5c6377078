"""Settings: what is refused by name, what a model keeps that has begun, and what may change later."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from made_up import CLASSES, clusters, same

import mesu
from mesu.online.model import OnlineModel
from mesu.online.snapshot import first_snapshot


def test_a_long_memory_is_kept_in_double_precision():
    assert OnlineModel(replace(CLASSES, memory=1e7), 5).snapshot.weights.mean.dtype == np.float64
    assert OnlineModel(replace(CLASSES, memory=inf), 5).snapshot.weights.mean.dtype == np.float32


@pytest.mark.parametrize(
    ("parameter", "value", "words"),
    [
        ("hidden", (0,), "hidden must be a whole number, 1 or more, got 0"),
        ("hidden", (2.5,), "hidden must be a whole number, 1 or more, got 2.5"),
        ("memory", 1, "memory must be greater than 1 update, got 1.0"),
        ("memory", "long", "memory must be a number, got 'long'"),
        ("prior_std", "wide", "prior_std must be a number or 'start', got 'wide'"),
        ("estimator", "weights", "estimator must be 'linear' or 'local', got 'weights'"),
        ("prior_std", 0, "prior_std must be a finite number greater than 0, got 0.0"),
        ("init_scale", 0, "init_scale must be a finite number greater than 0, got 0.0"),
        ("samples", 0, "samples must be a whole number, 1 or more, got 0"),
        ("predict_samples", 1, "predict_samples must be a whole number, 2 or more, got 1"),
        ("epochs", 0, "epochs must be a whole number, 1 or more, got 0"),
        ("epochs", True, "epochs must be a whole number, 1 or more, got True"),
    ],
)
def test_parameters_are_refused_by_name(parameter, value, words):
    X, y = clusters(20)
    model = mesu.MESUClassifier(random_state=0).fit(X, y)
    before = model._online.snapshot
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        model.set_params(**{parameter: value}).fit(X, y)
    assert model._online.snapshot is before


def test_init_scale_widens_the_start_and_what_grows_later(tmp_path):
    X, y = clusters(40)
    wide, usual = (
        mesu.MESUClassifier(init_scale=scale, memory=1e12, random_state=0).partial_fit(X[:1], y[:1], classes=[0, 1])
        for scale in (3.0, 1.0)
    )
    began, narrow = (first_snapshot(model._online.snapshot.settings, X.shape[1], 2).weights for model in (wide, usual))
    np.testing.assert_array_equal(began.mean, narrow.mean)
    np.testing.assert_allclose(began.std, 3 * narrow.std, rtol=1e-6)
    first = wide._online.snapshot
    grown = wide.partial_fit(X[1:2], [7])._online.snapshot  # a class that nobody announced
    assert grown.weights.std.max() == pytest.approx(first.weights.std.max(), rel=0.05)
    wide.save(tmp_path / "wide.safetensors")
    again = mesu.load(tmp_path / "wide.safetensors")
    assert again.get_params()["init_scale"] == again._online.snapshot.settings.init_scale == 3.0


@pytest.mark.parametrize(
    ("parameter", "value", "words"),
    [
        ("memory", 10, r"memory is 10\.0 now, but this model began with 100000\.0"),
        ("hidden", (7,), r"hidden is \(7,\) now, but this model began with \(100,\)"),
        ("prior_std", 2, r"prior_std is 2\.0 now, but this model began with 'start'"),
        ("init_scale", 3, r"init_scale is 3\.0 now, but this model began with 2\.0"),
        ("estimator", "local", "estimator is 'local' now, but this model began with 'linear'"),
        ("samples", 3, "samples is 3 now, but this model began with 10"),
        ("standardise", False, "standardise is False now, but this model began with True"),
    ],
)
def test_a_living_model_does_not_go_on_with_another_parameter(parameter, value, words, tmp_path):
    X, y = clusters(40)
    model = mesu.MESUClassifier(random_state=0).partial_fit(X, y)
    before, path = model._online.snapshot, tmp_path / "model.safetensors"
    began = model.get_params()[parameter]
    model.set_params(**{parameter: value})
    for call in (lambda: model.partial_fit(X, y), lambda: model.save(path)):
        with pytest.raises(ValueError, match=words + ": call fit to begin anew with it, or set it back"):
            call()
    assert model._online.snapshot is before
    assert not path.exists()
    model.set_params(**{parameter: began}).save(path)
    twin = mesu.load(path).set_params(**{parameter: value})  # a file's model is as alive
    with pytest.raises(ValueError, match=words):
        twin.partial_fit(X, y)
    model.set_params(**{parameter: value}).fit(X, y)
    fresh = mesu.MESUClassifier(random_state=0, **{parameter: value}).fit(X, y)
    assert same(model.partial_fit(X, y)._online.snapshot, fresh.partial_fit(X, y)._online.snapshot)


def test_a_parameter_in_other_words_is_the_same():
    X, y = clusters(40)
    model = mesu.MESUClassifier(random_state=0).partial_fit(X, y)
    model.set_params(hidden=100, memory=np.int64(100_000), standardise=np.True_).partial_fit(X, y)
    assert model._online.snapshot.rows == 80


@pytest.mark.parametrize("kind", [mesu.MESUClassifier, mesu.MESURegressor])
def test_parameters_that_may_change_take_effect(kind, tmp_path):
    X, y = clusters(300)
    model = kind(hidden=(8,), random_state=0).partial_fit(X, y)
    few = model.uncertainty(X)
    many = model.set_params(predict_samples=500).uncertainty(X)
    assert not np.array_equal(few.epistemic, many.epistemic)
    # as if it had been asked for from the start: the weights of these rows do not depend on it
    twin = kind(hidden=(8,), random_state=0, predict_samples=500)
    snapshot = replace(model._online.snapshot, settings=replace(model._online.snapshot.settings, predict_samples=500))
    twin._online, twin.n_features_in_ = OnlineModel(snapshot.settings, 5, snapshot), 5
    assert all(map(np.array_equal, many, twin.uncertainty(X)))
    model.save(tmp_path / "model")
    loaded = mesu.load(tmp_path / "model")
    snapshots = [each.partial_fit(X, y)._online.snapshot for each in (model, twin, loaded)]
    assert same(snapshots[0], snapshots[1])
    assert same(snapshots[0], snapshots[2])
    model.set_params(epochs=3, random_state=5).partial_fit(X, y)  # for the next fit
    assert same(
        model.fit(X, y)._online.snapshot,
        kind((8,), predict_samples=500, epochs=3, random_state=5).fit(X, y)._online.snapshot,
    )
    with pytest.raises(ValueError, match="predict_samples must be a whole number, 2 or more, got 1"):
        model.set_params(predict_samples=1).predict(X)
