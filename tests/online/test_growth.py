"""New classes and new columns leave what was learned as it is."""

import numpy as np
import pandas as pd
import pytest
from made_up import CLASSES, at_mean, clusters, layers, learned

import mesu
from mesu.online.growth import with_inputs, with_labels
from mesu.online.model import OnlineModel
from mesu.online.network import start_weights


def test_a_new_class_leaves_the_others_as_they_are():
    X, y = clusters(300)
    stream = OnlineModel(CLASSES, 5)
    stream.learn(X, y)
    before = stream.snapshot
    after = with_labels(before, [7])
    assert after.labels == (*before.labels, 7)
    assert after.weights.sizes == (5, 12, 5)
    start = start_weights(CLASSES, (5, 12, 5))
    for old, new, fresh in zip(layers(before.weights), layers(after.weights), layers(start), strict=True):
        for a, b, c in zip(old, new, fresh, strict=True):
            np.testing.assert_array_equal(b[: len(a)], a)
            np.testing.assert_array_equal(b[len(a) :], c[len(a) :])
    # among the old classes nothing has changed: the drawn scores of each are what they were
    z = before.inputs_for(X[:20])
    odds = [
        p.probs[:, :4] / p.probs[:, :4].sum(1, keepdims=True) for p in (before.predict(X[:20]), after.predict(X[:20]))
    ]
    assert np.abs(odds[0] - odds[1]).max() < 0.1  # other draws of the noise, and a mixture reweighted
    means = [at_mean(snapshot.weights, z) for snapshot in (before, after)]
    np.testing.assert_array_equal(means[0], means[1][:, :4])


def test_new_columns_leave_the_prediction_as_it_is():
    X, y = clusters(300)
    stream = OnlineModel(CLASSES, 5)
    stream.learn(X, y)
    before = stream.snapshot
    wider = with_inputs(before, 8)
    wide = np.concatenate([X[:20], np.zeros((20, 3))], axis=1)
    # a column of which nothing is known is zero
    np.testing.assert_allclose(
        at_mean(before.weights, before.inputs_for(X[:20])),
        at_mean(wider.weights, wider.inputs_for(wide)),
        atol=1e-12,
    )
    stream.learn(np.concatenate([X, np.random.default_rng(0).normal(size=(300, 3))], axis=1), y, widths={0: 8})
    assert stream.snapshot.weights.sizes == (8, 12, 4)
    np.testing.assert_allclose(stream.snapshot.inputs.rows, [600] * 5 + [300] * 3)
    with pytest.raises(ValueError, match="8 inputs cannot be narrowed to 7"):
        with_inputs(stream.snapshot, 7)


def test_the_head_grows_in_sorted_order():
    X, y = clusters(400)
    names = np.array(["cat", "dog", "ant", "bee"])[y]
    model = mesu.MESUClassifier(random_state=0)
    first = np.isin(names, ["dog", "cat"])
    model.partial_fit(X[first], names[first])
    assert list(model.classes_) == ["cat", "dog"]
    assert model.predict_proba(X).shape == (400, 2)
    for _ in range(3):
        model.partial_fit(X, names)
    assert list(model.classes_) == ["ant", "bee", "cat", "dog"]
    assert set(model._online.snapshot.labels[2:]) == {"ant", "bee"}
    assert model.score(X, names) > 0.97
    probs = model.predict_proba(X)
    np.testing.assert_allclose(probs.sum(1), 1)
    np.testing.assert_array_equal(model.classes_[probs.argmax(1)], model.predict(X))


def test_classes_may_be_named_beforehand():
    X, y = clusters(50, classes=2)
    model = mesu.MESUClassifier(random_state=0).partial_fit(X, y, classes=range(5))
    assert list(model.classes_) == [0, 1, 2, 3, 4]
    assert model.predict_proba(X).shape == (50, 5)
    model.partial_fit(X, y + 4)  # and more may come
    assert list(model.classes_) == [0, 1, 2, 3, 4, 5]


def test_labels_of_another_kind_are_refused_by_name():
    model = mesu.MESUClassifier(random_state=0).partial_fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(ValueError, match="labels must be all words or all numbers, got 'cat' and 0"):
        model.partial_fit([[0.0]], ["cat"])
    assert list(model.classes_) == [0, 1]


# -- limits ------------------------------------------------------------------------------------------------------------


def test_a_class_too_many_is_refused_and_nothing_has_changed(tmp_path):
    X, y = clusters(60, classes=3)
    model = mesu.MESUClassifier((4,), random_state=0, max_classes=3).partial_fit(X, y)
    before = model._online.snapshot
    for late in (lambda: model.partial_fit(X[:2], [0, 7]), lambda: model.partial_fit(X[:2], [0, 1], classes=range(9))):
        with pytest.raises(ValueError, match=r"max_classes is 3, and [37] is one more: raise it"):
            late()
        assert model._online.snapshot is before
    with pytest.raises(ValueError, match="max_classes is 2, and 0 is one more"):
        mesu.MESUClassifier((4,), random_state=0, max_classes=2).fit(X, y)
    with pytest.raises(ValueError, match="max_classes must be a whole number"):
        mesu.MESUClassifier((4,), max_classes=0).fit(X, y)
    model.save(tmp_path / "model")
    twin = mesu.load(tmp_path / "model")
    assert twin.max_classes == 3
    assert twin.set_params(max_classes=4).partial_fit(X[:1], [7]).classes_.tolist() == [0, 1, 2, 7]


def test_a_feature_or_a_class_too_many_is_refused_by_the_river_model():
    river = pytest.importorskip("mesu.river")
    model = learned(
        river.MESUClassifier((4,), seed=0, max_features=3, max_classes=2), [({"a": 1.0, "b": 2.0, "c": 3.0}, 0)]
    )
    before, columns = model._online.snapshot, dict(model._columns)
    with pytest.raises(ValueError, match="max_features is 3, and 'd' is one more: raise it, leave out rare ones"):
        model.learn_one({"a": 1.0, "d": 1.0}, 1)
    model.learn_one({"c": 1.0}, 1)
    with pytest.raises(ValueError, match="max_classes is 2, and 2 is one more"):
        model.learn_one({"a": 1.0}, 2)
    with pytest.raises(ValueError, match="max_classes is 2, and 5 is one more"):
        model.learn_many(pd.DataFrame({"a": [1.0, 2.0]}), pd.Series([1, 5]))
    assert (model._columns, model._online.snapshot.rows) == (columns, before.rows + 1)
    with pytest.raises(ValueError, match="max_features must be a whole number"):
        river.MESURegressor(max_features=0)
    with pytest.raises(ValueError, match="max_features is 1, and 'b' is one more"):
        river.MESURegressor((4,), seed=0, max_features=1).learn_one({"a": 1.0, "b": 1.0}, 1.0)


def test_hashed_features_need_no_more_columns():
    river = pytest.importorskip("mesu.river")
    from river import preprocessing

    words = preprocessing.FeatureHasher(n_features=20, seed=0) | river.MESUClassifier((4,), seed=0, standardise=False)
    for i in range(60):
        words.learn_one({f"word {i}": 1.0, f"word {i // 2}": 1.0}, i % 2)
    assert words["MESUClassifier"]._online.snapshot.weights.sizes[0] <= 20
