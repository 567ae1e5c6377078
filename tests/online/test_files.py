"""A model in a file, in a pickle, in a copy: what comes back goes on bit for bit; and writing is all or nothing."""

import copy
import json
import os
import pickle
import re
import struct
import threading
from math import inf

import joblib
import numpy as np
import pandas as pd
import pytest
from made_up import (
    classifier,
    clusters,
    line,
    regressor,
    same,
)

import mesu


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
    assert same(model._online.snapshot, twin._online.snapshot)
    assert twin._online is not model._online
    X, y = clusters(400, classes=6, seed=1)  # two classes are new
    names = np.array(["cat", "dog", "ant", "bee", "eel", "fox"])[y]
    for each in (model, twin):
        each.partial_fit(X, names)
    assert same(model._online.snapshot, twin._online.snapshot)
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
    assert same(model._online.snapshot, twin._online.snapshot)
    np.testing.assert_array_equal(model.predict(X, return_std=True), twin.predict(X, return_std=True))


@pytest.mark.filterwarnings("ignore::mesu.LearningWarning")  # later rows are ten times as large as the first
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
    assert same(model._online.snapshot, twin._online.snapshot)


def test_a_set_gone_over_several_times_goes_on_too(path):
    model = mesu.MESURegressor(epochs=3, random_state=0).fit(*line(100))
    model.save(path)
    twin = mesu.load(path)
    for each in (model, twin):
        each.partial_fit(*line(100, seed=1))
    assert same(model._online.snapshot, twin._online.snapshot)
    assert same(model.fit(*line(50))._online.snapshot, twin.fit(*line(50))._online.snapshot)


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
    assert same(mesu.load(path)._online.snapshot, model._online.snapshot)


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


def test_a_generator_can_be_replaced_by_a_number_to_be_saved(path):
    model = classifier(random_state=np.random.RandomState(0))
    model.set_params(random_state=0).save(path)
    assert same(mesu.load(path)._online.snapshot, model._online.snapshot)


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
    states = [twin._online.snapshot, *(twin.partial_fit(*chunk)._online.snapshot for chunk in chunks)]
    done, found = threading.Event(), []

    def keep():
        while not done.is_set():
            model.save(path)
            found.append(mesu.load(path)._online.snapshot)

    thread = threading.Thread(target=keep)
    thread.start()
    for chunk in chunks:
        model.partial_fit(*chunk)
    done.set()
    thread.join()
    assert found
    assert all(any(same(snapshot, state) for state in states) for snapshot in found)
