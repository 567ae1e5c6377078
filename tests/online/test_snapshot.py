"""Snapshots: rows are scored before they are learned, reading changes nothing, readers see a whole model."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_up import CLASSES, clusters, same

import mesu
from mesu.engine import predict
from mesu.online.model import OnlineModel
from mesu.online.network import drawn_weights
from mesu.online.scaling import follow_columns
from mesu.online.snapshot import LARGEST, WINDOW


def test_rows_are_scored_before_they_are_learned():
    X, y = clusters(40)
    stream, twin = OnlineModel(CLASSES, 5), OnlineModel(CLASSES, 5)
    stream.learn(X, y)
    twin.learn(X[:32], y[:32])  # the next rows are scored by the weights of this snapshot
    _, z = follow_columns(twin.snapshot.inputs, X[32:], CLASSES.memory)
    expected = predict.classify(drawn_weights(CLASSES, twin.snapshot.weights), z.astype(np.float32), 64).epistemic
    np.testing.assert_array_equal(stream.snapshot.recent_epistemic[32:], expected)
    assert len(stream.snapshot.recent_epistemic) == 40


def test_only_the_last_scores_are_kept():
    X, y = clusters(WINDOW + 300)
    stream, twin = OnlineModel(CLASSES, 5), OnlineModel(CLASSES, 5)
    twin.learn(X[:300], y[:300])
    stream.learn(X, y)
    assert len(stream.snapshot.recent_epistemic) == WINDOW
    twin.learn(X[300:], y[300:])
    np.testing.assert_array_equal(stream.snapshot.recent_epistemic, twin.snapshot.recent_epistemic)


@pytest.mark.parametrize("kind", [mesu.MESUClassifier, mesu.MESURegressor])
def test_predicting_changes_nothing(kind):
    X, y = clusters(150)
    model, twin = kind(random_state=0).partial_fit(X, y), kind(random_state=0).partial_fit(X, y)
    before = model._online.snapshot
    live = [a.copy() for a in model._online._learner(before).live[:2]]
    state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    asked = [
        (model.predict(X), model.uncertainty(X), model.score_samples(X), model.is_novel(X), str(model.memory_report()))
        for _ in range(2)
    ]
    for first, second in zip(*asked, strict=True):
        np.testing.assert_array_equal(first, second)
    assert model._online.snapshot is before
    assert all(np.array_equal(a, b) for a, b in zip(live, model._online._learner(before).live[:2], strict=True))
    model.partial_fit(X, y)
    assert same(model._online.snapshot, twin.partial_fit(X, y)._online.snapshot)
    # nor does learning touch anybody else's random numbers
    assert torch.equal(torch.get_rng_state(), state[0])
    assert np.array_equal(np.random.get_state()[1], state[1])  # noqa: NPY002


HUGE = st.sampled_from([1e30, -1e200, 1.7e308])


@pytest.fixture(scope="module")
def scaled_and_raw():
    kinds = (mesu.MESUClassifier, mesu.MESURegressor)
    return {
        scaled: [kind(standardise=scaled, random_state=0).partial_fit(*clusters(60)) for kind in kinds]
        for scaled in (True, False)
    }


@given(st.lists(st.one_of(HUGE, st.floats(-1e12, 1e12)), min_size=5, max_size=5), st.booleans())
def test_any_finite_row_has_a_finite_prediction_or_none(scaled_and_raw, row, standardise):
    for model in scaled_and_raw[standardise]:
        if standardise or max(map(abs, row)) <= LARGEST:
            assert all(np.isfinite(part).all() for part in model.uncertainty([row]))
        else:
            with pytest.raises(ValueError, match="inputs must be smaller"):
                model.uncertainty([row])


def test_predictions_come_from_whole_snapshots():
    X, y = clusters(3000, classes=6)
    chunks = [(X[at : at + 100], y[at : at + 100]) for at in range(100, 3000, 100)]
    asked = X[:7]

    def begin():
        return mesu.MESUClassifier(hidden=(12,), random_state=0).partial_fit(X[:100], y[:100], classes=range(3))

    model, twin = begin(), begin()
    states = [twin.predict_proba(asked), *(twin.partial_fit(*chunk).predict_proba(asked) for chunk in chunks)]
    seen, done = {0: [], 1: []}, threading.Event()
    errors = []

    def ask(number):
        try:
            while not done.is_set():
                seen[number].append(model.predict_proba(asked))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in seen]
    for thread in threads:
        thread.start()
    for chunk in chunks:
        model.partial_fit(*chunk)
    done.set()
    for thread in threads:
        thread.join()
    assert not errors
    for predictions in seen.values():
        which = [
            next((k for k, state in enumerate(states) if state.shape == p.shape and np.array_equal(state, p)), None)
            for p in predictions
        ]
        assert None not in which
        assert which == sorted(which)
        assert len(set(which)) > 3  # they did run side by side
    np.testing.assert_array_equal(model.predict_proba(asked), states[-1])
