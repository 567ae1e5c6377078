"""The contract of learners: every learner keeps it, compiled and on the torch path; each way to break it is noticed."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.learners.rules import POSTERIOR, WEIGHT
from torch import nn

import mesu
from mesu import optim
from mesu.learners import BayesianLearner, WeightLearner
from mesu.learners.contract import check_learner

WEIGHT = {**WEIGHT, "ewc-adam": lambda p: optim.EWC(p, 0.01, 2.0, inner=torch.optim.Adam)}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))


def make(name, engine=None, batch=1, kinds=(BayesianLearner, WeightLearner)):
    with warnings.catch_warnings(action="ignore"):  # of rules that the engine does not know
        if name in POSTERIOR:
            net = mesu.Bayesian(network(), seed=0)
            return kinds[0](net, POSTERIOR[name](net), 4, batch, engine)
        net = network()
        return kinds[1](net, WEIGHT[name](list(net.parameters())), batch, engine)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("engine", [None, False])
@pytest.mark.parametrize("name", [*POSTERIOR, *WEIGHT])
def test_a_learner_keeps_the_contract(name, engine, batch):
    check_learner(lambda: make(name, engine, batch), features=5, classes=3, batch=batch)


class Wrong:
    """A learner with one thing wrong."""

    def __init__(self, what):
        self.inner, self.what = make("sgd", engine=False), what
        self.chunks = 0

    def learn(self, x, y):
        if self.what == "learns nothing":
            return
        if self.what == "drops bad rows":
            good = np.isfinite(x).all(1)
            x, y = x[good], y[good]
        if self.what == "learns before it looks":
            self.inner.learn(x[:1], y[:1])
        if self.what == "the first of a chunk twice":
            self.inner.learn(x[:1], y[:1])
        if self.what == "any error will do" and not np.isfinite(x).all():
            raise TypeError("no")
        self.inner.learn(x, y)

    def boundary(self, x, y):
        self.inner.boundary(x, y)

    def predict(self, x, samples):
        if self.what == "learns while it predicts":
            self.inner.learn(x[:1], np.zeros(1, dtype=np.int64))
        prediction = self.inner.predict(x, samples)
        return replace(prediction, probs=2 * prediction.probs) if self.what == "more than 1" else prediction

    def tensors(self):
        if self.what == "lends its weights":
            return {name: value.detach() for name, value in self.inner.net.state_dict().items()}
        return self.inner.tensors()

    def restore(self, tensors):
        if self.what == "restores half" and tensors:
            tensors = {**tensors, "2.bias": torch.zeros(3)}
        if self.what == "restores anything" and not tensors:
            return
        self.inner.restore(tensors)


WRONG = {
    "learns nothing": "learn must change something",
    "drops bad rows": "nan in the last row must be refused with a ValueError",
    "learns before it looks": "bit for bit|before anything changes",
    "the first of a chunk twice": "other chunks must give the same learner",
    "any error will do": "must be refused with a ValueError, got TypeError",
    "learns while it predicts": "predict must change nothing",
    "more than 1": "probs must sum to 1",
    "lends its weights": "must be copies|must change nothing|learn must change",
    "restores half": "go on as the learner does that was saved",
    "restores anything": "the tensors of another network must be refused",
}


@pytest.mark.parametrize("what", WRONG)
def test_a_broken_learner_is_noticed(what):
    with pytest.raises(AssertionError, match=WRONG[what]):
        check_learner(lambda: Wrong(what), features=5, classes=3)


def test_a_learner_that_is_another_each_time_is_noticed():
    def unseeded():
        net = nn.Sequential(nn.Linear(5, 3))
        return WeightLearner(net, optim.SGD(net.parameters(), 0.1), engine=False)

    with pytest.raises(AssertionError, match="make must give the same learner each time"):
        check_learner(unseeded, features=5, classes=3)


@pytest.mark.parametrize("name", ["mesu", "sgd", "si", "ewc-adam"])
def test_on_the_torch_path_a_chunk_is_learned_whole_or_not_at_all(name):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, 5)).astype(np.float32), rng.integers(0, 3, 9)
    learner, twin = make(name, engine=False), make(name, engine=False)
    for each in (learner, twin):
        each.learn(x, y)
    wrong = y.copy()
    wrong[5] = 3  # known to be outside the head only when it is scored, five updates on
    before = learner.tensors()
    with pytest.raises(ValueError, match="label 3 is outside the head, which has 3 classes"):
        learner.learn(x, wrong)
    after = learner.tensors()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    for each in (learner, twin):
        each.learn(x, y)
    assert all(torch.equal(value, twin.tensors()[key]) for key, value in learner.tensors().items())
