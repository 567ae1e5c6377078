"""The drift detector against chance, and the wrapper that passes it each row's uncertainty."""

import math
import pickle
from math import inf, nan

import numpy as np
import pytest
import river.drift
import river.naive_bayes
from made_up import (
    SMALL_RIVER,
    learned,
    stream,
)
from river import preprocessing

from mesu.online import drift
from mesu.river import DriftRetrainingClassifier, EpistemicDrift, MESUClassifier, MESURegressor


def alarms(values, **parameters):
    detector, at, warned = EpistemicDrift(listen=False, **parameters), [], []
    for i, value in enumerate(values):
        detector.update(value)
        assert not (detector.drift_detected and detector.warning_detected)
        warned += [i] * detector.warning_detected
        at += [i] * detector.drift_detected
    return at, warned


def test_the_rate_solves_its_equation():
    # E exp(r (u - 1/2 - a)) = 1 for u uniform on 0..1
    u = (np.arange(100_000) + 0.5) / 100_000
    assert np.exp(drift.RATE * (u - 0.5 - drift.ALLOWED)).mean() == pytest.approx(1, abs=1e-3)


def test_false_alarms_are_as_rare_as_promised():
    # an alarm needs an excursion that starts above 0; there are at most as many as rows
    values = np.random.default_rng(0).exponential(size=60_000)
    at, _ = alarms(values, delta=1e-2, grace=0)
    assert 0 < len(at) < 60_000 * 1e-2
    at, warned = alarms(values, delta=1e-8, grace=0)
    assert at == []
    assert len(warned) < 60


def test_an_abrupt_change_is_seen_at_once():
    draw = np.random.default_rng(0)
    at, warned = alarms([*draw.normal(size=1000), *(100 + draw.normal(size=20))])
    # each row adds 1/2 - 1/8, less what its rank is short of 1: h / 0.375 rows
    rows = math.log(1e8) / drift.RATE / 0.375
    assert len(at) == 1
    assert 1000 + rows - 2 < at[0] < 1000 + rows + 4
    assert warned[-1] == at[0] - 1
    assert warned[0] == pytest.approx(1000 + rows / 2, abs=4)


def test_the_scale_of_values_does_not_matter():
    draw = np.random.default_rng(1)
    values = np.concatenate([draw.exponential(1, 800), draw.exponential(4, 300)])
    assert alarms(values) == alarms(1e-9 * values) == alarms(np.log(values))
    assert len(alarms(values)[0]) == 1


def test_a_falling_signal_and_a_constant_one_are_quiet():
    draw = np.random.default_rng(2)
    assert alarms(draw.exponential(size=2000) / (1 + np.arange(2000))) == ([], [])
    assert alarms(np.zeros(2000)) == ([], [])
    assert alarms(draw.random(2000) < 0.1)[0] == []  # errors, whose ranks are tied


def test_after_a_drift_it_starts_anew():
    draw = np.random.default_rng(3)
    levels = np.repeat([0.0, 50.0, 0.0, 50.0], 600)
    at, _ = alarms(levels + draw.normal(size=2400))
    assert [i // 600 for i in at] == [1, 3]  # up is a drift, down is none
    # grace: what comes in the first rows is passed over
    assert alarms([*draw.normal(size=40), *(9 + draw.normal(size=200))], grace=100)[0] == []
    assert alarms([*draw.normal(size=60), *(9 + draw.normal(size=200))], grace=0)[0] != []


def test_it_ranks_among_the_last_values_only():
    values = np.random.default_rng(4).normal(size=500).tolist()
    detector = EpistemicDrift(window=60, grace=0, listen=False)
    for value in values:
        detector.update(value)
    assert detector._sorted == sorted(values[-60:])
    assert list(detector._recent) == values[-60:]


def test_the_wrapper_passes_the_uncertainty_of_each_row():
    model = MESUClassifier(**SMALL_RIVER)
    deaf, listening = EpistemicDrift(grace=0, listen=False), EpistemicDrift(grace=0)
    wrapper = DriftRetrainingClassifier(MESUClassifier(**SMALL_RIVER), listening)
    wrapper.learn_one({"d": 1.0}, 0)
    assert not listening._recent  # nothing was known before the first row
    model.learn_one({"d": 1.0}, 0)
    for x, y in stream(80, seed=5):
        deaf.update(model.uncertainty_one(x)["epistemic"])
        wrapper.learn_one(x, y)
        model.learn_one(x, y)
        wrapper.model.predict_one({"d": 100.0})  # what anybody else asks does not matter
    assert len(deaf._recent) == 80
    assert listening._recent == deaf._recent
    assert listening._sum == deaf._sum
    twin = pickle.loads(pickle.dumps(listening))
    assert twin._sorted == listening._sorted


def test_the_last_step_of_a_pipeline_says_how_uncertain_it_is():
    scaler, model = preprocessing.StandardScaler(), MESUClassifier(**SMALL_RIVER)
    detector, expected = EpistemicDrift(grace=0), []
    wrapper = DriftRetrainingClassifier(scaler | model, detector, train_in_background=False)
    for x, y in ((x, y) for x, y in stream(40) if len(x) == 4):
        expected.append(model.uncertainty_one(scaler.transform_one(x))["epistemic"])
        wrapper.learn_one(x, y)
    assert list(detector._recent) == expected[1:]


def test_an_error_instead_of_an_uncertainty_is_refused():
    for error in (0, 1, True):
        with pytest.raises(
            ValueError, match=r"is the error that River's wrapper passes: use mesu\.river\.DriftRetraining"
        ):
            EpistemicDrift().update(error)
    theirs = river.drift.DriftRetrainingClassifier(learned(MESUClassifier(**SMALL_RIVER), stream(5)), EpistemicDrift())
    with pytest.raises(ValueError, match="use mesu"):
        theirs.learn_one({"d": 1.0}, 0)
    with pytest.raises(TypeError, match=r"must be one of mesu\.river, which says how uncertain it is, got GaussianNB"):
        DriftRetrainingClassifier(river.naive_bayes.GaussianNB()).learn_one({"d": 1.0}, 0)
    # a model that knows nothing says so
    detector = EpistemicDrift(grace=0)
    detector.update(MESURegressor().uncertainty_one({"a": 1.0})["epistemic"])
    assert list(detector._recent) == [inf]


@pytest.mark.parametrize("parameters", [{"delta": 0.0}, {"delta": 2}, {"window": 3}, {"grace": -1}])
def test_bad_settings_of_the_detector_are_refused(parameters):
    with pytest.raises(ValueError, match=next(iter(parameters))):
        EpistemicDrift(**parameters)
    with pytest.raises(ValueError, match="cannot rank nan"):
        EpistemicDrift(listen=False).update(nan)
