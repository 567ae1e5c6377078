"""A learner that is put down and taken up again goes on bit for bit."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.learners.rules import POSTERIOR, WEIGHT
from torch import nn

import mesu
from mesu.lab.data import digits
from mesu.lab.entry import Entry
from mesu.lab.experiments import PermutedDigits
from mesu.lab.runs import checkpoints
from mesu.lab.runs.checkpoints import Checkpoint
from mesu.learners import BayesianLearner, WeightLearner

LEARNERS = ("mesu", "foo-vb", "ewc-online", "ewc-stream", "si", "sgd")
TINY = PermutedDigits(
    tasks=3, seeds=1, epochs=1, learners=LEARNERS, hidden=8, samples=4, test_samples=2, all_tasks_every=3
)


def perceptron(*extra):
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), *extra, nn.Linear(5, 3))


def posterior_learner(extra, rule, estimator):
    net = mesu.Bayesian(perceptron(*extra), estimator=estimator)
    return BayesianLearner(net, rule(net), samples=3)


MAKERS = {
    **{
        f"{name}-{estimator}": lambda extra, rule=rule, estimator=estimator: posterior_learner(extra, rule, estimator)
        for name, rule in POSTERIOR.items()
        for estimator in ("local", "weights")
    },
    **{
        name: lambda extra, rule=rule: WeightLearner(net := perceptron(*extra), rule(net.parameters()))
        for name, rule in WEIGHT.items()
    },
}


def through_a_file(tensors, folder):
    checkpoints.write(folder, Checkpoint(1, [], tensors))
    return checkpoints.read(folder / "after-0001.json").tensors


@pytest.mark.parametrize("path", ["engine", "torch"])
@pytest.mark.parametrize("name", MAKERS)
def test_a_learner_restored_from_a_file_goes_on_bit_for_bit(name, path, tmp_path):
    rng = np.random.default_rng(1)
    chunks = [(rng.normal(size=(30, 6)).astype(np.float32), rng.integers(0, 3, 30)) for _ in range(3)]
    extra = () if path == "engine" else (nn.Identity(),)
    expectation = contextlib.nullcontext() if path == "engine" else pytest.warns(mesu.EngineFallback)
    torch.manual_seed(1)
    with expectation:
        learner = MAKERS[name](extra)
        twin = MAKERS[name](extra)  # of other weights, noise and past
    assert (learner.engine is None) == (path == "torch")
    twin.learn(*chunks[2])
    for chunk in chunks[:2]:  # two tasks, and a third one begun
        learner.learn(*chunk)
        learner.boundary(*chunk)
    learner.learn(*chunks[2])
    tensors = learner.tensors()
    twin.restore(through_a_file(tensors, tmp_path))
    untouched = {name: value.clone() for name, value in tensors.items()}
    for each in (learner, twin):
        each.learn(*chunks[1])
        each.boundary(*chunks[1])
        each.learn(*chunks[0])
    ours, theirs = learner.tensors(), twin.tensors()
    assert ours.keys() == theirs.keys()
    for key in ours:
        assert ours[key].dtype == theirs[key].dtype
        assert torch.equal(ours[key], theirs[key]), key
    assert any(not torch.equal(ours[key], tensors[key]) for key in ours)  # it did learn
    assert all(torch.equal(tensors[key], untouched[key]) for key in tensors)  # and what was saved is a copy
    assert torch.equal(learner.predict(chunks[0][0], 4).probs, twin.predict(chunks[0][0], 4).probs)
    assert torch.equal(learner.predict(chunks[0][0], 4).probs, twin.predict(chunks[0][0], 4).probs)


@pytest.mark.parametrize("name", LEARNERS)
def test_tensors_of_another_network_are_refused_and_change_nothing(name):
    small, large = (replace(TINY, hidden=hidden).learner(Entry(name), digits(), 0) for hidden in (8, 9))
    before = small.tensors()
    with pytest.raises(ValueError, match="belongs to another network"):
        small.restore(large.tensors())
    with pytest.raises(ValueError, match="belongs to another network"):
        small.restore({})
    assert all(torch.equal(value, before[name]) for name, value in small.tensors().items())
