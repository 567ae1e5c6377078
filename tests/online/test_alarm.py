"""The drift alarm: its bets are fair, false alarms are as rare as promised, and signals are those of the prediction."""

import pickle
from itertools import pairwise
from math import inf, isnan, log, nan

import numpy as np
import pytest
import river.drift
from made_up import SMALL_RIVER, clusters, line, stream
from river import preprocessing
from scipy import stats

import mesu
from mesu import Signals
from mesu.online.evidence import LEAST, POWERS, TILTS, Evidence, payoffs
from mesu.river import DriftAlarm, DriftRetrainingClassifier, MESUClassifier, MESURegressor


def alarms(values, **parameters):
    return mesu.DriftAlarm(**parameters).watch(np.asarray(values))


def test_bets_are_fair_however_ranks_are_cut():
    draw = np.random.default_rng(0)
    edges = [0.0, *np.sort(draw.random(20)), 1.0]
    paid = sum((high - low) * np.array(payoffs(low, high)) for low, high in pairwise(edges))
    np.testing.assert_allclose(paid, 1)
    narrow = np.array([payoffs(r - 1e-6, r + 1e-6) for r in (0.1, 0.5, 0.99)])
    formula = [
        [b * np.exp(b * r) / np.expm1(b) for b in TILTS] + [a * (1 - r) ** (a - 1) for a in POWERS]
        for r in (0.1, 0.5, 0.99)
    ]
    np.testing.assert_allclose(narrow, formula, rtol=1e-4)


@pytest.mark.parametrize("tied", [False, True])
def test_false_alarms_are_no_more_frequent_than_promised(tied):
    draw = np.random.default_rng(0)
    values = draw.random(40_000) < 0.2 if tied else draw.exponential(size=40_000)
    # the first rows after each alarm are passed over, so that rows between alarms are counted without them
    at = alarms(values.astype(float), every=300, grace=0, window=400)
    between = [end - start - LEAST for start, end in pairwise([0, *at])]
    assert len(between) > 15  # it is no test of a detector that never speaks
    assert np.mean(between) > 300


def test_evidence_by_hand():
    evidence = Evidence(window=1000)
    for value in range(LEAST):
        evidence.add(float(value))
    assert evidence.value == 0
    evidence.add(1e9)  # above all of the 30
    first = np.array(payoffs(LEAST / (LEAST + 1), 1))
    assert evidence.value == pytest.approx(first.mean())
    evidence.add(nan)
    evidence.add(-5.0)  # below all of the 31
    assert evidence.value == pytest.approx(((first + 1) * payoffs(0, 1 / (LEAST + 2))).mean())


def test_only_the_last_values_count():
    values = np.random.default_rng(1).normal(size=300).tolist()
    evidence = Evidence(window=60)
    for value in values:
        evidence.add(value)
    assert evidence._sorted == sorted(values[-60:])


def test_changes_are_found_soon():
    draw = np.random.default_rng(2)
    errors = np.r_[draw.random(600) < 0.1, draw.random(300) < 0.6].astype(float)
    (at,) = alarms(errors)
    # the divergence of 0.6 from 0.1 is 0.75 nats a row, and the alarm wants log(100,000)
    assert 600 <= at < 600 + 3 * log(1e5) / 0.75
    values = np.r_[draw.normal(size=600), draw.normal(size=400) + 0.7]
    assert 600 <= alarms(values)[0] < 800
    assert alarms(values) == alarms(np.exp(values)) == alarms(1e-9 * values)
    assert alarms(values[::-1]) == []  # lower values are no alarm


def test_after_an_alarm_it_begins_anew():
    draw = np.random.default_rng(3)
    levels = np.repeat([0.0, 50.0, 100.0], 400)
    at = alarms(levels + draw.normal(size=1200))
    assert [i // 400 for i in at] == [1, 2]
    early = [*draw.normal(size=60), *(9 + draw.normal(size=100))]
    assert alarms(early, grace=100) == []
    assert alarms(early, grace=0) != []


def test_the_signal_with_most_evidence_is_the_cause():
    draw = np.random.default_rng(4)
    calm = draw.normal(size=(2, 500))
    for changed, name in enumerate(Signals._fields):
        values = calm.copy()
        values[changed, 400:] += 9
        alarm = mesu.DriftAlarm()
        (at,) = alarm.watch(Signals(*values))
        assert 400 <= at < 415
        assert alarm.cause == name
        twin = mesu.DriftAlarm()
        plain = [row for row, pair in enumerate(values.T) if (twin.update(tuple(pair)), twin.drift_detected)[1]]
        assert plain == [at]
        assert twin.cause == changed


def test_a_warning_comes_before_the_alarm():
    alarm, draw, seen = mesu.DriftAlarm(), np.random.default_rng(5), []
    for value in [*draw.normal(size=400), *(3 + draw.normal(size=20))]:
        alarm.update(value)
        assert not (alarm.drift_detected and alarm.warning_detected)
        seen.append("drift" if alarm.drift_detected else "warning" if alarm.warning_detected else "")
    assert "warning" in seen[400 : seen.index("drift")]
    assert seen.count("drift") == 1


def test_what_cannot_be_ranked_is_refused_and_nothing_changes():
    alarm = mesu.DriftAlarm(grace=0)
    for value in np.random.default_rng(7).permutation(40).tolist():
        alarm.update((value, -value))
    before = pickle.dumps(vars(alarm))
    for wrong, words in [
        (nan, "needs a number, got nan"),
        ((nan, nan), "needs a number"),
        (1.0, "2 signals a row got 1"),
    ]:
        with pytest.raises(ValueError, match=words):
            alarm.update(wrong)
        assert pickle.dumps(vars(alarm)) == before
    alarm.update((nan, 3.0))  # no label yet
    assert [len(evidence._recent) for evidence in alarm._evidence] == [40, 41]
    for parameters in ({"every": 1}, {"every": inf}, {"every": nan}, {"window": 3}, {"grace": -1}):
        with pytest.raises(ValueError, match=next(iter(parameters))):
            mesu.DriftAlarm(**parameters)


def test_the_signals_of_classes_are_those_of_the_prediction():
    X, y = clusters(200)
    names = np.array(["ant", "bee", "cat", "dog"])[y]
    model = mesu.MESUClassifier(hidden=(12,), random_state=0).partial_fit(X[:100], names[:100])
    found = model.signals(X, names)
    probs = model.predict_proba(X)[np.arange(200), np.searchsorted(model.classes_, names)]
    np.testing.assert_allclose(found.surprise, -np.log(probs))
    np.testing.assert_array_equal(found.doubt, model.uncertainty(X).epistemic)
    assert np.isnan(model.signals(X).surprise).all()
    assert (model.signals(X[:2], ["eel", "eel"]).surprise == inf).all()
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.signals(X, names[:5])


def test_the_signals_of_numbers_are_the_density_of_the_prediction():
    X, y = line(300)
    model = mesu.MESURegressor(hidden=(12,), random_state=0).partial_fit(X, y)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(model.signals(X, y).surprise, -stats.norm.logpdf(y, mean, std))
    with pytest.raises(ValueError, match="y must be numbers"):
        model.signals(X, ["word"] * 300)


def test_rivers_models_say_the_same_of_a_row():
    model, numbers = MESUClassifier(**SMALL_RIVER), MESURegressor(**SMALL_RIVER)
    assert model.signals_one({"a": 1.0}, "x") == (inf, inf)  # nothing is known
    for x, y in stream(60):
        model.learn_one(x, y)
        numbers.learn_one(x, float(y))
    x, y = {"a": 0.3, "d": -1.0}, next(iter(model.predict_proba_one({})))
    surprise, doubt = model.signals_one(x, y)
    assert surprise == pytest.approx(-log(model.predict_proba_one(x)[y]))
    assert doubt == model.uncertainty_one(x)["epistemic"]
    assert isnan(model.signals_one(x).surprise)
    assert model.signals_one(x, "never seen").surprise == inf
    answer = numbers.predict_one(x, with_dist=True)
    assert numbers.signals_one(x, 3.0).surprise == pytest.approx(-log(answer(3.0)))


def test_the_wrapper_passes_the_signals_of_each_row():
    scaler, model = preprocessing.StandardScaler(), MESUClassifier(**SMALL_RIVER)
    alarm, twin = DriftAlarm(grace=0), DriftAlarm(grace=0)
    wrapper = DriftRetrainingClassifier(scaler | model, alarm, train_in_background=False)
    for x, y in ((x, y) for x, y in stream(60) if len(x) == 4):
        if model._online is not None:
            twin.update(model.signals_one(scaler.transform_one(x), y))
        wrapper.learn_one(x, y)
    assert [list(e._recent) for e in alarm._evidence] == [list(e._recent) for e in twin._evidence]
    assert len(alarm._evidence) == 2
    assert isinstance(DriftRetrainingClassifier(model).drift_detector, DriftAlarm)


def test_rivers_own_wrapper_passes_errors_and_its_model_is_replaced():
    draw = np.random.default_rng(6)
    wrapper = river.drift.DriftRetrainingClassifier(
        preprocessing.StandardScaler() | MESUClassifier(**SMALL_RIVER), DriftAlarm()
    )
    at = []
    for row in range(700):
        x = {"a": draw.normal(), "b": draw.normal()}
        wrapper.learn_one(x, (x["a"] > x["b"]) == (row < 500))
        at += [row] * wrapper.drift_detector.drift_detected
    assert len(at) == 1
    assert 500 <= at[0] < 540
    assert wrapper.drift_detector.cause == 0
