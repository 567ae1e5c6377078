"""A model a key: each as if it were alone, memory bounded, the file as the last save left it, the base taught once by a key."""

import os
import signal
import sqlite3
import sys

import numpy as np
import pytest
from made_up import same

import mesu
from mesu.online.files import Unreadable
from mesu.online.keyed import worth

KEYS = ("a", "b", 1, "1", -2.5, True)


def base(rows=20, **settings):
    X, y = table(rows, seed=9)
    return mesu.MESUClassifier(hidden=(4,), random_state=0, predict_samples=8, **settings).partial_fit(X, y)


def table(rows, seed=0):
    X = np.random.default_rng(seed).normal(size=(rows, 3))
    return X, (X[:, 0] + X[:, 1] > 0).astype(int)


def rows_of(count, seed=0):
    draw = np.random.default_rng(seed)
    return [KEYS[i] for i in draw.integers(len(KEYS), size=count)], *table(count, seed)


def snapshots(keyed):
    return {repr(key): keyed.model(key)._online.snapshot for key in keyed}


def alike(one, other):
    return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "keyed.sqlite"


def test_each_key_learns_as_if_it_were_alone(file):
    keys, X, y = rows_of(200)
    with mesu.Keyed(base(), file, in_memory=2, share_after=None) as keyed:  # most of the time in the file
        start = keyed.model("new")
        for at in range(0, 200, 20):
            keyed.partial_fit(keys[at : at + 20], X[at : at + 20], y[at : at + 20])
        assert len(keyed) == len(KEYS) == len(list(keyed))
        assert "new" not in keyed
        for key in KEYS:
            own = np.array([each == key and type(each) is type(key) for each in keys])
            alone = type(start)._from_kept(*start._kept()).partial_fit(X[own], y[own])
            assert same(keyed.model(key)._online.snapshot, alone._online.snapshot)
            np.testing.assert_array_equal(keyed.predict([key] * 9, X[:9]), alone.predict(X[:9]))
            (probs,) = keyed.predict_proba([key], X[:1])
            assert list(probs.values()) == alone.predict_proba(X[:1])[0].tolist()
        np.testing.assert_array_equal(keyed.predict(["new"] * 9, X[:9]), start.predict(X[:9]))
        assert len(keyed._models) == 2


def test_the_cut_into_calls_and_the_room_in_memory_change_nothing(tmp_path):
    keys, X, y = rows_of(240)
    found = []
    for number, (step, room) in enumerate([(1, 1), (60, 3), (240, 100)]):
        with mesu.Keyed(base(), tmp_path / f"{number}.sqlite", in_memory=room, share_after=10, together=6) as keyed:
            for at in range(0, 240, step):
                keyed.partial_fit(keys[at : at + step], X[at : at + step], y[at : at + step])
            assert len(keyed._models) <= room
            found.append(snapshots(keyed))
    assert alike(found[0], found[1])
    assert alike(found[0], found[2])


def test_a_kill_loses_the_rows_since_the_last_save_and_nothing_else(tmp_path):
    """The same rows after it give the same models, bit for bit, although some models had left memory before the kill."""
    keys, X, y = rows_of(160)

    def learn(path, stop=None):
        with mesu.Keyed(base(), path, in_memory=2, share_after=12, together=3) as keyed:
            at = (keyed.carried or {"offset": 0})["offset"]
            for i in range(at, 160):
                keyed.partial_fit(keys[i : i + 1], X[i : i + 1], y[i : i + 1])
                if i == stop:
                    os.kill(os.getpid(), signal.SIGKILL)
                if i % 40 == 39:
                    keyed.save(carry={"offset": i + 1})
            return snapshots(keyed), keyed._generation

    undisturbed, generations = learn(tmp_path / "whole.sqlite")
    assert generations > 0  # the base has learned
    if not hasattr(os, "fork"):
        pytest.skip("a process that is killed is forked first, which Windows cannot do")
    for stop in (0, 39, 70, 125):
        path = tmp_path / f"{stop}.sqlite"
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            try:
                learn(path, stop)
            finally:
                os._exit(3)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), stop
        found, _ = learn(path)
        assert alike(found, undisturbed), stop


def test_a_refused_batch_changes_no_key(file):
    keys, X, y = rows_of(60)
    with mesu.Keyed(base(), file, in_memory=2, share_after=9, together=2) as keyed:
        keyed.partial_fit(keys, X, y)
        before, state = snapshots(keyed), (keyed._generation, len(keyed._teachers), len(keyed))
        bad = X.copy()
        bad[-1, 0] = np.nan
        with pytest.raises(ValueError, match="NaN"):
            keyed.partial_fit([*keys[:-2], "new one", keys[-1]], bad, y)
        assert alike(snapshots(keyed), before)
        assert (keyed._generation, len(keyed._teachers), len(keyed)) == state
        with pytest.raises(ValueError, match="got 59 keys for columns of 60 and 60 rows"):
            keyed.partial_fit(keys[1:], X, y)


def test_a_key_teaches_the_base_once(file):
    X, y = table(100)
    with mesu.Keyed(base(), file, share_after=30, together=2) as keyed:
        start = keyed.model("new")
        for key in ("a", "b"):
            keyed.partial_fit([key] * 30, X[:30], y[:30])
        models = [keyed.model(key) for key in ("a", "b")]
        assert same(keyed.base._online.snapshot, mesu.merge(start, models, means="average")._online.snapshot)
        assert same(keyed.model("new")._online.snapshot, worth(keyed.base._online.snapshot, 100))
        taught = keyed.base._online.snapshot
        for key in ("a", "b"):  # again 30 rows, and keys of an older base
            keyed.partial_fit([key] * 70, X[30:], y[30:])
        assert same(keyed.base._online.snapshot, taught)


def test_what_a_base_is_worth():
    now = base(400, memory=1000)._online.snapshot
    few = worth(now, 40)
    start = base(1, memory=1000)._online.snapshot.weights.std[0]
    window = 1000 * (1 - (1 - 1 / 1000) ** 400)
    np.testing.assert_array_equal(few.weights.mean, now.weights.mean)
    first = now.weights.std[:4].astype(float)  # of the first layer, which all started alike
    expected = (start**-2.0 + 40 / window * (first**-2 - start**-2.0)) ** -0.5
    np.testing.assert_allclose(few.weights.std[:4], expected, rtol=1e-5)
    assert (few.rows, few.updates, len(few.recent_epistemic)) == (40, 40, 40)
    np.testing.assert_array_equal(worth(now, 1e9).weights.std, now.weights.std)


def test_keys_of_a_regressor_keep_their_own_units(file):
    X = np.random.default_rng(0).normal(size=(400, 2))
    first = mesu.MESURegressor(hidden=(6,), random_state=0, predict_samples=8).partial_fit(X[:100], X[:100, 0])
    keys = ["small", "large"] * 150
    y = np.where(np.array(keys) == "large", 1000 + 100 * X[100:, 0], X[100:, 0])
    with mesu.Keyed(first, file, in_memory=1) as keyed:
        keyed.partial_fit(keys, X[100:], y)
        keyed.save()
    with mesu.Keyed(first, file, in_memory=1) as keyed:
        for key, scale in (("small", 1.0), ("large", 100.0)):
            own = np.array(keys) == key
            assert np.abs(keyed.predict([key] * 150, X[100:][own]) - y[own]).mean() < 0.35 * scale


def test_rivers_models_too(file):
    from mesu import river

    rows = [({"x": float(i % 5), "z": float(i % 3)}, i % 5 > 2) for i in range(60)]
    first = river.MESUClassifier(hidden=(4,), seed=0, predict_samples=8)
    first.learn_one(*rows[0])
    with mesu.Keyed(first, file, in_memory=1) as keyed:
        for i, (x, y) in enumerate(rows):
            keyed.learn_one(i % 2, x, y)
        keyed.learn_many([0, 1, 0], [x for x, _ in rows[:3]], [y for _, y in rows[:3]])
        keyed.learn_one(7, {"other": 1.0, "x": 2.0}, False)  # a feature of its own
        assert keyed.predict_many([0, 1], [rows[3][0], rows[1][0]]) == [True, False]
        assert set(keyed.predict_proba_one("new", rows[0][0])) == {False}
        keyed.save()
    with mesu.Keyed(first, file) as again:
        assert again.predict_one(0, rows[3][0]) is True
        assert list(again) == [0, 1, 7]
        assert again.carried is None


def test_one_process_at_a_time_and_only_its_own_files(file, tmp_path):
    with mesu.Keyed(base(), file), pytest.raises(ValueError, match=r"has .* open: one at a time"):
        mesu.Keyed(base(), file)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        mesu.Keyed(base(), tmp_path / "no" / "file")
    (tmp_path / "text").write_text("not a database, but long enough to be taken for one" * 9)
    with pytest.raises(Unreadable, match="not a database"):
        mesu.Keyed(base(), tmp_path / "text")
    with mesu.Keyed(base(), file) as keyed:
        keyed.partial_fit(["a"], *table(1))
        keyed.save()
    other = sqlite3.connect(file)
    other.execute("UPDATE models SET model = zeroblob(9)")
    other.commit()
    other.close()
    with mesu.Keyed(base(), file) as keyed, pytest.raises(Unreadable, match=r"the model of 'a' in .* cannot be read"):
        keyed.model("a")


def test_what_cannot_be_used_is_refused(file):
    with pytest.raises(ValueError, match="in_memory must be a whole number"):
        mesu.Keyed(base(), file, in_memory=0)
    with pytest.raises(ValueError, match="not fitted"):
        mesu.Keyed(mesu.MESUClassifier(), file)
    with mesu.Keyed(base(), file) as keyed:
        with pytest.raises(ValueError, match="the key"):
            keyed.partial_fit([("a", 1)], *table(1))
        with pytest.raises(ValueError, match="carry must be a dict"):
            keyed.save(carry=3)


def test_frames_are_refused_since_the_order_of_their_columns_would_be_lost(tmp_path):
    pandas = pytest.importorskip("pandas")
    base = mesu.MESUClassifier(hidden=(4,), random_state=0).partial_fit([[0.0], [1.0]], [0, 1])
    with mesu.Keyed(base, tmp_path / "keys.db") as keyed, pytest.raises(TypeError, match=r"give X\.to_numpy\(\)"):
        keyed.partial_fit(["a"], pandas.DataFrame({"u": [1.0]}), [0])


def test_after_an_error_of_the_disk_nothing_more_is_saved(file):
    """SQLite takes back what was written since the last save: a later save would carry a position past rows that are lost."""
    keys, X, y = rows_of(60)
    with mesu.Keyed(base(), file, in_memory=2, share_after=None) as keyed:
        keyed.partial_fit(keys[:30], X[:30], y[:30])
        keyed.save({"offset": 30})
        keyed.partial_fit(keys[30:], X[30:], y[30:])  # writes models that have no room in memory
        keyed._file.execute("ROLLBACK")
        with pytest.raises(RuntimeError, match="has lost what was learned since the last save"):
            keyed.save({"offset": 60})
    with mesu.Keyed(base(), file, in_memory=2, share_after=None) as keyed:
        assert keyed.carried == {"offset": 30}
        keyed.partial_fit(keys[30:], X[30:], y[30:])
        keyed.save({"offset": 60})
