"""Rules of plain weights as optimisers: each against its loop by hand, which weights move, and what is refused."""

import copy
from math import inf, nan

import pytest
import torch
from tests.optim.networks import WEIGHT, X, Y, end_task, learn_plain, plain_net, same, values
from torch import nn

import mesu
from mesu import optim


@pytest.mark.parametrize("name", WEIGHT)
def test_weights_without_gradient_stay(name):
    net = plain_net()
    opt = WEIGHT[name](net.parameters())
    before = values(net)
    opt.step()
    assert same(values(net), before)
    nn.functional.cross_entropy(net(X), Y).backward()
    net[0].weight.grad = None
    opt.step()
    assert torch.equal(net[0].weight, before[0])
    assert not torch.equal(net[0].bias, before[1])


def test_weight_closure():
    net = plain_net()
    opt = optim.SGD(net.parameters(), lr=0.1)
    before = net[0].weight.detach().clone()

    def closure():
        loss = nn.functional.cross_entropy(net(X), Y)
        loss.backward()
        return loss

    assert opt.step(closure) > 0
    assert torch.equal(net[0].weight, before - 0.1 * net[0].weight.grad)


@pytest.mark.parametrize("bad", [nan, inf, -inf])
@pytest.mark.parametrize("name", WEIGHT)
def test_weight_gradient_that_is_not_finite_is_refused(name, bad):
    net = plain_net()
    opt = WEIGHT[name](net.parameters())
    learn_plain(net, opt, 2)
    end_task(opt)
    before, state = values(net), copy.deepcopy(opt.state_dict())
    opt.zero_grad()
    nn.functional.cross_entropy(net(X), Y).backward()
    net[2].bias.grad[0] = bad
    with pytest.raises(mesu.StepRefused, match=r"shape \(2,\) would not stay finite"):
        opt.step()
    assert same(values(net), before)
    after = opt.state_dict()["state"]
    assert after.keys() == state["state"].keys()
    assert all(torch.equal(after[k][n], v) for k, kept in state["state"].items() for n, v in kept.items())


@pytest.mark.parametrize("inner", [None, torch.optim.Adam])
def test_a_later_group_of_weights_is_checked_and_learns(inner):
    first, later = (nn.Parameter(torch.ones(2)) for _ in range(2))
    opt = optim.EWC([first], lr=0.1, strength=1.0, inner=inner)
    with pytest.raises(ValueError, match="lr"):
        opt.add_param_group({"params": [later], "lr": -0.1})
    assert len(opt.param_groups) == 1
    opt.add_param_group({"params": [later], "lr": 0.01})
    first.grad, later.grad = torch.ones(2), torch.ones(2)
    opt.step()
    assert first.tolist() == pytest.approx([0.9, 0.9], rel=1e-4)
    assert later.tolist() == pytest.approx([0.99, 0.99], rel=1e-4)


def gradient(w):
    """Of a small loss that is not quadratic."""
    return torch.sin(w) + 0.5 * w


def run(opt, w, steps):
    for _ in range(steps):
        w.grad = gradient(w.detach())
        opt.step()


def weight():
    return nn.Parameter(torch.tensor([0.7, -1.3, 2.0], dtype=torch.float64))


def test_sgd_is_torchs():
    ours, theirs = weight(), weight()
    run(optim.SGD([ours], lr=0.1), ours, 5)
    run(torch.optim.SGD([theirs], lr=0.1), theirs, 5)
    assert torch.allclose(ours, theirs, rtol=1e-14)


def test_ewc_by_hand():
    w, hand = weight(), weight().detach()
    opt = optim.EWC([w], lr=0.1, strength=3.0)
    penalties = []
    for fisher in (torch.tensor([1.0, 0.5, 0.0]).double(), torch.tensor([0.2, 0.0, 2.0]).double()):
        run(opt, w, 4)
        for _ in range(4):
            pull = sum((F * (hand - anchor) for F, anchor in penalties), torch.zeros(3).double())
            hand = hand - 0.1 * (gradient(hand) + 3.0 * pull)
        opt.consolidate([fisher])
        penalties.append((fisher, hand.clone()))
    run(opt, w, 4)
    for _ in range(4):
        pull = sum(F * (hand - anchor) for F, anchor in penalties)
        hand = hand - 0.1 * (gradient(hand) + 3.0 * pull)
    assert torch.allclose(w, hand, rtol=1e-12)


def test_ewc_online_by_hand():
    w, hand = weight(), weight().detach()
    opt = optim.EWCOnline([w], lr=0.1, strength=3.0, decay=0.6)
    importance, anchor = torch.zeros(3).double(), hand.clone()
    for fisher in ([1.0, 0.5, 0.0], [0.2, 0.0, 2.0], [0.1, 0.1, 0.1]):
        run(opt, w, 4)
        for _ in range(4):
            hand = hand - 0.1 * (gradient(hand) + 3.0 * importance * (hand - anchor))
        fisher = torch.tensor(fisher).double()
        opt.consolidate([fisher])
        importance, anchor = 0.6 * importance + fisher, hand.clone()
    assert torch.allclose(w, hand, rtol=1e-12)
    assert torch.allclose(opt.rule_state(w).importance, importance)


def test_ewc_stream_by_hand():
    w, hand = weight(), weight().detach()
    run(optim.EWCStream([w], lr=0.1, strength=0.4, decay=0.6), w, 6)
    importance, anchor = torch.zeros(3).double(), hand.clone()
    for _ in range(6):
        g = gradient(hand)
        new = hand - 0.1 * (g + 0.4 * importance * (hand - anchor))
        importance, anchor, hand = 0.6 * importance + g**2, hand, new
    assert torch.allclose(w, hand, rtol=1e-12)


def test_si_by_hand():
    w, hand = weight(), weight().detach()
    opt = optim.SI([w], lr=0.1, strength=0.5, damping=0.01)
    omega, anchor = torch.zeros(3).double(), hand.clone()
    for _ in range(3):
        run(opt, w, 4)
        opt.consolidate()
        path = torch.zeros(3).double()
        for _ in range(4):
            g = gradient(hand)
            new = hand - 0.1 * (g + 2 * 0.5 * omega * (hand - anchor))
            path -= g * (new - hand)
            hand = new
        omega = omega + (path / ((hand - anchor) ** 2 + 0.01)).clamp_min(0)
        anchor = hand.clone()
    assert torch.allclose(w, hand, rtol=1e-12)
    assert torch.allclose(opt.rule_state(w).importance, omega)


@pytest.mark.parametrize("make", [WEIGHT["ewc"], WEIGHT["ewc-online"]])
def test_consolidation_goes_through_all_groups(make):
    w, v = weight(), weight()
    opt = make([{"params": [w]}, {"params": [v]}])
    opt.consolidate([torch.ones(3).double(), 2 * torch.ones(3).double()])
    assert torch.equal(opt.rule_state(w).importance, torch.ones(3).double())
    assert torch.equal(opt.rule_state(v).importance, 2 * torch.ones(3).double())


def test_too_few_fishers_are_refused_before_any_is_kept():
    w, v = weight(), weight()
    opt = WEIGHT["ewc"]([w, v])
    with pytest.raises(ValueError, match="got 1 for 2 parameters"):
        opt.consolidate([torch.ones(3).double()])
    assert torch.equal(opt.rule_state(w).importance, torch.zeros(3).double())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: optim.SGD(p, lr=-0.1), r"lr .* got -0\.1"),
        (lambda p: optim.SGD(p, lr=nan), "lr .* got nan"),
        (lambda p: optim.EWC(p, lr=0.1, strength=-1.0), r"strength .* got -1\.0"),
        (lambda p: optim.EWCOnline(p, lr=0.1, strength=1.0, decay=-0.5), r"decay .* got -0\.5"),
        (lambda p: optim.EWCStream(p, lr=0.1, strength=inf, decay=0.5), "strength .* got inf"),
        (lambda p: optim.SI(p, lr=0.1, strength=1.0, damping=0.0), r"damping .* got 0\.0"),
    ],
)
def test_bad_settings_of_weight_rules_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make([weight()])
