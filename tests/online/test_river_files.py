"""River's models in files: features, labels and parameters come back, and what is no such file is refused."""

import subprocess
import sys
import threading
from fractions import Fraction
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import forge, same

import mesu
from mesu import river
from mesu.online.files import Unreadable

SMALL = {"hidden": (6,), "memory": 500, "samples": 3, "predict_samples": 16}


def rows_of_dicts(rows, seed=0, labels=("cat", "dog", "ant")):
    """Four features, of which each but the first is missing now and then, and one comes late."""
    draw = np.random.default_rng(seed)
    for i in range(rows):
        y = int(draw.integers(len(labels)))
        values = dict(zip(("d", 7, 0.5, True), (draw.normal(size=4) + y).tolist(), strict=True))
        yield {k: v for k, v in values.items() if k == "d" or (draw.random() < 0.8 and (k != 7 or i >= 20))}, labels[y]


def fed(model, rows):
    numbers = {"cat": 3.0, "dog": -1.0, "ant": 40.0, "eel": 41.0}
    for x, y in rows:
        model.learn_one(x, numbers[y] if isinstance(model, river.MESURegressor) else y)
    return model


@pytest.mark.parametrize("kind", [river.MESUClassifier, river.MESURegressor])
@pytest.mark.parametrize("rows", [1, 20, 300])
@pytest.mark.parametrize("seed", [5, None])
def test_a_river_model_goes_on_as_if_it_had_not_stopped(kind, rows, seed, path):
    model = fed(kind(**SMALL, seed=seed), rows_of_dicts(rows))
    model.save(path)
    twin = mesu.load(path)
    assert type(twin) is kind
    assert twin._online is not model._online
    assert [(type(name), name) for name in twin._columns] == [(type(name), name) for name in model._columns]
    for each in (model, twin):
        # a feature and a class that are new
        fed(each, (({**x, "late": 1.0}, y) for x, y in rows_of_dicts(40, 1, ("cat", "dog", "ant", "eel"))))
    assert same(model._online.snapshot, twin._online.snapshot)
    assert model._columns == twin._columns
    assert list(model._columns.values()) == list(range(len(model._columns)))
    for x, _ in rows_of_dicts(9, 2):
        assert model.uncertainty_one(x) == twin.uncertainty_one(x)
        if kind is river.MESUClassifier:
            assert model.predict_proba_one(x) == twin.predict_proba_one(x)
            assert list(twin.predict_proba_one(x)) == list(model.predict_proba_one(x))
        else:
            assert model.predict_one(x) == twin.predict_one(x)
    # before its first row a clone is as the saved one was
    if seed is not None:
        assert same(
            fed(model.clone(), rows_of_dicts(9))._online.snapshot, fed(twin.clone(), rows_of_dicts(9))._online.snapshot
        )


@pytest.mark.parametrize(
    "parameters",
    [
        {"memory": inf, "standardise": False, "hidden": ()},
        {"memory": 1e7, "hidden": 4, "seed": 1},  # double precision
        {"hidden": [np.int64(4), 3], "samples": np.int32(3), "prior_std": np.float32(0.1), "seed": np.int64(2)},
    ],
)
def test_parameters_of_a_river_model_come_back(parameters, path):
    model = fed(river.MESUClassifier(**parameters), rows_of_dicts(30))
    model.save(str(path))
    twin = mesu.load(path)
    assert twin._get_params() == model._get_params()
    assert twin._settings == model._settings == twin._online.snapshot.settings
    assert type(twin.hidden) is type(model.hidden)


def test_names_and_labels_of_numpy_are_those_of_python(path):
    model = river.MESUClassifier(**SMALL)
    model.learn_one({np.str_("a"): 1.0, np.int64(3): 2.0, np.float32(0.1): 0.0, np.bool_(False): 1.0}, np.int64(1))
    model.learn_one({np.str_("a"): 0.0}, np.int64(2))
    model.save(path)
    twin = mesu.load(path)
    x = {"a": 1.0, 3: 2.0, np.float32(0.1): 5.0, False: 1.0}
    assert twin.predict_proba_one(x) == model.predict_proba_one(x)
    assert list(twin.predict_proba_one(x)) == [1, 2]


@pytest.mark.parametrize("labels", [[True, False], [3, -(10**30)], ["b", "", "\ud800 ü"], [0.5, -0.0, 1e300]])
def test_labels_of_a_river_model_keep_their_kind(labels, path):
    model = river.MESUClassifier(**SMALL)
    for label in labels:
        model.learn_one({"\ud800 ü": 1.0}, label)
    model.save(path)
    found = list(mesu.load(path).predict_proba_one({"\ud800 ü": 1.0}))
    assert [(type(label), label) for label in found] == [(type(label), label) for label in labels]


class Name(str):
    """A word of a kind of its own."""


@pytest.mark.parametrize("name", [("a", 2), None, b"a", 1j, inf, -inf, nan, Fraction(1, 3), frozenset(), Name("a")])
def test_a_name_that_json_would_change_is_refused(name, path):
    model = river.MESUClassifier(**SMALL)
    model.learn_one({"fine": 1.0, name: 2.0}, "x")
    with pytest.raises(ValueError, match="cannot be saved: give it a word or a finite number") as refused:
        model.save(path)
    assert f"the feature {name!r} " in str(refused.value)
    assert not path.exists()


def test_what_cannot_be_saved_of_river_is_said(path):
    with pytest.raises(ValueError, match="this MESURegressor has learned nothing yet: call learn_one first"):
        river.MESURegressor().save(path)

    class Mine(river.MESUClassifier):
        pass

    with pytest.raises(ValueError, match="only MESUClassifier and MESURegressor can be saved, got Mine"):
        fed(Mine(**SMALL), rows_of_dicts(5)).save(path)
    assert not path.exists()


def river_file(path, **parameters):
    fed(river.MESUClassifier(**{**SMALL, "seed": 3, **parameters}), rows_of_dicts(30)).save(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda h, d, t: d.update({"class": "MESUClassifier"}),  # scikit-learn's, whose columns have no gaps
        lambda h, d, t: d.update({"class": "river.MESURegressor"}),
        lambda h, d, t: d.update({"class": "river.EpistemicDrift"}),
        lambda h, d, t: d.update({"class": "river.os.system"}),
        lambda h, d, t: d.update({"class": ["river.MESUClassifier"]}),
        lambda h, d, t: d["parameters"].update(evil=1),
        lambda h, d, t: d["parameters"].update(memory=7),
        lambda h, d, t: d["parameters"].update(seed=4),
        lambda h, d, t: d["settings"].update(gaps=False),
        lambda h, d, t: d.update(feature_names=None),
        lambda h, d, t: d.update(feature_names=["d", 7, 0.5]),
        lambda h, d, t: d.update(feature_names=["d", "d", 0.5, True]),
        lambda h, d, t: d.update(feature_names=["d", 1, 0.5, True]),
        lambda h, d, t: d.update(feature_names=["d", 7, [0.5], True]),
        lambda h, d, t: d.update(feature_names=["d", 7, nan, True]),
        lambda h, d, t: d.update(feature_names=["d", 7, None, True]),
        lambda h, d, t: d.update(labels=["cat", "dog"]),
        lambda h, d, t: t.update(std=0 * t["std"]),
        lambda h, d, t: h.update(version="2"),
    ],
)
def test_a_forged_river_file_is_refused(change, path):
    river_file(path)
    forge(path, lambda *_: None)
    mesu.load(path)
    forge(path, change)
    with pytest.raises(Unreadable, match=r"the model .* cannot be read \(.+\)"):
        mesu.load(path)


@given(st.data())
def test_a_damaged_river_file_is_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "river"
    if not (path.parent / "whole").exists():
        river_file(path.parent / "whole")
    whole = (path.parent / "whole").read_bytes()
    at, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
    for content in (whole[:at], whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :]):
        path.write_bytes(content)
        with pytest.raises(Unreadable, match="cannot be read"):
            mesu.load(path)


def test_a_river_model_for_those_without_river(path):
    river_file(path)
    program = (
        f"import sys; sys.modules['river'] = None\n"
        f"import mesu\n"
        f"try:\n    mesu.load({str(path)!r})\n"
        f"except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == f"the model {path} is one for River, which is missing or too old: pip install 'mesu[river]'\n"


def test_a_broken_installation_is_not_called_a_missing_river(path, monkeypatch):
    river_file(path)
    monkeypatch.setitem(sys.modules, "mesu.online.river", None)
    with pytest.raises(ImportError, match=r"mesu\.online\.river"):
        mesu.load(path)


def test_river_features_may_grow_while_the_model_is_saved(path):
    model = river.MESUClassifier(**SMALL, seed=0)
    model.learn_one({"f0": 1.0}, "x")
    done, found = threading.Event(), []

    def keep():
        while not done.is_set():
            model.save(path)
            twin = mesu.load(path)
            found.append((list(twin._columns), twin._online.snapshot.weights.sizes[0]))

    thread = threading.Thread(target=keep)
    thread.start()
    for i in range(1, 60):
        model.learn_one({f"f{i}": 1.0}, "x")
    done.set()
    thread.join()
    assert found
    assert all(names == [f"f{i}" for i in range(inputs)] for names, inputs in found)
