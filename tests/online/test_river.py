"""River's models against hand-built streams, under bad rows and through copies; the drift detector against chance."""

import copy
import math
import pickle
import re
import subprocess
import sys
import threading
from dataclasses import fields
from math import inf, nan
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mesu.engine.predict import Weights
from mesu.online import river as module
from mesu.online.memory_report import report
from mesu.online.model import Settings, Stream
from mesu.online.scaling import Scale, follow, standardised, unknown
from mesu.river import EpistemicDrift, MESUClassifier, MESURegressor

SMALL = {"hidden": (6,), "memory": 500, "samples": 3, "predict_samples": 16, "seed": 3}
CLASSES = Settings((6,), 500.0, 1.0, 3, 16, standardise=True, regression=False, seed=3, gaps=True)
NUMBERS = Settings((6,), 500.0, 1.0, 3, 16, standardise=True, regression=True, seed=3, gaps=True)


def same(one, other):
    """Whether two moments are equal in every bit."""
    return all(equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))


def equal(a, b):
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return all(map(equal, a, b)) and len(a) == len(b) if isinstance(a, Weights | Scale) else a == b


def stream(rows=60, seed=0):
    """Rows of four features, of which each but the first is missing now and then, and one comes late."""
    draw = np.random.default_rng(seed)
    for i in range(rows):
        y = int(draw.integers(3))
        values = dict(zip("dacb", (draw.normal(size=4) + y).tolist(), strict=True))
        yield {k: v for k, v in values.items() if k == "d" or (draw.random() < 0.8 and (k != "a" or i >= 20))}, y


def learned(model, rows):
    for x, y in rows:
        model.learn_one(x, y)
    return model


# -- features ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "settings"), [(MESUClassifier, CLASSES), (MESURegressor, NUMBERS)])
def test_features_that_come_and_go_are_gaps_in_a_growing_stream(kind, settings):
    rows = [
        ({"b": 1.0, "a": 2.0}, 0),
        ({"a": 3.0}, 1),
        ({"c": 5.0, "b": -1.0, "A": 0.5}, 1),
        ({"c": 4.0}, 0),
        ({}, 1),
        ({"a": True, "b": None, "c": np.float32(2)}, 0),
    ]
    # in order of appearance; those of one row by name
    by_hand = Stream(settings, 2)
    by_hand.learn(np.array([[2.0, 1.0]]), np.array([0]))
    by_hand.learn(np.array([[3.0, nan]]), np.array([1]))
    by_hand.widen(4)
    by_hand.learn(np.array([[nan, -1.0, 0.5, 5.0]]), np.array([1]))
    by_hand.learn(np.array([[nan, nan, nan, 4.0], [nan] * 4, [1.0, nan, nan, 2.0]]), np.array([0, 1, 0]))
    model = learned(kind(**SMALL), rows)
    assert model._columns == {"a": 0, "b": 1, "A": 2, "c": 3}
    assert same(model._stream.moment, by_hand.moment)
    answer = by_hand.moment.answer(np.array([[9.0, nan, nan, 1.0]]))
    asked = {"c": 1, "a": 9, "never seen": 7}
    if kind is MESUClassifier:
        assert model.predict_proba_one(asked) == dict(zip((0, 1), answer.value[0].tolist(), strict=True))
    else:
        assert model.predict_one(asked) == answer.value[0]
        assert model.predict_one(asked, with_dist=True).sigma == pytest.approx(answer.total[0] ** 0.5)
    assert model.uncertainty_one(asked) == {
        "total": answer.total[0],
        "aleatoric": answer.aleatoric[0],
        "epistemic": answer.epistemic[0],
    }
    assert model.memory_report() == report(by_hand.moment)


def test_a_missing_feature_counts_as_its_mean_and_tells_nothing_about_it():
    model = learned(MESUClassifier(**SMALL), stream())
    scale, columns = model._stream.moment.inputs, model._columns
    for name, column in columns.items():
        values = [x[name] for x, _ in stream() if name in x]
        assert scale.rows[column] == len(values)
        assert scale.mean[column] == pytest.approx(np.mean(values))
        assert scale.var[column] == pytest.approx(np.var(values))
    means = {name: scale.mean[column] for name, column in columns.items()}
    assert model.predict_proba_one({}) == model.predict_proba_one(means)
    assert model.predict_proba_one({"d": 1.0}) == model.predict_proba_one({**means, "d": 1.0})
    assert model.predict_proba_one({"d": 1.0}) != model.predict_proba_one({"d": 2.0})


def test_without_standardising_a_missing_feature_is_zero():
    model, filled, seen = (*(MESUClassifier(**SMALL, standardise=False) for _ in range(2)), {})
    for x, y in stream():
        seen.update(dict.fromkeys(x, 0.0))
        model.learn_one(x, y)
        filled.learn_one({**seen, **x}, y)
    assert same(model._stream.moment, filled._stream.moment)
    assert model.predict_proba_one({"d": 1.0}) == model.predict_proba_one({**seen, "d": 1.0})


def test_gaps_are_passed_over_by_the_running_means():
    x = np.array([[1.0, nan], [nan, 4.0], [3.0, nan], [5.0, 6.0]])
    scale, z = follow(unknown(2), x, inf)
    alone, z_alone = follow(unknown(1), np.array([[1.0], [3.0], [5.0]]), inf)
    assert (scale.mean[0], scale.var[0], scale.rows[0]) == (alone.mean[0], alone.var[0], 3)
    np.testing.assert_array_equal(z[[0, 2, 3], 0], z_alone[:, 0])
    assert z[1, 0] == z[0, 1] == z[2, 1] == 0
    np.testing.assert_array_equal(standardised(scale, np.array([[nan, 6.0]])), [[0.0, 1.0]])


@pytest.mark.parametrize("kind", [MESUClassifier, MESURegressor])
def test_the_order_of_features_means_nothing(kind):
    one = learned(kind(**SMALL), stream())
    other = learned(kind(**SMALL), ((dict(reversed(x.items())), y) for x, y in stream()))
    assert one._columns == other._columns
    assert same(one._stream.moment, other._stream.moment)


def test_names_of_any_kind_are_told_apart():
    model = MESUClassifier(**SMALL)
    model.learn_one({1: 0.5, "1": 3.0, ("a", 2): 1.0}, "x")
    model.learn_one({"1": 2.0, ("a", 2): 0.0, 1: 4.0}, "y")
    assert set(model._columns) == {1, "1", ("a", 2)}
    assert model.predict_proba_one({1: 9.0}) != model.predict_proba_one({"1": 9.0})


@pytest.mark.parametrize("kind", [MESUClassifier, MESURegressor])
@pytest.mark.parametrize("size", [1, 7, 60])
def test_a_frame_is_its_rows(kind, size):
    rows = list(stream())
    one, many = learned(kind(**SMALL), rows), kind(**SMALL)
    for at in range(0, 60, size):
        x, y = zip(*rows[at : at + size], strict=True)
        many.learn_many(pd.DataFrame(list(x)), pd.Series(list(y)))
    assert list(one._columns) == list(many._columns)  # order included
    assert same(one._stream.moment, many._stream.moment)
    asked = [x for x, _ in rows[:20]]
    assert many.predict_many(pd.DataFrame(asked)).tolist() == [one.predict_one(x) for x in asked]
    if kind is MESUClassifier:
        frame = many.predict_proba_many(pd.DataFrame(asked, index=range(5, 25)))
        assert frame.to_dict("records") == [one.predict_proba_one(x) for x in asked]
        assert list(frame.index) == list(range(5, 25))


def test_frames_say_missing_in_their_own_ways():
    rows = [({"a": 1, "b": True}, 0), ({"b": False}, 1), ({"a": 3}, 1), ({"a": 4, "b": True}, 0)]
    one = learned(MESUClassifier(**SMALL), rows)
    for a, b in (("float64", "object"), ("Int64", "boolean"), ("object", "object")):
        frame = pd.DataFrame(
            {"a": pd.Series([1, None, 3, 4], dtype=a), "b": pd.Series([True, False, None, True], dtype=b)}
        )
        many = MESUClassifier(**SMALL)
        many.learn_many(frame, pd.Series([0, 1, 1, 0]))
        assert same(one._stream.moment, many._stream.moment)


# -- classes ----------------------------------------------------------------------------------------------------------


def test_classes_appear_with_their_rows():
    model = MESUClassifier(**SMALL)
    assert model.predict_proba_one({"a": 1.0}) == {}
    assert model.predict_one({"a": 1.0}) is None
    assert model.predict_many(pd.DataFrame({"a": [1.0, 2.0]})).tolist() == [None, None]
    model.learn_one({"a": 1.0}, "cat")
    assert model.predict_proba_one({"a": 1.0}) == {"cat": 1.0}
    learned(model, [({"a": 2.0}, "dog"), ({"a": 3.0}, np.str_("eel"))])
    probabilities = model.predict_proba_one({"a": 1.0})
    assert list(probabilities) == ["cat", "dog", "eel"]
    assert {type(label) for label in probabilities} == {str}
    assert math.fsum(probabilities.values()) == pytest.approx(1)
    assert model.predict_one({"a": 1.0}) == max(probabilities, key=lambda label: probabilities[label])


def test_labels_come_back_as_they_were():
    for labels in ([True, False], [3, 1], ["b", "a"], [0.5, 1.5], [np.bool_(True), np.bool_(False)]):
        model = learned(MESUClassifier(**SMALL), [({"a": 0.0}, labels[0]), ({"a": 1.0}, labels[1])])
        assert list(model.predict_proba_one({"a": 0.0})) == labels
        assert model.predict_many(pd.DataFrame({"a": [0.0]})).tolist() == [model.predict_one({"a": 0.0})]


# -- refusals ---------------------------------------------------------------------------------------------------------


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
    model, twin = (learned(kind(**SMALL), stream(25)) for _ in range(2))
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=words):
        model.learn_one(x, y)
    assert pickle.dumps(model) == before
    for one in (model, twin):
        learned(one, stream(5, seed=1))
    assert same(model._stream.moment, twin._stream.moment)
    if y == 1:
        with pytest.raises(ValueError, match=words):
            kind(**SMALL).learn_one(x, y)


def test_a_refused_frame_leaves_the_model_as_it_was():
    model = learned(MESUClassifier(**SMALL), stream(25))
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
    plain = learned(MESUClassifier(**SMALL, standardise=False), stream(25))
    before = pickle.dumps(plain)
    with pytest.raises(ValueError, match="use standardise=True"):
        plain.learn_one({"new": 1e13}, 1)
    assert pickle.dumps(plain) == before
    with pytest.raises(ValueError, match="first row must have a feature"):
        MESUClassifier().learn_one({}, True)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"memory": 0.5}, "memory must be greater than 1"),
        ({"memory": "long"}, "memory must be a number, got 'long'"),
        ({"hidden": (5, 0)}, "hidden must be a whole number"),
        ({"prior_std": -1.0}, "prior_std"),
        ({"init_scale": 0.0}, "init_scale must be a finite number greater than 0, got 0.0"),
        ({"samples": 0}, "samples"),
        ({"predict_samples": 1}, "predict_samples"),
        ({"seed": -1}, "seed must be a whole number from 0"),
        ({"seed": 0.5}, "seed must be a whole number from 0"),
    ],
)
def test_bad_parameters_are_refused_at_once(parameters, words):
    with pytest.raises(ValueError, match=words):
        MESUClassifier(**parameters)
    assert MESUClassifier(hidden=np.int64(7))._settings.hidden == (7,)


def test_nothing_to_report_before_the_first_row():
    with pytest.raises(ValueError, match="learned nothing yet"):
        MESUClassifier().memory_report()
    assert MESURegressor().predict_one({"a": 1.0}) == 0.0
    assert MESURegressor().predict_one({"a": 1.0}, with_dist=True).sigma == inf
    for kind in (MESUClassifier, MESURegressor):
        assert kind().uncertainty_one({"a": 1.0}) == {"total": inf, "aleatoric": inf, "epistemic": inf}


def test_a_river_model_with_another_parameter_is_not_saved(tmp_path):
    for parameter, value in (("memory", 10), ("seed", 4), ("predict_samples", 9)):
        model = learned(MESURegressor(**SMALL), stream(5))
        setattr(model, parameter, value)  # as River does not mean it
        with pytest.raises(ValueError, match=f"{parameter} is {value}.* now, but this model began with .*set it back"):
            model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_the_page_shows_what_is_printed(capsys):
    page = (Path(__file__).parents[2] / "docs" / "river.md").read_text()
    section = page.split("## What it does not know")[1].split("## ")[0]
    program, quoted = re.findall(r"```(?:python)?\n(.*?)```", section, re.DOTALL)
    exec(program, {})
    said = capsys.readouterr().out
    number = re.compile(r"\d[\d,]*(?:\.\d+)?")
    assert number.sub("#", " ".join(said.split())) == number.sub("#", " ".join(quoted.split()))
    for one, other in zip(number.findall(said), number.findall(quoted), strict=True):
        assert float(one.replace(",", "")) == pytest.approx(float(other.replace(",", "")), rel=0.1, abs=0.02)


# -- copies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [MESUClassifier, MESURegressor])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_goes_on_bit_for_bit(kind, copied):
    model = learned(kind(**{**SMALL, "seed": None}), stream(30))
    twin = copied(model)
    before = model._stream.moment
    learned(twin, stream(30, seed=1))
    assert model._stream.moment is before
    learned(model, stream(30, seed=1))
    assert same(model._stream.moment, twin._stream.moment)
    early = kind(**{**SMALL, "seed": None})
    one, other = learned(copied(early), stream(9)), learned(early, stream(9))
    assert same(one._stream.moment, other._stream.moment)


def test_a_clone_has_the_parameters_and_nothing_learned():
    for hidden in ((), (4, 3), 5):
        model = learned(MESUClassifier(hidden=hidden, memory=50, seed=4), stream(5))
        twin = model.clone()
        assert (twin.hidden, twin.memory, twin.seed) == (hidden, 50, 4)
        assert twin._stream is None
        assert same(learned(twin, stream(5))._stream.moment, model._stream.moment)
    one, other = (learned(MESUClassifier(), stream(5)) for _ in range(2))
    assert one._stream.moment.settings.seed != other._stream.moment.settings.seed


def test_prediction_changes_nothing():
    model = learned(MESUClassifier(**SMALL), stream(30))
    before = pickle.dumps(model)
    x = {"d": 1.0, "new": 2.0}
    assert model.predict_proba_one(x) == model.predict_proba_one(x)
    model.predict_many(pd.DataFrame([x]))
    model.uncertainty_one(x)
    assert pickle.dumps(model) == before
    assert x == {"d": 1.0, "new": 2.0}


# -- drift ------------------------------------------------------------------------------------------------------------


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
    assert np.exp(module.RATE * (u - 0.5 - module.ALLOWED)).mean() == pytest.approx(1, abs=1e-3)


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
    rows = math.log(1e8) / module.RATE / 0.375
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


def test_it_listens_to_the_last_answer():
    model = learned(MESUClassifier(**SMALL), stream(30))
    deaf, listening = EpistemicDrift(grace=0, listen=False), EpistemicDrift(grace=0)
    for x, _ in stream(80, seed=5):
        deaf.update(model.uncertainty_one(x)["epistemic"])
        model.predict_one(x)
        listening.update(0)  # what River passes: an error
    assert listening._recent == deaf._recent
    assert listening._sum == deaf._sum
    twin = pickle.loads(pickle.dumps(listening))
    assert twin._sorted == listening._sorted
    caught = []

    def alone():
        try:
            EpistemicDrift().update(0)
        except ValueError as error:
            caught.append(str(error))
        MESURegressor().predict_one({"a": 1.0})  # which knows nothing, and says so
        detector = EpistemicDrift(grace=0)
        detector.update(0)
        caught.extend(detector._recent)

    thread = threading.Thread(target=alone)
    thread.start()
    thread.join()
    assert "no model of mesu.river has answered in this thread" in caught[0]
    assert caught[1:] == [inf]


@pytest.mark.parametrize("parameters", [{"delta": 0.0}, {"delta": 2}, {"window": 3}, {"grace": -1}])
def test_bad_settings_of_the_detector_are_refused(parameters):
    with pytest.raises(ValueError, match=next(iter(parameters))):
        EpistemicDrift(**parameters)
    with pytest.raises(ValueError, match="cannot rank nan"):
        EpistemicDrift(listen=False).update(nan)


# -- without River ----------------------------------------------------------------------------------------------------


def test_without_river_the_remedy_is_named():
    program = (
        "import sys; sys.modules['river'] = None\n"
        "import mesu\n"
        "try:\n    import mesu.river\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'mesu[river]'" in done.stdout


def test_what_river_needs_is_named_where_it_is_missing():
    program = "import sys; sys.modules['narwhals'] = None\nimport mesu.river"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "narwhals" in done.stderr
    assert "mesu.river needs River" not in done.stderr
