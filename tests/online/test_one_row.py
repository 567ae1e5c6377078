"""Rows one a call: the short ways leave no trace, and what was prepared is dropped when it no longer holds."""

import pickle
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from made_up import CLASSES, JOINT, NUMBERS, clusters, line, same

import mesu
from mesu.engine import PosteriorEngine
from mesu.online.model import OnlineModel
from mesu.online.network import drawn_weights, first_std, layers, start_weights
from mesu.online.outliers import open_watches
from mesu.online.scaling import FURTHEST, Columns, standardised
from mesu.rules.bounds import drawn


@pytest.mark.parametrize("chosen", [CLASSES, NUMBERS, JOINT])
def test_one_row_a_call_gives_the_same_bits(chosen):
    X, y = line(140) if chosen.regression else clusters(140)
    whole, single = OnlineModel(chosen, X.shape[1]), OnlineModel(chosen, X.shape[1])
    whole.learn(X, y)
    for at in range(len(X)):
        single.learn(X[at : at + 1], y[at : at + 1])
    assert same(whole.snapshot, single.snapshot)


def test_a_snapshot_that_somebody_holds_never_changes():
    X, y = clusters(80)
    stream = OnlineModel(CLASSES, 5)
    stream.learn(X[:40], y[:40])
    held = stream.snapshot
    before, answer = pickle.dumps(held), held.predict(X).probs
    for at in range(40, 80):
        stream.learn(X[at : at + 1], y[at : at + 1])
    assert pickle.dumps(held) == before
    np.testing.assert_array_equal(held.predict(X).probs, answer)


def test_readers_see_whole_models_between_rows():
    river = pytest.importorskip("mesu.river")
    rows = [{"a": float(i % 7), "b": float(i % 3), "c": 1.0 * i} for i in range(120)]

    def begin():
        model = river.MESUClassifier(hidden=(12,), seed=0)
        for i in range(3):
            model.learn_one(rows[i], i)
        return model

    model, twin, asked = begin(), begin(), rows[5]
    states = [twin.predict_proba_one(asked)]
    for i, row in enumerate(rows):
        twin.learn_one(row, i % 3)
        states.append(twin.predict_proba_one(asked))
    seen, done = [], threading.Event()

    def read():
        while not done.is_set():
            seen.append(model.predict_proba_one(asked))

    thread = threading.Thread(target=read)
    thread.start()
    for i, row in enumerate(rows):
        model.learn_one(row, i % 3)
    done.set()
    thread.join()
    assert model.predict_proba_one(asked) == states[-1]
    assert all(answer in states for answer in seen)


def test_a_changed_snapshot_is_a_replaced_one():
    X, y = clusters(20)
    stream = OnlineModel(CLASSES, 5)
    stream.learn(X, y)
    now = stream.snapshot
    assert now._drawn is now._drawn  # found and kept
    assert now.numbers == {label: i for i, label in enumerate(now.labels)}
    changed, replaced = (
        now.changed(weights=now.scoring_weights, rows=3),
        replace(now, weights=now.scoring_weights, rows=3),
    )
    assert same(changed, replaced)
    np.testing.assert_array_equal(changed._drawn.std, replaced._drawn.std)
    assert now.changed(labels=("a", "b", "c", "d")).numbers == {"a": 0, "b": 1, "c": 2, "d": 3}


def test_what_is_drawn_is_what_torch_draws():
    weights = start_weights(CLASSES, (7, 33, 4))
    weights.std[:] *= np.random.default_rng(0).uniform(0.01, 3, weights.std.size).astype(np.float32)
    for inputs, old, new in zip(weights.sizes, layers(weights), layers(drawn_weights(CLASSES, weights)), strict=False):
        narrow = (CLASSES.narrowing - 1) / first_std(CLASSES, inputs) ** 2
        for before, after in zip(old, new, strict=True):
            expected = drawn(torch.from_numpy(before.std.copy()), narrow).numpy()
            np.testing.assert_allclose(after.std, expected, rtol=3e-7)


def test_rows_are_standardised_by_the_spread():
    draw = np.random.default_rng(0)
    known = np.full(6, 9.0), draw.normal(size=6) * 10, draw.uniform(0, 4, 6)
    scale = Columns(*known, open_watches(6))
    scale.var[1], scale.mean[2], scale.var[2] = 0.0, 1e9, 1e-3  # constant, and constant but for rounding
    x = np.concatenate([draw.normal(size=(20, 6)) * 30, np.full((1, 6), 1e300), np.full((1, 6), np.nan)])
    expected = np.clip((x - scale.mean) / scale.spread, -FURTHEST, FURTHEST)
    np.testing.assert_array_equal(standardised(scale, x), np.where(np.isnan(x), 0.0, expected))


class TestPlan:
    """The engine's plan."""

    @pytest.fixture
    def learner(self):
        net = mesu.Bayesian(torch.nn.Linear(4, 3), seed=0, estimator="linear", input_scale=1.0)
        return mesu.BayesianLearner(net, mesu.MESU(net, memory=100))

    def rows(self, n=6):
        draw = np.random.default_rng(0)
        return draw.normal(size=(n, 4)).astype(np.float32), draw.integers(0, 3, n)

    def fresh(self, learner):
        """What a new engine makes of the same network."""
        twin = pickle.loads(pickle.dumps(learner))
        twin.engine = PosteriorEngine(twin.net, twin.optimizer, 1)
        twin.learn(*self.rows())
        return twin.net.state_dict()

    @pytest.mark.parametrize("change", ["nothing", "lr", "memory", "memory of the weights", "narrowing"])
    def test_it_holds_as_long_as_nothing_changes(self, learner, change):
        learner.learn(*self.rows())
        before, group = learner.engine.plan(), learner.optimizer.param_groups[0]
        if change == "lr":
            group["lr"] = 0.5
        elif change == "memory":
            group["memory"] = 7
        elif change == "narrowing":
            group["narrowing"] = 5.0
        elif change == "memory of the weights":
            for parameter in learner.net.parameters():
                parameter.data = parameter.data.clone()
        assert (learner.engine.plan() is before) == (change == "nothing")
        expected = self.fresh(learner)
        learner.learn(*self.rows())
        for name, value in learner.net.state_dict().items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(expected[name])), name


class TestScikitLearn:
    """Arrays that need no checks."""

    def begin(self, kind, **parameters):
        X, y = clusters(60)
        return kind(hidden=(8,), random_state=0, **parameters).partial_fit(X, y), X, y

    @pytest.mark.parametrize("kind", [mesu.MESUClassifier, mesu.MESURegressor])
    def test_they_are_learned_as_lists_are(self, kind):
        (plain, X, y), (careful, _, _) = self.begin(kind), self.begin(kind)
        y = y if kind is mesu.MESUClassifier else y.astype(float)
        for at in range(5):
            plain.partial_fit(X[at : at + 1], y[at : at + 1])
            careful.partial_fit(X[at : at + 1].tolist(), y[at : at + 1].tolist())
        plain.partial_fit(np.asfortranarray(X), y)
        careful.partial_fit(X.tolist(), y.tolist())
        assert same(plain._online.snapshot, careful._online.snapshot)
        np.testing.assert_array_equal(plain.predict(X[::2]), careful.predict(X[::2].tolist()))

    @pytest.mark.parametrize("kind", [mesu.MESUClassifier, mesu.MESURegressor])
    def test_what_must_be_refused_is_refused(self, kind):
        model, X, y = self.begin(kind)
        before = model._online.snapshot
        broken = X.copy()
        broken[3, 2] = np.nan
        for rows, targets in ((broken, y), (X[:, :4], y), (X[0], y), (X, y[:-1]), (X[:0], y[:0]), (X, y * np.nan)):
            with pytest.raises(ValueError, match=r"NaN|features|1D|inconsistent|0 sample|must be"):
                model.partial_fit(rows, targets)
        for rows in (broken, X[:, :4], X[0], X[:0]):
            with pytest.raises(ValueError, match=r"NaN|features|1D|0 sample"):
                model.predict(rows)
        assert model._online.snapshot is before

    def test_parameters_that_were_changed_are_noticed(self):
        model, X, y = self.begin(mesu.MESUClassifier)
        model.partial_fit(X, y)
        with pytest.raises(ValueError, match=r"memory is 7\.0 now"):
            model.set_params(memory=7).partial_fit(X, y)
        model.set_params(memory=100_000).partial_fit(X, y)
        listed = mesu.MESUClassifier(hidden=[8], random_state=0).partial_fit(X, y).partial_fit(X, y)
        listed.hidden[0] = 9
        with pytest.raises(ValueError, match=r"hidden is \(9,\) now"):
            listed.partial_fit(X, y)

    def test_names_of_columns_are_still_compared(self):
        pandas = pytest.importorskip("pandas")
        X, y = clusters(30)
        model = mesu.MESUClassifier(hidden=(4,), random_state=0).partial_fit(
            pandas.DataFrame(X, columns=list("abcde")), y
        )
        with pytest.warns(UserWarning, match="does not have valid feature names"):
            model.predict(X)

    def test_announced_classes_that_are_known_are_no_news(self):
        X, y = clusters(30)
        words = np.array(["a", "b", "c", "d"])[y]
        model = mesu.MESUClassifier(hidden=(4,), random_state=0).partial_fit(X, words, classes=list("abcd"))
        twin = mesu.MESUClassifier(hidden=(4,), random_state=0).partial_fit(X, words, classes=list("abcd"))
        model.partial_fit(X, words, classes=list("dcba"))
        assert same(model._online.snapshot, twin.partial_fit(X, words)._online.snapshot)
        assert list(model.partial_fit(X, words, classes=["a", "e"]).classes_) == list("abcde")
        classes = model.classes_
        classes[:] = "z"
        assert list(model.classes_) == list("abcde")
