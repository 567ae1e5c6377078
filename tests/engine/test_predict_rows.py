"""Predictions with noise for every row: the network's distribution, whatever the block and the threads."""

import numpy as np
import pytest
import torch
from tests.engine.networks import fresh, perceptron, stream, values
from torch import nn

import mesu
from mesu.engine import PosteriorEngine
from mesu.engine import predict as predicting


def test_compiled_predictions_have_the_networks_distribution():
    torch.manual_seed(0)
    net = mesu.Bayesian(perceptron((6, 5, 4, 3)), seed=1, init_std=0.3)
    engine = PosteriorEngine(net, mesu.MESU(net, memory=10), 1)
    x = np.random.default_rng(0).normal(size=(4, 6))
    draws = 20_000
    mine = torch.from_numpy(engine.draw(x, samples=draws))
    with torch.no_grad():
        theirs = net.sample(torch.from_numpy(x), samples=draws, estimator="weights")
    for power in (1, 2):
        a, b = mine**power, theirs**power
        error = ((a.var(0) + b.var(0)) / draws).sqrt()
        assert ((a.mean(0) - b.mean(0)).abs() < 5 * error).all()
    assert abs(np.corrcoef(mine[:, 0, 0], mine[:, 1, 0])[0, 1]) < 5 / draws**0.5  # rows are drawn on their own


def test_how_many_rows_are_predicted_at_a_time_does_not_show(monkeypatch):
    net = mesu.Bayesian(perceptron((6, 5, 4, 3)), seed=1, init_std=0.3)
    engine = PosteriorEngine(net, mesu.MESU(net, memory=10), 1)
    x = np.random.default_rng(0).normal(size=(131, 6))
    many = engine.draw(x, samples=7)
    monkeypatch.setattr(predicting, "ROOM", 1)
    assert predicting.scratch((6, 5, 4, 3), 7, np.float64).block == predicting.LEAST
    assert np.array_equal(engine.draw(x, samples=7), many)


def test_threads_do_not_show_in_predictions_and_nothing_changes():
    net, learner = fresh()
    x, _ = stream(rows=500)
    before, noise = values(net), net.noise.state
    results = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        results.append(learner.predict(x, samples=7).probs)
    torch.set_num_threads(1)
    assert torch.equal(*results)
    assert torch.equal(values(net), before)
    assert torch.equal(net.noise.state, noise)
    with pytest.raises(ValueError, match="nothing to predict"):
        learner.predict(x[:0], samples=2)
    with pytest.raises(ValueError, match="samples"):
        learner.predict(x, samples=-1)


def test_no_samples_are_the_closed_form_whether_the_engine_runs_or_not():
    x = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    net = mesu.Bayesian(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), seed=0)
    found = mesu.predict(net, torch.from_numpy(x), samples=0)
    for engine in (None, False):
        learner = mesu.BayesianLearner(net, mesu.MESU(net, memory=100), engine=engine)
        assert torch.equal(learner.predict(x, samples=0).probs, found.probs)
