"""The choice of an estimator: its own defaults, what draws are as wide as, and models from before there was a choice."""

import pickle

import numpy as np
import pytest
from made_up import CLASSES, NUMBERS, clusters, line

import mesu
from mesu.online.network import drawn_weights, layers, make_learner, start_weights
from mesu.online.settings import NARROWING, WIDE, Settings
from mesu.posterior.draws import drawn_std

GIVEN = {"hidden": 6, "memory": 100, "samples": 3, "predict_samples": 8, "standardise": True, "seed": 0}


@pytest.mark.parametrize(
    ("estimator", "regression", "found"),
    [
        (None, False, ("linear", "start", WIDE, NARROWING)),
        (None, True, ("linear", "start", WIDE, NARROWING)),
        ("local", True, ("local", 1.0, 1.0, 1.0)),
        ("local", False, ("local", 1.0, 1.0, 1.0)),
    ],
)
def test_an_estimator_has_defaults_of_its_own(estimator, regression, found):
    chosen = Settings.of(**GIVEN, prior_std=None, init_scale=None, estimator=estimator, regression=regression)
    assert (chosen.estimator, chosen.prior_std, chosen.init_scale, chosen.narrowing) == found
    chosen = Settings.of(**GIVEN, prior_std=0.5, init_scale=2, estimator=estimator, regression=regression)
    assert (chosen.prior_std, chosen.init_scale) == (0.5, 2.0)


def test_predictions_draw_what_the_learner_would_draw():
    weights = start_weights(CLASSES, (5, 12, 4))
    weights.std[::3] *= 0.1  # some weights have learned
    learner = make_learner(CLASSES, weights, 1, 1.0).learner
    linear = [module for module in learner.net.module if hasattr(module, "weight")]
    for (weight, bias), module in zip(layers(drawn_weights(CLASSES, weights)), linear, strict=True):
        for part, leaf in ((weight, "weight"), (bias, "bias")):
            np.testing.assert_allclose(part.std, drawn_std(module, leaf).detach().numpy(), rtol=1e-5)
    assert (drawn_weights(CLASSES, weights).std < weights.std).all()
    assert drawn_weights(NUMBERS, weights) is weights  # "local" draws what it believes


def test_scoring_draws_narrow_too():
    model = mesu.MESUClassifier(hidden=(12,), random_state=0).partial_fit(*clusters(300))
    now = model._online.snapshot
    np.testing.assert_array_equal(now.drawn_for_scoring.std, drawn_weights(now.settings, now.scoring_weights).std)
    assert now.drawn_for_scoring.std.max() < now.scoring_weights.std.max()
    np.testing.assert_array_equal(now._drawn.std, drawn_weights(now.settings, now.weights).std)


@pytest.mark.parametrize(("kind", "data"), [(mesu.MESUClassifier, clusters), (mesu.MESURegressor, line)])
@pytest.mark.parametrize("estimator", ["linear", "local"])
def test_either_estimator_learns_and_is_kept(kind, data, estimator, tmp_path):
    X, y = data(600)
    model = kind(hidden=(12,), estimator=estimator, random_state=0).partial_fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) > 0.8
    model.save(tmp_path / "model.safetensors")
    for again in (mesu.load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(model))):
        assert again.get_params() == model.get_params()
        again.partial_fit(X[400:500], y[400:500])
        twin = kind(hidden=(12,), estimator=estimator, random_state=0).partial_fit(X[:500], y[:500])
        np.testing.assert_array_equal(again._online.snapshot.weights.std, twin._online.snapshot.weights.std)


def test_what_was_pickled_before_there_was_a_choice_goes_on_as_it_was():
    X, y = clusters(80)
    model = mesu.MESUClassifier(hidden=(4,), estimator="local", prior_std=1.0, init_scale=1.0, random_state=0)
    model.partial_fit(X[:40], y[:40])
    state = model.__getstate__()
    state.pop("estimator")
    for name in ("estimator", "narrowing"):
        del vars(state["_online"].snapshot.settings)[name]
    again = mesu.MESUClassifier.__new__(mesu.MESUClassifier)
    again.__setstate__(state)
    assert again.estimator == "local"
    again.partial_fit(X[40:], y[40:])
    twin = mesu.MESUClassifier(hidden=(4,), estimator="local", random_state=0).partial_fit(X, y)
    np.testing.assert_array_equal(again._online.snapshot.weights.mean, twin._online.snapshot.weights.mean)


def test_a_snapshot_is_pickled_without_what_was_found_again():
    model = mesu.MESUClassifier(hidden=(12,), random_state=0).partial_fit(*clusters(50))
    model.predict_proba(clusters(5)[0])
    assert "_drawn" in vars(model._online.snapshot)
    assert "_drawn" not in vars(pickle.loads(pickle.dumps(model))._online.snapshot)
