"""Online models merge: running scales as if one had seen all rows, classes and features by name; a file takes the result."""

import copy
import warnings
from itertools import pairwise

import numpy as np
import pytest
from made_up import SMALL_RIVER, classifier, clusters, learned, line, regressor, stream

import mesu
from mesu.online.merging import merge_scales
from mesu.online.scaling import follow, unknown


def split(x, parts):
    edges = np.cumsum([0, *parts])
    return [x[a:b] for a, b in pairwise(edges)]


def table(rows=300, seed=0):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, 3)) * [1, 1e-2, 5] + [0, 1e6, -2]
    x[draw.random(x.shape) < 0.1] = np.nan
    return x


def test_scales_are_those_of_all_rows_together():
    first, *shards = split(table(), (60, 100, 0, 140))
    base, _ = follow(unknown(3), first, np.inf)
    found = merge_scales(base, [follow(base, shard, np.inf)[0] for shard in shards], [100, 0, 140], np.inf)
    np.testing.assert_array_equal(found.rows, (~np.isnan(table())).sum(0))
    np.testing.assert_allclose(found.mean, np.nanmean(table(), 0), rtol=1e-12)
    np.testing.assert_allclose(found.var, np.nanvar(table(), 0), rtol=1e-5)  # 1e-2 beside 1e6


@pytest.mark.parametrize("first", [20, 50, 90])  # the memory of 50 is full late, at once, or from the start
def test_a_full_memory_forgets_the_base_once(first):
    memory, new = 50.0, 60
    x = np.nan_to_num(table(first + 2 * new))
    start, *shards = split(x, (first, new, new))
    base, _ = follow(unknown(3), start, memory)
    found = merge_scales(base, [follow(base, shard, memory)[0] for shard in shards], [new, new], memory)
    # by hand: rows lose 1/50 of their weight with each row that finds the memory full
    age = np.maximum(first + np.arange(1, new + 1) - memory, 0)  # how often the memory was full by then
    own = (1 - 1 / memory) ** (age[-1] - age)
    begun = np.maximum(np.arange(1, first + 1) - memory, 0)
    old = (1 - 1 / memory) ** (age[-1] - begun)
    weight = np.concatenate([old, own, own])[:, None]
    np.testing.assert_allclose(found.rows, memory)
    mean = (weight * x).sum(0) / weight.sum()
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(found.var, (weight * (x - mean) ** 2).sum(0) / weight.sum(), rtol=1e-5)


@pytest.mark.parametrize("make", [classifier, regressor])
def test_one_worker_is_the_worker(make):
    base = make(100)
    worker = copy.deepcopy(base)
    X, y = clusters(200, seed=1) if make is classifier else line(200, seed=1)
    worker.partial_fit(X, np.array(["cat", "dog", "ant", "bee"])[y] if make is classifier else 3 * y + 1)
    found = mesu.merge(base, [worker])
    for name in ("rows", "updates", "labels"):
        assert getattr(found._online.snapshot, name) == getattr(worker._online.snapshot, name)
    ours, theirs = found._online.snapshot, worker._online.snapshot
    np.testing.assert_allclose(ours.inputs[:3], theirs.inputs[:3], rtol=1e-9)
    np.testing.assert_allclose(ours.weights.std, theirs.weights.std, rtol=1e-5)
    np.testing.assert_array_equal(ours.recent_epistemic, theirs.recent_epistemic)
    ask = found.predict_proba if make is classifier else found.predict
    # of a regressor, the units of the outputs are brought up to date, which draws the last layer a little wider or narrower
    theirs = (worker.predict_proba if make is classifier else worker.predict)(X)
    np.testing.assert_allclose(ask(X), theirs, rtol=1e-3, atol=1e-4 if make is classifier else 5e-3)


def test_the_precision_of_every_weight_follows_the_formula():
    base = classifier(100, memory=80, prior_std=0.5)
    shards = [clusters(70, seed=seed) for seed in (1, 2, 3)]
    workers = [copy.deepcopy(base).partial_fit(X, np.array(["cat", "dog", "ant", "bee"])[y]) for X, y in shards]
    p0, *p = (model._online.snapshot.weights.std.astype(float) ** -2 for model in (base, *workers))
    left = (1 - 1 / 80) ** 70
    expected = sum(p) - 2 * (left * p0 + (1 - left) / 0.25)
    found = mesu.merge(base, workers)._online.snapshot.weights.std.astype(float) ** -2
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert (np.abs(found / (sum(p) - 2 * p0) - 1) > 1e-3).mean() > 0.9  # forgetting makes a difference here


def test_classes_are_matched_by_name(path):
    X, y = clusters(600, classes=4)
    names = np.array(["cat", "dog", "ant", "bee"])[y]
    old = np.isin(names, ["cat", "dog"])
    base = mesu.MESUClassifier(hidden=(12,), random_state=0).partial_fit(X[old][:50], names[old][:50])
    a, b = copy.deepcopy(base), copy.deepcopy(base)
    a.partial_fit(X[names != "ant"], names[names != "ant"])  # meets bee
    b.partial_fit(X[names != "bee"], names[names != "bee"])  # meets ant
    found = mesu.merge(base, [a, b])
    assert found._online.snapshot.labels == (*base._online.snapshot.labels, "bee", "ant")
    assert (found.predict(X) == names).mean() > 0.95
    found.save(path)  # a file is checked against itself when it is read
    again = mesu.load(path)
    for each in (found, again):
        each.partial_fit(X, names)
    np.testing.assert_array_equal(found.predict_proba(X), again.predict_proba(X))


def test_regressors_that_merge_often_are_as_good_as_one_that_saw_everything(path):
    base, shards, (X, y) = regressor(100), [line(300, seed=seed) for seed in (1, 2)], line(200, seed=5)
    one = copy.deepcopy(base)
    for at in range(0, 300, 10):
        for shard in shards:
            one.partial_fit(*(part[at : at + 10] for part in shard))
    found = base
    for at in range(0, 300, 10):
        workers = [copy.deepcopy(found).partial_fit(*(part[at : at + 10] for part in shard)) for shard in shards]
        found = mesu.merge(found, workers)
    assert found._online.snapshot.rows == 700
    np.testing.assert_allclose(found._online.snapshot.inputs[:3], one._online.snapshot.inputs[:3], rtol=1e-6)
    errors = [np.abs(model.predict(X) - y).mean() for model in (base, one, found)]
    assert errors[2] < 1.1 * errors[1] < errors[0]
    found.save(path)  # a file is checked against itself when it is read
    again = mesu.load(path)
    for each in (found, again):
        each.partial_fit(*line(300, seed=6))
    np.testing.assert_array_equal(found.predict(X), again.predict(X))


def test_features_are_matched_by_name(path):
    from mesu import river

    base = learned(river.MESUClassifier(**SMALL_RIVER), stream(15))  # feature a comes at row 20
    a, b = copy.deepcopy(base), copy.deepcopy(base)
    for x, y in stream(80, seed=1):
        a.learn_one({**x, "only a": x["d"]}, y)
        b.learn_one({**x, "only b": -x["d"]}, y)
    found = mesu.merge(base, [a, b])
    names = list(found._columns)
    assert names[: len(base._columns)] == list(base._columns)
    assert {*names} == {*a._columns, *b._columns}
    now, theirs = found._online.snapshot, {"a": a._online.snapshot, "b": b._online.snapshot}
    for worker, other in (("a", "b"), ("b", "a")):
        column = list((a if worker == "a" else b)._columns).index(f"only {worker}")
        at = names.index(f"only {worker}")
        assert now.inputs.mean[at] == pytest.approx(theirs[worker].inputs.mean[column])
        assert now.inputs.rows[at] == 80
        assert f"only {other}" in names
    found.save(path)
    assert mesu.load(path).predict_proba_one({"only a": 1.0, "d": 1.0}) == found.predict_proba_one(
        {"only a": 1.0, "d": 1.0}
    )


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: classifier(150, memory=400), r"memory is 400.0 there, and 500.0 in the base"),
        (lambda: classifier(150, random_state=4), "seed is"),
        (lambda: classifier(50), "learned 50 rows, and the base 100"),
        (
            lambda: mesu.MESUClassifier(hidden=(12,), memory=500, random_state=3).partial_fit(
                [[0.0] * 5] * 150, ["eel"] * 150
            ),
            "its labels begin",
        ),
    ],
)
def test_models_that_did_not_begin_as_the_base_are_refused(other, message):
    base = classifier(100)
    with pytest.raises(ValueError, match=message):
        mesu.merge(base, [copy.deepcopy(base), other()])


def test_kinds_are_not_mixed():
    with pytest.raises(TypeError, match=r"posteriors\[0\] is a MESURegressor, and the base a MESUClassifier"):
        mesu.merge(classifier(20), [regressor(20)])
    with pytest.raises(ValueError, match="leave out optimizer and updates"):
        mesu.merge(classifier(20), [classifier(20)], updates=3)


def _sums(model):
    inputs = model._online.snapshot.inputs
    return inputs.mean, inputs.var


def test_a_sentinel_that_a_worker_took_back_leaves_a_scale():
    """The base has counted it, and the workers have dropped it: their difference is no variance."""
    draw = np.random.default_rng(0)
    first = draw.normal(10, 1, (12, 2))
    first[5, 0] = -9999.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mesu.LearningWarning)
        base = mesu.MESUClassifier(hidden=(4,), random_state=0).partial_fit(
            first, first[:, 1] > 10, classes=[False, True]
        )
        workers = []
        for _ in range(2):
            rows = draw.normal(10, 1, (300, 2))
            workers.append(copy.deepcopy(base).partial_fit(rows, rows[:, 1] > 10))
        found = mesu.merge(base, workers)
    mean, var = _sums(found)
    assert mean == pytest.approx([10, 10], abs=0.3)
    assert var == pytest.approx([1, 1], abs=0.3)


def test_a_column_that_changed_level_in_the_workers_keeps_the_new_one():
    draw = np.random.default_rng(0)
    first = draw.normal(0, 1, (100, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mesu.LearningWarning)
        base = mesu.MESUClassifier(hidden=(4,), random_state=0).partial_fit(
            first, first[:, 1] > 0, classes=[False, True]
        )
        workers = []
        for _ in range(2):
            rows = draw.normal(0, 1, (400, 2)) + np.array([10_000.0, 0.0])
            workers.append(copy.deepcopy(base).partial_fit(rows, rows[:, 1] > 0))
        found = mesu.merge(base, workers)
        mean, var = _sums(found)
        assert mean == pytest.approx([10_000, 0], abs=0.5)
        assert var == pytest.approx([1, 1], abs=0.5)
        more = draw.normal(0, 1, (200, 2)) + np.array([10_000.0, 0.0])
        found.partial_fit(more, more[:, 1] > 0)
    assert _sums(found)[0] == pytest.approx([10_000, 0], abs=0.5)  # its watch knows the new level


def test_more_classes_together_than_a_model_may_have_are_refused():
    x = np.random.default_rng(0).normal(size=(40, 2))
    base = mesu.MESUClassifier(hidden=(4,), random_state=0, max_classes=3).partial_fit(
        x, np.where(x[:, 0] > 0, "a", "b")
    )
    workers = [copy.deepcopy(base).partial_fit(x, [label] * 40) for label in ("c", "d")]
    with pytest.raises(ValueError, match="max_classes is 3"):
        mesu.merge(base, workers)
