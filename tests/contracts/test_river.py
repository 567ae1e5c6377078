"""River's own checks, and its tools: progressive validation, pipelines, frames, ensembles, drift detectors."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from river import (
    checks,
    compose,
    datasets,
    drift,
    ensemble,
    evaluate,
    feature_extraction,
    linear_model,
    metrics,
    preprocessing,
)
from river.checks import common

from mesu.river import DriftAlarm, DriftRetrainingClassifier, EpistemicDrift, MESUClassifier, MESURegressor

MODELS = [MESUClassifier(), MESURegressor(), MESUClassifier(hidden=(), memory=float("inf"), seed=1)]
CHECKS = [
    pytest.param(model, check, id=f"{type(model).__name__}-{number}-{check.__name__}")
    for model in MODELS[:2]
    for number, check in enumerate(checks.yield_checks(model))
]


# some columns of River's data have values far from their others, which the model says
@pytest.mark.filterwarnings("ignore:column .* has a value of .*, far from its others:mesu.LearningWarning")
@pytest.mark.parametrize(("model", "check"), CHECKS)
def test_river_checks(model, check):
    check(model.clone())


def test_no_check_is_skipped():
    assert not any(model._unit_test_skips() for model in MODELS)
    names = {param.values[1].__name__ for param in CHECKS}
    assert {"check_learn_many_matches_learn_one", "check_seeding_is_idempotent", "check_emerging_features"} <= names


@pytest.mark.parametrize(
    "model", [*MODELS, DriftAlarm(), EpistemicDrift(), EpistemicDrift(delta=0.1, window=60, listen=False)]
)
def test_river_checks_of_parameters(model):
    for check in (
        common.check_repr_roundtrips_clone,
        common.check_clone_is_idempotent,
        common.check_clone_changes_memory_addresses,
        common.check_init_default_params_are_not_mutable,
        common.check_clone_with_new_params_applies,
        common.check_get_params_matches_signature,
        common.check_pickling_supports_roundtrip,
    ):
        check(model)


def test_progressive_validation():
    accuracy = evaluate.progressive_val_score(datasets.Phishing(), MESUClassifier(seed=0), metrics.Accuracy())
    assert 0.87 < accuracy.get() < 0.93  # River's logistic regression: 0.88
    loss = evaluate.progressive_val_score(datasets.Phishing().take(400), MESUClassifier(seed=0), metrics.LogLoss())
    assert loss.get() < 0.45  # log 2 is chance
    error = evaluate.progressive_val_score(datasets.TrumpApproval(), MESURegressor(seed=0), metrics.MAE())
    scaled = preprocessing.StandardScaler() | linear_model.LinearRegression(intercept_lr=0.1)
    assert error.get() < evaluate.progressive_val_score(datasets.TrumpApproval(), scaled, metrics.MAE()).get()


def test_in_pipelines():
    model = preprocessing.StandardScaler() | MESUClassifier(standardise=False, seed=0)
    accuracy = evaluate.progressive_val_score(datasets.Phishing().take(600), model, metrics.Accuracy())
    assert accuracy.get() > 0.82
    assert model.clone()["MESUClassifier"].seed == 0

    words = compose.Select("colour") | preprocessing.OneHotEncoder()
    model = (words + compose.Discard("colour")) | MESUClassifier(seed=0)
    for i in range(300):
        model.learn_one({"colour": ("red", "blue")[i % 2], "size": i % 5}, i % 2 == 0)
    assert model.predict_one({"colour": "red", "size": 1}) is True
    assert model.predict_one({"colour": "blue", "size": 1}) is False


def test_sparse_rows_are_zero_where_nothing_is_said():
    model = feature_extraction.BagOfWords() | MESUClassifier(standardise=False, seed=0)
    for _ in range(60):
        model.learn_one("buy cheap pills", "spam")
        model.learn_one("see you at lunch", "ham")
    assert model.predict_one("cheap cheap pills today") == "spam"
    assert model.predict_one("lunch") == "ham"


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_through_a_pipeline(frame):
    rows = list(datasets.Phishing().take(120))
    column = pd.Series if frame is pd.DataFrame else pl.Series
    X, y = frame([x for x, _ in rows]), column([y for _, y in rows])
    model = preprocessing.StandardScaler() | MESUClassifier(seed=0)
    model.learn_many(X[:100], y[:100])
    probabilities, labels = model.predict_proba_many(X[100:]), model.predict_many(X[100:])
    assert type(probabilities) is frame
    assert type(labels) is column
    table = probabilities.to_numpy()
    np.testing.assert_allclose(table.sum(1), 1)
    assert [str(name) for name in probabilities.columns] == ["True", "False"]
    np.testing.assert_array_equal(labels.to_numpy() == True, table[:, 0] > 0.5)  # noqa: E712
    if frame is pd.DataFrame:
        assert list(probabilities.index) == list(labels.index) == list(range(100, 120))


def test_in_an_ensemble():
    model = ensemble.BaggingClassifier(MESUClassifier(hidden=(8,), samples=4), n_models=3, seed=0)
    accuracy = evaluate.progressive_val_score(datasets.Phishing().take(300), model, metrics.Accuracy())
    assert accuracy.get() > 0.75


def moving(rows, change, seed=0):
    """Two classes, whose rows move away after `change`, and whose classes then change places."""
    draw = np.random.default_rng(seed)
    for i in range(rows):
        y = bool(draw.random() < 0.5)
        x = draw.normal(size=4) + (1.5 if y else -1.5)
        after = i >= change
        yield dict(zip("abcd", (x + 6 * after).tolist(), strict=True)), y != after


class Counted(EpistemicDrift):
    """Remembers when it saw a drift."""

    def update(self, x):
        super().update(x)
        self.calls = getattr(self, "calls", 0) + 1
        if self.drift_detected:
            self.at = [*getattr(self, "at", []), self.calls]


@pytest.mark.parametrize("background", [True, False])
def test_retraining_on_epistemic_drift(background):
    detector = Counted()
    model = DriftRetrainingClassifier(MESUClassifier(seed=0), detector, train_in_background=background)
    first, after = model.model, metrics.Accuracy()
    for i, (x, y) in enumerate(moving(1300, change=800)):
        if i >= 1000:
            after.update(y, model.predict_one(x))
        model.learn_one(x, y)
    assert len(detector.at) == 1
    assert 800 < detector.at[0] < 860
    assert model.model is not first
    assert model.model._online.snapshot.rows < 600
    assert after.get() > 0.95


def test_quiet_retraining_on_a_stream_that_stays():
    detector = Counted()
    model = DriftRetrainingClassifier(MESUClassifier(seed=0), detector)
    first = model.model
    for x, y in moving(1300, change=9999, seed=1):
        model.learn_one(x, y)
    assert model.model is first
    assert not hasattr(detector, "at")


def test_detectors_of_river_watch_the_model():
    for detector in (drift.binary.DDM(), drift.ADWIN()):
        background = hasattr(detector, "warning_detected")
        model = drift.DriftRetrainingClassifier(MESUClassifier(seed=0), detector, train_in_background=background)
        first = model.model
        for x, y in moving(900, change=500):
            model.learn_one(x, y)
        assert model.model is not first


def test_the_programs_of_the_documentation_run(capsys):
    names = {}
    text = (Path(__file__).parents[2] / "docs" / "river.md").read_text()
    for program in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(program, names)
    printed = capsys.readouterr().out
    # what comments say is printed, give or take what another processor rounds
    assert "\nsummer\n" in printed
    for pattern, tolerance in ((r"Accuracy: ([\d.]+)%", 1.0), (r"(?<!\")drift at row (\d+)", 15)):
        (said,), (came,) = (re.findall(pattern, words) for words in (text, printed))
        assert float(said) == pytest.approx(float(came), abs=tolerance)
    assert "500 examples learned" in printed
