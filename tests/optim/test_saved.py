"""Optimisers and networks that are saved, restored, copied and pickled go on to the bit."""

import copy
import io
import pickle
from collections import defaultdict

import pytest
import torch
from tests.optim.networks import (
    POSTERIOR,
    WEIGHT,
    X,
    Y,
    end_task,
    learn,
    learn_plain,
    one_pair,
    plain_net,
    same,
    small_net,
    values,
)
from torch import nn

import mesu
from mesu import optim


def test_what_was_saved_without_a_bound_is_restored_without_one():
    net = small_net()
    opt = mesu.MESU(net, memory=100)
    saved = opt.state_dict()
    for group in saved["param_groups"]:
        del group["max_std"]
    again = mesu.MESU(net, memory=50, max_std=0.1)
    again.load_state_dict(saved)
    assert again.param_groups[0]["max_std"] is None
    learn(net, again, 2)


def test_an_optimiser_pickled_without_a_bound_takes_more_groups():
    opt = mesu.MESU(small_net(), memory=100)
    state = opt.__getstate__()
    for settings in (state["defaults"], *state["param_groups"]):
        del settings["max_std"]
    again = mesu.MESU.__new__(mesu.MESU)
    again.__setstate__(state)
    again.add_param_group({"params": [one_pair([0.0], [0.5], [0.0], [0.0])]})
    assert [group["max_std"] for group in again.param_groups] == [None, None]


@pytest.mark.parametrize("name", POSTERIOR)
def test_restored_run_continues_bit_for_bit(name):
    net = small_net()
    opt = POSTERIOR[name](net)
    learn(net, opt, 3)
    file = io.BytesIO()
    torch.save((net.state_dict(), opt.state_dict()), file)
    file.seek(0)
    net_state, opt_state = torch.load(file, weights_only=True)
    again = small_net(seed=9)
    other = POSTERIOR[name](again, max_step=0.3)  # the saved settings replace these
    again.load_state_dict(net_state)
    other.load_state_dict(opt_state)
    learn(net, opt, 3)
    learn(again, other, 3)
    assert same(values(net), values(again))
    assert torch.equal(net.noise.state, again.noise.state)


@pytest.mark.parametrize("name", WEIGHT)
def test_restored_weights_continue_bit_for_bit(name):
    net, again = plain_net(), plain_net()
    opt, other = WEIGHT[name](net.parameters()), WEIGHT[name](again.parameters())
    learn_plain(net, opt, 3)
    end_task(opt)
    learn_plain(net, opt, 2)
    file = io.BytesIO()
    torch.save((net.state_dict(), opt.state_dict()), file)
    file.seek(0)
    net_state, opt_state = torch.load(file, weights_only=True)
    again.load_state_dict(net_state)
    other.load_state_dict(opt_state)
    for n, o in ((net, opt), (again, other)):
        learn_plain(n, o, 2)
        end_task(o)
        learn_plain(n, o, 2)
    assert same(values(net), values(again))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
@pytest.mark.parametrize("name", POSTERIOR)
def test_copied_net_and_optimiser_go_on_alike_and_apart(name, copied):
    net = small_net()
    opt = POSTERIOR[name](net)
    learn(net, opt, 2)
    twin, twin_opt = copied((net, opt))
    before = values(twin)
    learn(net, opt, 2)
    assert same(values(twin), before)
    learn(twin, twin_opt, 2)
    assert same(values(net), values(twin))
    assert not same(before, values(twin))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda opt: pickle.loads(pickle.dumps(opt))])
@pytest.mark.parametrize("name", POSTERIOR)
def test_copied_optimiser_alone_has_its_own_parameters(name, copied):
    net = small_net()
    opt = POSTERIOR[name](net)
    net.nll(X, Y, samples=2).backward()
    before = values(net)
    twin = copied(opt)
    for mine, theirs in zip(opt.param_groups[0]["params"], twin.param_groups[0]["params"], strict=True):
        theirs.grad = mine.grad.clone()
    twin.step()
    assert same(values(net), before)
    opt.step()
    pairs = zip(opt.param_groups[0]["params"], twin.param_groups[0]["params"], strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("name", ["mesu", "foo-vb"])
def test_state_thrown_away_by_another_framework_changes_nothing(name):
    net, twin = small_net(), small_net()
    opt, other = POSTERIOR[name](net), POSTERIOR[name](twin)
    for _ in range(3):
        learn(net, opt, 1)
        learn(twin, other, 1)
        other.state = defaultdict(dict)
    assert same(values(net), values(twin))
    assert not opt.state_dict()["state"]


@pytest.mark.parametrize("inner", [None, torch.optim.Adam])
def test_copies_of_weight_rules_go_on(inner):
    weight = nn.Parameter(torch.ones(2))
    opt = optim.EWC([weight], lr=0.1, strength=1.0, inner=inner)
    weight.grad = torch.tensor([1.0, -2.0])
    opt.step()
    buffer = io.BytesIO()
    torch.save((weight, opt), buffer)
    buffer.seek(0)
    for theirs, twin in (copy.deepcopy((weight, opt)), torch.load(buffer, weights_only=False)):
        theirs.grad = torch.tensor([1.0, -2.0])
        twin.step()
        twin.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    opt.step()
    assert torch.equal(theirs, weight)
