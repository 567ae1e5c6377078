"""The life of an engine: chunks, resuming, shared weights, copies, refusals, seeds side by side."""

import copy
import pickle

import numpy as np
import pytest
import torch
from tests.engine.networks import fresh, perceptron, stream, values
from torch import nn

import mesu
from mesu.engine.layout import share_flat


@pytest.mark.parametrize("estimator", ["local", "weights"])
def test_chunks_and_resuming_change_nothing_at_all(estimator):
    x, y = stream()
    whole, learner = fresh(estimator)
    learner.learn(x, y)
    for cuts in ([1, 2, 30], list(range(1, 60))):
        net, learner = fresh(estimator)
        for part_x, part_y in zip(np.split(x, cuts), np.split(y, cuts), strict=True):
            learner.learn(part_x, part_y)
        assert torch.equal(values(net), values(whole))
    net, learner = fresh(estimator)
    learner.learn(x[:25], y[:25])
    saved = pickle.loads(pickle.dumps(net.state_dict()))
    restored, learner = fresh(estimator)
    restored.load_state_dict(saved)
    learner.learn(x[25:], y[25:])
    assert torch.equal(values(restored), values(whole))


def test_weights_are_shared_not_copied():
    net, learner = fresh()
    mean = next(net.pairs()).mean
    learner.learn(*stream())
    before = mean.detach().clone()
    learner.learn(*stream())
    assert next(net.pairs()).mean is mean
    assert not torch.equal(mean, before)
    flat = share_flat([pair.mean for pair in net.pairs()])
    flat[:] = 7
    assert all((pair.mean == 7).all() for pair in net.pairs())


def test_copies_are_independent():
    net, learner = fresh()
    learner.learn(*stream())
    twin = copy.deepcopy(net)
    before = values(twin)
    learner.learn(*stream())
    assert torch.equal(values(twin), before)


BAD = {
    "nan": lambda x, y: (np.where(np.arange(x.size).reshape(x.shape) == 47, np.nan, x), y),
    "infinite": lambda x, y: (np.where(np.arange(x.size).reshape(x.shape) == 47, np.inf, x), y),
    "narrow": lambda x, y: (x[:, :-1], y),
    "label": lambda x, y: (x, np.where(np.arange(len(y)) == 50, 3, y)),
    "negative": lambda x, y: (x, y - 5),
    "float labels": lambda x, y: (x, y.astype(float)),
    "empty": lambda x, y: (x[:0], y[:0]),
    "short": lambda x, y: (x, y[:-1]),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_chunks_are_refused_before_anything_is_learned(kind):
    net, learner = fresh()
    learner.learn(*stream())
    before, noise = values(net), net.noise.state
    with pytest.raises(ValueError, match=r"\w"):
        learner.learn(*BAD[kind](*stream()))
    assert torch.equal(values(net), before)
    assert torch.equal(net.noise.state, noise)


def test_sigma_that_breaks_on_the_way_refuses_the_chunk():
    x, y = stream()
    net, learner = fresh(update="paper")
    before = values(net)
    with pytest.raises(mesu.StepRefused, match="max_step"):
        learner.learn(x * 1000, y)
    assert torch.equal(values(net), before)
    learner.learn(x, y)


def test_a_sigma_that_turns_negative_and_comes_back_within_a_chunk_refuses_it():
    # one input, two classes, label 0, noise against it: the slopes d are -1 and 1, so that d e = 2 for both weights, and
    # eq. 9 multiplies each sigma with 1 - d e |x sigma| / 2
    std, noise, x = 0.5, [-2.0, 2.0], 10.0
    after_one = std * (1 - 2 * abs(x * std) / 2)
    after_two = after_one * (1 - 2 * abs(x * after_one) / 2)
    assert (after_one, after_two) == (-2.0, 38.0)
    net = mesu.Bayesian(nn.Linear(1, 2, bias=False), init_std=std, estimator="local", seed=0)
    with torch.no_grad():
        net.module.weight.zero_()
    learner = mesu.BayesianLearner(net, mesu.MESU(net, memory=1e12, update="paper", max_step=None), samples=1)
    before = values(net)
    with pytest.raises(mesu.StepRefused):
        learner.engine.learn(np.full((2, 1), x, np.float32), np.zeros(2, int), noise=np.array([noise, noise]))
    assert torch.equal(values(net), before)


@pytest.mark.parametrize("estimator", ["local", "weights"])
def test_after_a_refusal_learning_goes_on_as_if_nothing_had_been(estimator):
    x, y = stream()
    (one, refused), (other, spared) = fresh(estimator, max_step=None), fresh(estimator, max_step=None)
    for learner in (refused, spared):
        learner.learn(x, y)
    with pytest.raises(mesu.StepRefused):
        refused.learn(x * np.float32(1e20), y)
    for learner in (refused, spared):
        learner.learn(x, y)
    assert torch.equal(values(one), values(other))


@pytest.mark.filterwarnings("ignore::mesu.LearningWarning")  # it says that the inputs are large
@pytest.mark.parametrize("estimator", ["local", "weights"])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e6])
def test_strange_inputs_leave_finite_weights_and_positive_sigmas(scale, estimator):
    net, learner = fresh(estimator)
    before, refusal = values(net), None
    try:
        learner.learn(np.full((200, 20), scale, np.float32), np.zeros(200, int))
    except mesu.StepRefused as error:
        refusal = str(error)
    if refusal is not None:  # past single precision: refused whole, with the size of the inputs in the message
        assert scale > 1
        assert "scale the inputs down (the largest is 1e+06)" in refusal
        assert torch.equal(values(net), before)
    assert torch.isfinite(values(net)).all()
    assert all((pair.std > 0).all() for pair in net.pairs())


def test_seeds_learn_side_by_side_as_they_learn_alone():
    x, y = stream(rows=400)
    alone = []
    for seed in (0, 1):
        net = mesu.Bayesian(perceptron((20, 33, 3), dtype=torch.float32), init="mnist", seed=seed)
        learner = mesu.BayesianLearner(net, mesu.MESU(net, memory=100))
        alone.append((net, learner, copy.deepcopy(net)))
    twins = [mesu.BayesianLearner(twin, mesu.MESU(twin, memory=100)) for _, _, twin in alone]
    for _, learner, _ in alone:
        learner.learn(x, y)
    mesu.engine.learn_together(twins, [(x, y), (x, y)])
    for net, _, twin in alone:
        assert torch.equal(values(net), values(twin))
