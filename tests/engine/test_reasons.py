"""Why the engine does not run a network: each reason is given, and torch takes over with a warning."""

import numpy as np
import pytest
import torch
from tests.engine.networks import perceptron, values
from torch import nn

import mesu
from mesu import optim
from mesu.engine import EngineFallback, why_not


def test_networks_the_engine_cannot_run_fall_back_and_say_so():
    net = mesu.Bayesian(nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.ReLU(), nn.Linear(5, 3)), seed=0)
    with pytest.warns(EngineFallback, match="LayerNorm"):
        learner = mesu.BayesianLearner(net, mesu.MESU(net, memory=100))
    before = values(net)
    learner.learn(np.ones((3, 4), np.float32), np.array([0, 1, 2]))
    assert not torch.equal(values(net), before)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)), "follow each other"),
        (nn.Sequential(nn.Linear(3, 3), nn.ReLU()), "ends in an activation"),
        (nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)), "mixes"),
        (nn.Sequential(nn.Linear(3, 3, bias=False), nn.ReLU(), nn.Linear(3, 2)), "biases"),
        (nn.LSTM(3, 2), "LSTM"),
    ],
)
def test_reasons(module, reason):
    net = mesu.Bayesian(module, seed=0)
    assert reason in why_not(net, mesu.MESU(net, memory=10))


def test_weights_that_the_optimiser_leaves_alone_stay():
    net = perceptron((4, 5, 3))
    assert why_not(net, optim.SGD(net.parameters(), 0.1)) is None
    assert why_not(net, optim.SGD(net[2].parameters(), 0.1)) == "the optimiser does not move all of its parameters"
    net[0].requires_grad_(False)
    assert why_not(net, optim.SGD(net.parameters(), 0.1)) == "some of its parameters are frozen"


def test_deterministic_parts_and_groups_are_reasons_too():
    net = mesu.Bayesian(nn.Linear(3, 2), deterministic=["bias"], seed=0)
    assert "deterministic" in why_not(net, mesu.MESU(net, memory=10))
    net = mesu.Bayesian(nn.Linear(3, 2), seed=0)
    first, second = net.pairs()
    assert "groups" in why_not(net, mesu.MESU([{"params": [first]}, {"params": [second]}], memory=10))
    assert "several" in why_not(net, mesu.MESU([{"params": [first]}, {"params": [second]}], memory=10))
    assert "all of its parameters" in why_not(net, mesu.MESU([first], memory=10))
    assert "Adam" in why_not(net, torch.optim.Adam(net.parameters()))
    half = mesu.Bayesian(nn.Linear(3, 2), seed=0).half()
    assert "float16" in why_not(half, mesu.MESU(half, memory=10))
