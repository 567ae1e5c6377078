"""Learning a stream: chunking does not matter, a refused chunk changes nothing, and threads take turns."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import CLASSES, JOINT, NUMBERS, clusters, layers, line, same
from sklearn.datasets import make_friedman1

import mesu
from mesu.online.model import OnlineModel, is_refresh, refresh_after
from mesu.online.network import Learner


def test_scoring_weights_are_refreshed_at_fixed_updates():
    refreshes = [n for n in range(1025) if is_refresh(n)]
    assert refreshes == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024]
    assert [refresh_after(n) for n in refreshes] == [*refreshes[1:], 1280]


@pytest.mark.filterwarnings("ignore::mesu.LearningWarning")  # small inputs that are not standardised: it says so
@settings(max_examples=25)
@given(st.lists(st.integers(1, 120), min_size=1, max_size=8), st.sampled_from([CLASSES, NUMBERS, JOINT]), st.booleans())
def test_how_a_stream_is_cut_cannot_be_told(lengths, chosen, standardise):
    rows = sum(lengths)
    X, y = line(rows) if chosen.regression else clusters(rows)
    X = X if standardise else X / 100
    if chosen.regression:
        y[rows // 2 :] += 1000  # a jump
    else:
        y[: rows // 3] %= 2  # two classes come later
    chosen = replace(chosen, standardise=standardise)
    whole, pieces, at = OnlineModel(chosen, X.shape[1]), OnlineModel(chosen, X.shape[1]), 0
    whole.learn(X, y)
    for length in lengths:
        pieces.learn(X[at : at + length], y[at : at + length])
        at += length
    assert same(whole.snapshot, pieces.snapshot)


def test_the_engine_learns():
    for chosen in (CLASSES, NUMBERS, JOINT):
        stream = OnlineModel(chosen, 5)
        assert stream._learner(stream.snapshot).plan is not None
        stream.learn(*clusters(10))
        assert stream.snapshot.updates == stream.snapshot.rows == 10
        assert stream._learner(stream.snapshot).learner.net.noise.step == 10 or chosen is not NUMBERS


@pytest.mark.parametrize("passes", [1, 7])
def test_memory_is_one_of_examples(passes):
    # a column that never moves says nothing, so its sigmas relax to the prior in closed form, however many passes are made
    X, y = clusters(200)
    X[:, 2] = 4.0
    chosen = replace(CLASSES, memory=150, prior_std=0.8)
    stream = OnlineModel(chosen, 5)
    start = next(layers(stream.snapshot.weights))[2][:, 2]
    stream.learn_set(X, y, passes, np.random.RandomState(0))
    gap = (1 - 1 / (150 * passes)) ** (200 * passes)
    expected = (0.8**-2 + (start**-2 - 0.8**-2) * gap) ** -0.5
    np.testing.assert_allclose(next(layers(stream.snapshot.weights))[2][:, 2], expected, rtol=1e-4)
    assert stream.snapshot.rows == 200
    assert stream.snapshot.updates == 200 * passes


def test_wild_rows_do_not_break_the_stream():
    X, y = make_friedman1(1500, noise=1, random_state=0)
    X[100::200] *= 1e6
    y[50::200] *= -1e6
    stream = OnlineModel(NUMBERS, 10)
    stream.learn(X, y)
    found = stream.snapshot.predict(X)
    assert all(np.isfinite(part).all() for part in (found.mean, *found.uncertainty))
    assert 0 < stream.snapshot.weights.std.min() <= stream.snapshot.weights.std.max() < 10


def test_a_chunk_is_learned_as_a_whole_or_not_at_all(monkeypatch):
    X, y = clusters(600)
    stream, twin = OnlineModel(CLASSES, 5), OnlineModel(CLASSES, 5)
    for each in (stream, twin):
        each.learn(X[:100], y[:100])
    before, calls = stream.snapshot, []
    learn = Learner.learn

    def fails_later(self, *chunk):
        calls.append(chunk)
        if len(calls) == 3:  # two pieces have been learned by then
            raise mesu.StepRefused("enough")
        learn(self, *chunk)

    monkeypatch.setattr(Learner, "learn", fails_later)
    with pytest.raises(mesu.StepRefused):
        stream.learn(np.tile(X, (2, 1)), np.tile(y + 1, 2))  # with a class that is new, too
    monkeypatch.undo()
    assert len(calls) == 3
    assert stream.snapshot is before
    for each in (stream, twin):
        each.learn(X[100:], y[100:])
    assert same(stream.snapshot, twin.snapshot)


def test_two_who_learn_take_turns():
    X, y = clusters(400)
    model = mesu.MESUClassifier(random_state=0).partial_fit(X[:10], y[:10], classes=range(4))
    threads = [
        threading.Thread(target=lambda part=part: [model.partial_fit(X[i : i + 10], y[i : i + 10]) for i in part])
        for part in (range(0, 200, 10), range(200, 400, 10))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert model._online.snapshot.rows == model._online.snapshot.updates == 410
    assert model.score(X, y) > 0.9
