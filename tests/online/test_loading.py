"""Files that are damaged, foreign, forged or of a later version are refused; those of earlier versions are read."""

import json
import os
import pickle
import re
import tracemalloc
from math import inf, nan
from pathlib import Path

import joblib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import classifier, equal, forge, regressor, same
from safetensors import safe_open
from safetensors.numpy import save as as_bytes

import mesu
from mesu.online.files import Unreadable


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


def test_a_forged_file_that_changes_nothing_is_read(path):
    model = classifier()
    model.save(path)
    forge(path, lambda *_: None)
    assert same(mesu.load(path)._online.snapshot, model._online.snapshot)


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


# -- earlier versions -------------------------------------------------------------------------------------------------

SAVED = Path(__file__).parent / "saved"  # by the first version of mesu that saved models
ROWS = np.array([[0.5, -1.0, 2.0], [3.0, 0.0, -1.0]])


def contents(path):
    with safe_open(path, framework="np") as file:
        return file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


@pytest.mark.parametrize("name", ["classifier", "regressor", "river_classifier", "river_regressor"])
def test_a_file_of_the_first_version_is_read_and_written_again_as_it_was(name, path):
    model = mesu.load(SAVED / f"{name}.safetensors")
    model.save(path)
    (header, tensors), (first_header, first_tensors) = map(contents, (path, SAVED / f"{name}.safetensors"))
    assert (header.pop("mesu"), len(header.pop("sha256 with mesu"))) == (mesu.__version__, 64)
    assert header == first_header  # the checksum is part of it
    assert tensors.keys() == first_tensors.keys()
    assert all(equal(tensors[key], first_tensors[key]) for key in tensors)


def test_models_of_the_first_version_predict_what_they_predicted_then():
    classifier, regressor, river_classifier, river_regressor = (
        mesu.load(SAVED / f"{name}.safetensors")
        for name in ("classifier", "regressor", "river_classifier", "river_regressor")
    )
    then = [[0.4519, 0.4356, 0.1125], [0.1888, 0.7194, 0.0918]]
    np.testing.assert_allclose(classifier.predict_proba(ROWS), then, atol=2e-4)
    assert list(classifier.classes_) == ["cat", "dog", "eel"]
    np.testing.assert_allclose(regressor.predict(ROWS, return_std=True), [[16.548, 9.022], [4.298, 4.56]], atol=0.002)
    x = {"a": 0.5, "c": 2.0}
    then = {"dog": 0.6151, "cat": 0.2509, "eel": 0.1340}
    assert river_classifier.predict_proba_one(x) == pytest.approx(then, abs=2e-4)
    assert river_regressor.predict_one(x) == pytest.approx(10.7447, abs=0.002)
    assert river_regressor.uncertainty_one(x) == pytest.approx(
        {"total": 28.882, "aleatoric": 18.664, "epistemic": 10.218}, abs=0.005
    )


def test_models_of_the_first_version_go_on_learning():
    draw = np.random.default_rng(0)
    X, y = draw.normal(size=(300, 3)), draw.integers(3, size=300)
    model = mesu.load(SAVED / "classifier.safetensors")
    assert model._online.snapshot.rows == 70
    model.partial_fit(X + 3 * np.eye(3)[y], np.array(["cat", "eel", "fox"])[y])
    assert list(model.classes_) == ["cat", "dog", "eel", "fox"]
    assert model.score(X + 3 * np.eye(3)[y], np.array(["cat", "eel", "fox"])[y]) > 0.8


# -- files that lie ----------------------------------------------------------------------------------------------------


def small(path):
    """A file to forge."""
    mesu.MESURegressor(hidden=(3,), random_state=0).partial_fit([[0.0], [1.0]], [0.0, 1.0]).save(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda _, d, __: d["settings"].update(predict_samples=10**9),
        lambda _, d, __: d["settings"].update(samples=10**9),
        lambda _, d, __: d["settings"].update(init_scale=1e300),
        lambda _, d, __: d["settings"].update(prior_std=1e300),
        lambda _, d, __: d.update(updates=10**400),
        lambda _, d, __: d.update(noise_std=1e300),
        lambda _, d, __: d.update(frame=[0.0, 1e-300]),
        lambda _, d, __: d.update(reported=[1e300, 0.5]),
        lambda _, __, t: t.update(misses=-t["misses"] - 1),
        lambda _, __, t: t.update({"inputs.watch": np.full_like(t["inputs.watch"], 33.0)}),  # places beyond the sample
        lambda _, __, t: t.update({"inputs.watch": t["inputs.watch"] - 0.5}),
    ],
)
def test_numbers_beyond_all_bounds_are_refused(change, path):
    small(path)
    forge(path, lambda *_: None)
    mesu.load(path)
    forge(path, change)
    with pytest.raises(Unreadable, match="cannot be read"):
        mesu.load(path)


@pytest.mark.skipif(os.name != "posix", reason="POSIX only")
def test_a_file_that_claims_more_than_it_holds_is_refused_before_it_is_read(path, monkeypatch):
    """Six gigabytes of holes, four kilobytes on disk; and shapes that the description does not ask for."""
    size = 6 * 2**30
    small(path)
    header, tensors = contents(path)
    about = {name: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for name in tensors if name != "mean"}
    about |= {"mean": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}, "__metadata__": header}
    words = json.dumps(about).encode()
    words += b" " * (-len(words) % 8)
    with path.open("wb") as file:
        file.write(len(words).to_bytes(8, "little") + words)
        file.truncate(8 + len(words) + size)
    tracemalloc.start()
    try:
        with pytest.raises(Unreadable, match="holds hardly any"):
            mesu.load(path)
        monkeypatch.setattr("mesu.online.loading.check_file", lambda _: None)
        with pytest.raises(Unreadable, match="another shape or type"):
            mesu.load(path)
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(os.name != "posix", reason="POSIX only")
def test_pipes_and_devices_are_refused(path):
    os.mkfifo(path)
    for place in (path, Path("/dev/zero")):
        with pytest.raises(Unreadable, match="not a file, but"):
            mesu.load(place)


def test_another_version_is_told_where_a_file_cannot_be_read(path):
    small(path)
    header, tensors = contents(path)
    for version, told in (("0.0.9", "saved by mesu 0.0.9, and this is mesu"), (mesu.__version__, r"saved\)$")):
        header.update(mesu=version, sha256="0")
        path.write_bytes(as_bytes(tensors, metadata=header))
        with pytest.raises(Unreadable, match=told):
            mesu.load(path)
    path.write_bytes((SAVED / "regressor.safetensors").read_bytes().replace(b"sizes", b"seizs"))
    with pytest.raises(Unreadable, match="saved by an earlier version"):
        mesu.load(path)
