"""Rules of plain weights: the engine and torch end at the same weights, boundaries included."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.engine.networks import (
    DEPTHS,
    STEPS,
    WIDTHS,
    agree_within_rounding,
    apart,
    lively,
    perceptron,
    stream,
    teacher,
    values,
)
from torch import nn

import mesu
from mesu import optim
from mesu.engine import WeightEngine
from mesu.learners.plain import fisher_diagonal

WEIGHT_RULES = {
    "sgd": lambda p: optim.SGD(p, 0.03),
    "ewc": lambda p: optim.EWC(p, 0.03, 2.0),
    "ewc-online": lambda p: optim.EWCOnline(p, 0.03, 2.0, 0.2),
    "ewc-stream": lambda p: optim.EWCStream(p, 0.03, 1.0, 0.2),
    "si": lambda p: optim.SI(p, 0.03, 0.1),
    "si-per-task": lambda p: optim.SIPerTask(p, 0.03, 0.1),
}


def learn_weights_in_torch(net, optimizer, x, y, batch):
    """Learn a task and consolidate."""
    x, y = torch.from_numpy(x).to(next(net.parameters()).dtype), torch.from_numpy(y)
    for examples, labels in zip(x.split(batch), y.split(batch), strict=True):
        F.cross_entropy(net(examples), labels, reduction="sum").backward()
        optimizer.step()
        optimizer.zero_grad()
    if isinstance(optimizer, optim.EWC):
        optimizer.consolidate(fisher_diagonal(net, x, y))
    elif isinstance(optimizer, optim.SI):
        optimizer.consolidate()


def weights_three_ways(net, sizes, make, batch=1):
    """Weights and what the rule remembers of them after two tasks of 500 updates, as in `three_ways`."""
    mine, theirs, exact = copy.deepcopy(net), copy.deepcopy(net), copy.deepcopy(net).double()
    optimizers = [make(list(one.parameters())) for one in (mine, theirs, exact)]
    x, y = teacher(sizes, STEPS // 2 * batch)
    for labels in (y, (y + 1) % sizes[-1]):
        for one, optimizer in ((mine, optimizers[0]), (exact, optimizers[2])):
            engine = WeightEngine(one, optimizer, batch)
            engine.learn(x, labels)
            engine.boundary(x, labels)
        learn_weights_in_torch(theirs, optimizers[1], x, labels, batch)
    for before, after in zip(net.parameters(), theirs.parameters(), strict=True):
        assert (after - before).abs().max() > 0.04
    return [
        [value for p in one.parameters() for value in (p, *optimizer.state[p].values())]
        for one, optimizer in zip((mine, theirs, exact), optimizers, strict=True)
    ]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("rule", WEIGHT_RULES)
def test_weight_rules_learn_the_same_both_ways_with_boundaries(rule, depth, bias):
    net = lively(perceptron(DEPTHS[depth], bias))
    mine, theirs, _ = weights_three_ways(net, DEPTHS[depth], WEIGHT_RULES[rule])
    assert apart(mine, theirs) < 1e-9


def test_a_weight_rule_without_idle_constants_learns_the_same_both_ways(monkeypatch):
    monkeypatch.delattr(mesu.rules.si, "idle")
    net = lively(perceptron(DEPTHS[1]))
    mine, theirs, _ = weights_three_ways(net, DEPTHS[1], WEIGHT_RULES["si"])
    assert apart(mine, theirs) < 1e-9


@pytest.mark.parametrize("rule", WEIGHT_RULES)
def test_weight_rules_learn_batches_with_tanh_and_wide_layers_the_same_both_ways(rule):
    net = lively(perceptron(WIDTHS["wide"], activation=nn.Tanh))
    mine, theirs, _ = weights_three_ways(net, WIDTHS["wide"], WEIGHT_RULES[rule], batch=6)
    assert apart(mine, theirs) < 1e-9


@pytest.mark.parametrize(("depth", "bias"), [(1, False), (3, True)])
@pytest.mark.parametrize("rule", WEIGHT_RULES)
def test_weight_rules_agree_within_rounding_in_single_precision(rule, depth, bias):
    net = lively(perceptron(DEPTHS[depth], bias, dtype=torch.float32))
    assert agree_within_rounding(*weights_three_ways(net, DEPTHS[depth], WEIGHT_RULES[rule]))


@pytest.mark.parametrize("rule", WEIGHT_RULES)
def test_chunks_change_nothing_for_weight_rules(rule):
    x, y = stream()
    results = []
    for cuts in ([], [1, 2, 30], list(range(1, 60))):
        torch.manual_seed(0)
        net = perceptron((20, 33, 3), dtype=torch.float32)
        engine = WeightEngine(net, WEIGHT_RULES[rule](list(net.parameters())))
        for part_x, part_y in zip(np.split(x, cuts), np.split(y, cuts), strict=True):
            engine.learn(part_x, part_y)
        results.append(values(net))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
