"""A model in a file, in a pickle, in a copy: what comes back goes on bit for bit, and what is no model is refused."""

import copy
import json
import os
import pickle
import re
import struct
import subprocess
import sys
import threading
from dataclasses import fields
from fractions import Fraction
from math import inf, nan

import joblib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load as tensors_of
from safetensors.numpy import save as as_bytes

import mesu
from mesu import river
from mesu.disk import replacing
from mesu.online import files as saving
from mesu.online.files import Unreadable


def clusters(rows, classes=4, seed=0):
    draw = np.random.default_rng(seed)
    y = draw.integers(0, classes, rows)
    return 3 * np.random.default_rng(9).normal(size=(classes, 5))[y] + draw.normal(size=(rows, 5)), y


def line(rows, seed=0):
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(rows, 3))
    return X, 7 + X @ [2.0, -0.3, 4.0] + draw.normal(size=rows)


def same(one, other):
    """Whether two moments are equal in every bit."""
    return all(equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))


def equal(a, b):
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return all(map(equal, a, b)) and len(a) == len(b) if isinstance(a, tuple) else a == b


def classifier(rows=300, **parameters):
    X, y = clusters(rows)
    names = np.array(["cat", "dog", "ant", "bee"])[y]
    return mesu.MESUClassifier(**{"hidden": (12,), "memory": 500, "random_state": 3, **parameters}).partial_fit(
        X, names
    )


def regressor(rows=300, **parameters):
    return mesu.MESURegressor(**{"hidden": (12, 6), "random_state": 3, **parameters}).partial_fit(*line(rows))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def through_file(model, folder):
    model.save(folder / "model")
    return mesu.load(folder / "model")


def through_mapped_joblib(model, folder):
    joblib.dump(model, folder / "model")
    return joblib.load(folder / "model", mmap_mode="r")


WAYS = {
    "file": through_file,
    "pickle": lambda model, _: pickle.loads(pickle.dumps(model)),
    "joblib": through_mapped_joblib,
    "copy": lambda model, _: copy.deepcopy(model),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rows", [1, 20, 300])  # on a border and between two
def test_a_classifier_goes_on_as_if_it_had_not_stopped(way, rows, tmp_path):
    model = classifier(rows)
    twin = WAYS[way](model, tmp_path)
    assert same(model._stream.moment, twin._stream.moment)
    assert twin._stream is not model._stream
    X, y = clusters(400, classes=6, seed=1)  # two classes are new
    names = np.array(["cat", "dog", "ant", "bee", "eel", "fox"])[y]
    for each in (model, twin):
        each.partial_fit(X, names)
    assert same(model._stream.moment, twin._stream.moment)
    np.testing.assert_array_equal(model.predict_proba(X), twin.predict_proba(X))
    np.testing.assert_array_equal(model.classes_, twin.classes_)
    np.testing.assert_array_equal(model.is_novel(X), twin.is_novel(X))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rows", [1, 20, 300])
def test_a_regressor_goes_on_as_if_it_had_not_stopped(way, rows, tmp_path):
    model = regressor(rows)
    twin = WAYS[way](model, tmp_path)
    X, y = line(700, seed=1)
    for each in (model, twin):
        each.partial_fit(X, 3 * y + 100)
    assert same(model._stream.moment, twin._stream.moment)
    np.testing.assert_array_equal(model.predict(X, return_std=True), twin.predict(X, return_std=True))


@pytest.mark.parametrize(
    "parameters",
    [
        {"memory": inf, "standardise": False},
        {"memory": 1e7},  # double precision
        {"hidden": [np.int64(4)], "samples": np.int32(3), "prior_std": np.float32(0.5)},
        {"hidden": (), "random_state": None},
    ],
)
def test_parameters_come_back(parameters, path):
    X, y = clusters(80)
    model = mesu.MESUClassifier(**parameters).fit(X / 10, y)
    model.save(path)
    twin = mesu.load(str(path))
    assert type(twin) is mesu.MESUClassifier
    for name, value in model.get_params().items():
        assert twin.get_params()[name] == (tuple(value) if isinstance(value, list) else value)
    for each in (model, twin):
        each.partial_fit(X, y)
    assert same(model._stream.moment, twin._stream.moment)


def test_a_set_gone_over_several_times_goes_on_too(path):
    model = mesu.MESURegressor(epochs=3, random_state=0).fit(*line(100))
    model.save(path)
    twin = mesu.load(path)
    for each in (model, twin):
        each.partial_fit(*line(100, seed=1))
    assert same(model._stream.moment, twin._stream.moment)
    assert same(model.fit(*line(50))._stream.moment, twin.fit(*line(50))._stream.moment)


def test_names_of_columns_come_back(path):
    X, y = clusters(50)
    table = pd.DataFrame(X, columns=list("abcde"))
    mesu.MESUClassifier(random_state=0).fit(table, y).save(path)
    twin = mesu.load(path)
    assert list(twin.feature_names_in_) == list("abcde")
    assert twin.n_features_in_ == 5
    with pytest.raises(ValueError, match="feature names should match"):
        twin.predict(table[list("edcba")])


def test_the_header_says_what_it_is(path):
    classifier().save(path)
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])["__metadata__"]
    assert header["format"] == "mesu estimator"
    assert header["version"] == "1"
    description = json.loads(header["description"])
    assert description["class"] == "MESUClassifier"
    assert description["parameters"]["memory"] == 500
    assert set(description["labels"]) == {
        "cat",
        "ant",
        "bee",
        "dog",
    }


# -- what is no model -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model"
    regressor(40).save(path)
    return path, path.read_bytes()


@given(st.data())
def test_a_file_cut_short_is_refused(saved, data):
    path, whole = saved
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(Unreadable, match=r"the model .*model cannot be read \("):
        mesu.load(path)


@given(st.data())
def test_a_single_changed_byte_is_noticed(saved, data):
    path, whole = saved
    at, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
    path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :])
    with pytest.raises(Unreadable, match="cannot be read"):
        mesu.load(path)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused(saved, data):
    path, whole = saved
    for content in (data, whole + data + b"!", whole[:8] + data):
        path.write_bytes(content)
        with pytest.raises(Unreadable, match="cannot be read"):
            mesu.load(path)


class Bomb:
    def __reduce__(self):
        return os.system, ("touch exploded",)


@pytest.mark.parametrize("content", ["pickle", "joblib", "empty"])
def test_foreign_files_are_refused_and_nothing_is_run(content, path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    if content == "pickle":
        path.write_bytes(pickle.dumps(Bomb()))
    elif content == "joblib":
        joblib.dump(Bomb(), path)
    else:
        path.write_bytes(b"")
    with pytest.raises(Unreadable, match=r"model\.safetensors cannot be read"):
        mesu.load(path)
    assert not (tmp_path / "exploded").exists()


def test_other_peoples_tensors_are_refused(path):
    path.write_bytes(as_bytes({"weight": np.zeros(3)}))
    with pytest.raises(Unreadable, match="mesu did not save"):
        mesu.load(path)


def test_no_file_and_a_folder(path, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no model at .*model\.safetensors"):
        mesu.load(path)
    with pytest.raises(Unreadable, match=f"{re.escape(str(tmp_path))} is a folder: name the file of a model in it"):
        mesu.load(tmp_path)


def forge(path, change):
    """Rewrite a file after `change(header, description, tensors)`, with the checksum that goes with it."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, tensors = json.loads(data[8 : 8 + length])["__metadata__"], tensors_of(data)
    description = json.loads(header["description"])
    change(header, description, tensors)
    header["description"] = json.dumps(description)
    header["sha256"] = saving.digest_of(header["description"], tensors)
    path.write_bytes(as_bytes(tensors, metadata=header))


def test_a_forged_file_that_changes_nothing_is_read(path):
    model = classifier()
    model.save(path)
    forge(path, lambda *_: None)
    assert same(mesu.load(path)._stream.moment, model._stream.moment)


def test_a_later_version_is_named(path):
    classifier().save(path)
    forge(path, lambda header, *_: header.update(version="2"))
    with pytest.raises(Unreadable, match="has version 2 of the format, and this mesu reads version 1: update mesu"):
        mesu.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda h, d, t: d.update({"class": "system"}),
        lambda h, d, t: d.update({"class": "MESURegressor"}),
        lambda h, d, t: d["parameters"].update(evil=1),
        lambda h, d, t: d.pop("parameters"),
        lambda h, d, t: d["settings"].update(memory=0.5),
        lambda h, d, t: d["settings"].update(hidden=[10**9]),
        lambda h, d, t: d["settings"].update(seed="0"),
        lambda h, d, t: d.update(sizes=[5, 10**12, 4]),
        lambda h, d, t: d.update(sizes=[]),
        lambda h, d, t: d.update(sizes=[5.0, 12, 4]),
        lambda h, d, t: d.update(labels=["cat", "dog", "ant"]),
        lambda h, d, t: d.update(labels=["cat", "dog", "ant", "ant"]),
        lambda h, d, t: d.update(labels=["cat", "dog", "ant", 4]),
        lambda h, d, t: d.update(labels=["cat", "dog", "ant", ["bee"]]),
        lambda h, d, t: d.update(labels=[1, 2, 3, nan]),
        lambda h, d, t: d.update(rows=0),
        lambda h, d, t: d.update(updates=1.5),
        lambda h, d, t: d.update(updates=10),
        lambda h, d, t: d.update(noise_std=0),
        lambda h, d, t: d.update(frame=[0, -1]),
        lambda h, d, t: d.update(frame=[0]),
        lambda h, d, t: d.update(feature_names=["a"]),
        lambda h, d, t: d.update(feature_names=[1, 2, 3, 4, 5]),
        lambda h, d, t: t.pop("judge.std"),
        lambda h, d, t: t.update(more=np.zeros(2)),
        lambda h, d, t: t.update(mean=t["mean"][:-1]),
        lambda h, d, t: t.update(mean=t["mean"].astype(np.float64)),
        lambda h, d, t: t.update(std=-t["std"]),
        lambda h, d, t: t.update(std=t["std"] * nan),
        lambda h, d, t: t.update({"judge.mean": t["judge.mean"] + inf}),
        lambda h, d, t: t.update({"inputs.var": -t["inputs.var"]}),
        lambda h, d, t: t.update(usual=t["usual"][:5]),
        lambda h, d, t: h.pop("format"),
    ],
)
def test_a_forged_file_that_contradicts_itself_is_refused(change, path):
    classifier().save(path)
    forge(path, change)
    with pytest.raises(Unreadable, match=r"the model .* cannot be read \(.+\)"):
        mesu.load(path)


# -- writing ----------------------------------------------------------------------------------------------------------


def test_a_save_that_fails_leaves_the_old_file(path, monkeypatch):
    model = classifier()
    model.save(path)
    before = path.read_bytes()
    model.partial_fit(clusters(20)[0], ["cat"] * 20)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        model.save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    monkeypatch.undo()
    model.save(path)
    assert same(mesu.load(path)._stream.moment, model._stream.moment)


def test_a_missing_folder_is_named_and_no_file_aside(path):
    path = path.parent / "nope" / "model.safetensors"
    words = f"cannot write {path}: the folder {path.parent} does not exist"
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(words)}$"):
        regressor().save(path)
    path.parent.write_text("a file in the place of a folder")
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(words)}$"):
        regressor().save(path)


def test_a_model_is_not_written_over_a_folder(tmp_path):
    with pytest.raises(IsADirectoryError, match=f"^cannot write {re.escape(str(tmp_path))}: it is a folder$"):
        regressor().save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_error_about_a_file_aside_names_the_file_asked_for(path):
    with pytest.raises(PermissionError) as caught, replacing(path) as aside:
        raise PermissionError(13, "Permission denied", str(aside))
    assert str(caught.value) == f"[Errno 13] Permission denied: {str(path)!r}"


def test_a_generator_can_be_replaced_by_a_number_to_be_saved(path):
    model = classifier(random_state=np.random.RandomState(0))
    model.set_params(random_state=0).save(path)
    assert same(mesu.load(path)._stream.moment, model._stream.moment)


def test_what_cannot_be_saved_is_said(path):
    with pytest.raises(ValueError, match="not fitted"):
        mesu.MESUClassifier().save(path)
    with pytest.raises(ValueError, match=r"random_state must be a number to be saved, got RandomState.*set_params"):
        classifier(random_state=np.random.RandomState(0)).save(path)

    class Mine(mesu.MESUClassifier):
        pass

    with pytest.raises(ValueError, match="only MESUClassifier and MESURegressor can be saved, got Mine"):
        Mine(random_state=0).fit(*clusters(20)).save(path)
    assert not path.exists()


def test_saving_while_learning_saves_a_state_that_there_was(path):
    model, twin = classifier(10), classifier(10)
    X, y = clusters(1000, seed=1)
    names = np.array(["cat", "dog", "ant", "bee"])[y]
    chunks = [(X[at : at + 50], names[at : at + 50]) for at in range(0, 1000, 50)]
    states = [twin._stream.moment, *(twin.partial_fit(*chunk)._stream.moment for chunk in chunks)]
    done, found = threading.Event(), []

    def keep():
        while not done.is_set():
            model.save(path)
            found.append(mesu.load(path)._stream.moment)

    thread = threading.Thread(target=keep)
    thread.start()
    for chunk in chunks:
        model.partial_fit(*chunk)
    done.set()
    thread.join()
    assert found
    assert all(any(same(moment, state) for state in states) for moment in found)


# -- River's models ---------------------------------------------------------------------------------------------------


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
    assert twin._stream is not model._stream
    assert [(type(name), name) for name in twin._columns] == [(type(name), name) for name in model._columns]
    for each in (model, twin):
        # a feature and a class that are new
        fed(each, (({**x, "late": 1.0}, y) for x, y in rows_of_dicts(40, 1, ("cat", "dog", "ant", "eel"))))
    assert same(model._stream.moment, twin._stream.moment)
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
            fed(model.clone(), rows_of_dicts(9))._stream.moment, fed(twin.clone(), rows_of_dicts(9))._stream.moment
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
    assert twin._settings == model._settings == twin._stream.moment.settings
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


@pytest.mark.parametrize("label", [inf, Fraction(1, 3)])
def test_a_label_that_json_would_change_is_refused(label, path):
    model = river.MESUClassifier(**SMALL)
    model.learn_one({"a": 1.0}, label)
    with pytest.raises(ValueError, match="cannot be saved") as refused:
        model.save(path)
    assert f"the label {label!r} " in str(refused.value)
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
            found.append((list(twin._columns), twin._stream.moment.weights.sizes[0]))

    thread = threading.Thread(target=keep)
    thread.start()
    for i in range(1, 60):
        model.learn_one({f"f{i}": 1.0}, "x")
    done.set()
    thread.join()
    assert found
    assert all(names == [f"f{i}" for i in range(inputs)] for names, inputs in found)
