"""River's models against hand-built streams: features and classes that come and go, copies, and the page about them."""

import copy
import math
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up import (
    LINEAR,
    SMALL_RIVER,
    learned,
    same,
    stream,
)

from mesu.online.memory_report import report
from mesu.online.model import OnlineModel
from mesu.online.settings import Settings
from mesu.river import MESUClassifier, MESURegressor

NUMBERS = Settings(
    (6,), 500.0, samples=3, predict_samples=16, standardise=True, regression=True, seed=3, allow_missing=True, **LINEAR
)
CLASSES = replace(NUMBERS, regression=False)


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
    by_hand = OnlineModel(settings, 2)
    by_hand.learn(np.array([[2.0, 1.0]]), np.array([0]))
    by_hand.learn(np.array([[3.0, nan]]), np.array([1]))
    by_hand.learn(np.array([[nan, -1.0, 0.5, 5.0]]), np.array([1]), widths={0: 4})
    by_hand.learn(np.array([[nan, nan, nan, 4.0], [nan] * 4, [1.0, nan, nan, 2.0]]), np.array([0, 1, 0]))
    model = learned(kind(**SMALL_RIVER), rows)
    assert model._columns == {"a": 0, "b": 1, "A": 2, "c": 3}
    assert same(model._online.snapshot, by_hand.snapshot)
    found = by_hand.snapshot.predict(np.array([[9.0, nan, nan, 1.0]]))
    asked = {"c": 1, "a": 9, "never seen": 7}
    if kind is MESUClassifier:
        assert model.predict_proba_one(asked) == dict(zip((0, 1), found.probs[0].tolist(), strict=True))
    else:
        assert model.predict_one(asked) == found.mean[0]
        assert model.predict_one(asked, with_dist=True).sigma == pytest.approx(found.total[0] ** 0.5)
    assert model.uncertainty_one(asked) == {
        "total": found.total[0],
        "aleatoric": found.aleatoric[0],
        "epistemic": found.epistemic[0],
    }
    assert model.memory_report() == report(by_hand.snapshot)


def test_a_missing_feature_counts_as_its_mean_and_tells_nothing_about_it():
    model = learned(MESUClassifier(**SMALL_RIVER), stream())
    scale, columns = model._online.snapshot.inputs, model._columns
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
    model, filled, seen = (*(MESUClassifier(**SMALL_RIVER, standardise=False) for _ in range(2)), {})
    for x, y in stream():
        seen.update(dict.fromkeys(x, 0.0))
        model.learn_one(x, y)
        filled.learn_one({**seen, **x}, y)
    assert same(model._online.snapshot, filled._online.snapshot)
    assert model.predict_proba_one({"d": 1.0}) == model.predict_proba_one({**seen, "d": 1.0})


@pytest.mark.parametrize("kind", [MESUClassifier, MESURegressor])
def test_the_order_of_features_means_nothing(kind):
    one = learned(kind(**SMALL_RIVER), stream())
    other = learned(kind(**SMALL_RIVER), ((dict(reversed(x.items())), y) for x, y in stream()))
    assert one._columns == other._columns
    assert same(one._online.snapshot, other._online.snapshot)


def test_names_of_any_kind_are_told_apart():
    model = MESUClassifier(**SMALL_RIVER)
    model.learn_one({1: 0.5, "1": 3.0, ("a", 2): 1.0}, "x")
    model.learn_one({"1": 2.0, ("a", 2): 0.0, 1: 4.0}, "y")
    assert set(model._columns) == {1, "1", ("a", 2)}
    assert model.predict_proba_one({1: 9.0}) != model.predict_proba_one({"1": 9.0})


def test_classes_appear_with_their_rows():
    model = MESUClassifier(**SMALL_RIVER)
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
        model = learned(MESUClassifier(**SMALL_RIVER), [({"a": 0.0}, labels[0]), ({"a": 1.0}, labels[1])])
        assert list(model.predict_proba_one({"a": 0.0})) == labels
        assert model.predict_many(pd.DataFrame({"a": [0.0]})).tolist() == [model.predict_one({"a": 0.0})]


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
        model = learned(MESURegressor(**SMALL_RIVER), stream(5))
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


@pytest.mark.parametrize("kind", [MESUClassifier, MESURegressor])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_goes_on_bit_for_bit(kind, copied):
    model = learned(kind(**{**SMALL_RIVER, "seed": None}), stream(30))
    twin = copied(model)
    before = model._online.snapshot
    learned(twin, stream(30, seed=1))
    assert model._online.snapshot is before
    learned(model, stream(30, seed=1))
    assert same(model._online.snapshot, twin._online.snapshot)
    early = kind(**{**SMALL_RIVER, "seed": None})
    one, other = learned(copied(early), stream(9)), learned(early, stream(9))
    assert same(one._online.snapshot, other._online.snapshot)


def test_a_clone_has_the_parameters_and_nothing_learned():
    for hidden in ((), (4, 3), 5):
        model = learned(MESUClassifier(hidden=hidden, memory=50, seed=4), stream(5))
        twin = model.clone()
        assert (twin.hidden, twin.memory, twin.seed) == (hidden, 50, 4)
        assert twin._online is None
        assert same(learned(twin, stream(5))._online.snapshot, model._online.snapshot)
    one, other = (learned(MESUClassifier(), stream(5)) for _ in range(2))
    assert one._online.snapshot.settings.seed != other._online.snapshot.settings.seed


def test_prediction_changes_nothing():
    model = learned(MESUClassifier(**SMALL_RIVER), stream(30))
    before = pickle.dumps(model)
    x = {"d": 1.0, "new": 2.0}
    assert model.predict_proba_one(x) == model.predict_proba_one(x)
    model.predict_many(pd.DataFrame([x]))
    model.uncertainty_one(x)
    assert pickle.dumps(model) == before
    assert x == {"d": 1.0, "new": 2.0}


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
