"""The plain network at the means, and a plain checkpoint into the means."""

import copy

import pytest
import torch
from torch import nn

import mesu


def original():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))


def wrapped(module):
    return mesu.Bayesian(module, seed=0, batchnorm="freeze")


def test_it_is_the_network_that_was_wrapped():
    module = original()
    plain = wrapped(module).mean_network()
    assert [type(m) for m in plain.modules()] == [type(m) for m in module.modules()]
    assert list(plain.state_dict()) == list(module.state_dict())
    assert all(
        torch.equal(a, b) for a, b in zip(plain.state_dict().values(), module.state_dict().values(), strict=True)
    )
    x = torch.randn(3, 1, 4, 4)
    assert torch.equal(plain.eval()(x), module.eval()(x))
    module.load_state_dict(plain.state_dict())


def test_it_is_a_copy():
    net = wrapped(original())
    net.mean_network()[4].weight.data.zero_()
    assert net.module[4].weight.abs().sum() > 0
    assert hasattr(net.module[4], "weight_std")


def test_means_come_from_a_plain_checkpoint():
    net, other = wrapped(original()), original()
    for value in other.state_dict().values():
        value.add_(1)
    stds = [pair.std.clone() for pair in net.pairs()]
    net.load_means(other.state_dict())
    x = torch.randn(3, 1, 4, 4)
    assert torch.equal(net.eval().at_mean(x), other.eval()(x))
    assert all(torch.equal(pair.std, std) for pair, std in zip(net.pairs(), stds, strict=True))


def missing(state):
    del state["4.weight"]


def unexpected(state):
    state["5.weight"] = torch.zeros(2)


def misshaped(state):
    state["4.weight"] = torch.zeros(3, 9)


def broken(state):
    state["4.bias"][1] = float("nan")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (missing, "'4.weight' is missing"),
        (unexpected, "'5.weight' is unexpected"),
        (misshaped, r"'4.weight' has shape \(3, 9\), and the network's has \(3, 8\)"),
        (broken, "'4.bias' is not finite"),
    ],
)
def test_what_does_not_fit_is_refused_by_name_and_nothing_changes(change, message):
    net, state = wrapped(original()), original().state_dict()
    state = {name: value + 1 for name, value in state.items()}
    change(state)
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(ValueError, match=message):
        net.load_means(state)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
