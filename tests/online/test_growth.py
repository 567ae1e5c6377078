"""New classes and new columns leave what was learned as it is."""

import numpy as np
import pytest
from made_up import CLASSES, at_mean, clusters, layers

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
