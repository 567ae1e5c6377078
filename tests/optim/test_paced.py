"""update="paced": which networks get it, what it refuses, and that it goes on to the bit."""

import copy
import io
from itertools import pairwise

import pytest
import torch
from sklearn.datasets import load_digits
from tests.optim.networks import same, values
from torch import nn

import mesu
from mesu.optim import posterior
from mesu.optim.steps import StepRefused

X, Y = torch.linspace(-1, 1, 18).view(6, 3), torch.tensor([0, 1, 1, 0, 1, 0])


def perceptron(hidden_layers, width=4):
    sizes = [3] + [width] * hidden_layers
    parts = [part for pair in pairwise(sizes) for part in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*parts, nn.Linear(width, 2))


def deep(seed=0, **settings):
    torch.manual_seed(seed)
    return mesu.Bayesian(perceptron(3), seed=seed, **settings)


def learn(net, opt, steps):
    for _ in range(steps):
        opt.zero_grad()
        net.nll(X, Y).backward()
        opt.step()


def update_of(net, **settings):
    (group,) = mesu.MESU(net, memory=100, **settings).param_groups
    return group["update"]


def test_networks_with_more_than_three_weight_matrices_get_it():
    assert update_of(mesu.Bayesian(perceptron(2))) == "exact"
    assert update_of(mesu.Bayesian(perceptron(3))) == "paced"
    assert update_of(mesu.Bayesian(perceptron(3), estimator="local")) == "exact"
    assert update_of(mesu.Bayesian(perceptron(3), deterministic=["0"])) == "exact"  # three are left
    assert update_of(mesu.Bayesian(perceptron(3)), max_step=0.1) == "exact"  # somebody's own bound
    assert update_of(mesu.Bayesian(perceptron(3)), update="exact") == "exact"
    assert update_of(mesu.Bayesian(perceptron(1)), update="paced") == "paced"


def test_what_it_cannot_do_is_refused():
    with pytest.raises(
        ValueError, match="update='paced' needs a curvature that is known, as estimator='linear' finds it"
    ):
        mesu.MESU(mesu.Bayesian(perceptron(3), estimator="local"), memory=100, update="paced")
    with pytest.raises(ValueError, match=r"max_step=0\.5 is for update='exact'"):
        mesu.MESU(deep(), memory=100, update="paced", max_step=0.5)
    with pytest.raises(ValueError, match=r"momentum must be .* got 1"):
        mesu.MESU(deep(), memory=100, momentum=1)
    net = deep()
    opt = mesu.MESU(net, memory=100)
    assert "update='paced' remembers its last moves" in mesu.engine.why_not(net, opt)
    assert mesu.engine.why_not(net, mesu.MESU(net, memory=100, update="exact")) is None


def test_restored_it_goes_on_to_the_bit():
    net = deep()
    opt = mesu.MESU(net, memory=100)
    learn(net, opt, 3)
    file = io.BytesIO()
    torch.save((net.state_dict(), opt.state_dict()), file)
    file.seek(0)
    kept_net, kept_opt = torch.load(file, weights_only=True)
    twin, copied = deep(seed=1), copy.deepcopy((net, opt))
    opt_of_twin = mesu.MESU(twin, memory=7)
    twin.load_state_dict(kept_net)
    opt_of_twin.load_state_dict(kept_opt)
    for one, other in ((net, opt), (twin, opt_of_twin), copied):
        learn(one, other, 3)
    assert same(values(net), values(twin))
    assert same(values(net), values(copied[0]))
    # and it is the state that makes the difference
    again = deep(seed=1)
    again.load_state_dict(kept_net)
    learn(again, mesu.MESU(again, memory=100), 3)
    assert not same(values(net), values(again))


def test_a_refused_step_leaves_what_is_remembered():
    net = deep()
    opt = mesu.MESU(net, memory=100)
    learn(net, opt, 2)
    before, kept = values(net), copy.deepcopy(opt.state_dict()["state"])
    opt.zero_grad()
    net.nll(X, Y).backward()
    next(net.pairs()).mean.grad[0, 0] = float("nan")
    with pytest.raises(StepRefused):
        opt.step()
    assert same(before, values(net))
    for key, state in opt.state_dict()["state"].items():
        assert torch.equal(state["velocity"], kept[key]["velocity"])


@pytest.mark.parametrize("foreach", [True, False])
def test_piece_by_piece_it_is_the_same(foreach, monkeypatch):
    whole, pieces = deep(), deep()
    learn(whole, mesu.MESU(whole, memory=100), 3)
    monkeypatch.setattr(posterior, "PIECE", 5)
    learn(pieces, mesu.MESU(pieces, memory=100, foreach=foreach), 3)
    assert same(values(whole), values(pieces))


def test_a_warm_up_may_begin_with_a_rate_of_zero():
    net = deep()
    opt = mesu.MESU(net, memory=100)
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: min(1.0, step / 3))
    before = values(net)
    learn(net, opt, 1)
    assert same(before, values(net))
    for _ in range(4):
        schedule.step()
        learn(net, opt, 1)
    assert all(torch.isfinite(value).all() for value in values(net))
    assert not same(before, values(net))


def test_a_layer_that_takes_no_part_keeps_its_weights_and_what_is_remembered():
    net = deep()
    opt = mesu.MESU(net, memory=100)
    learn(net, opt, 2)
    first = next(net.pairs())
    velocity = opt.state[first.mean]["velocity"].clone()
    mean = first.mean.detach().clone()
    opt.zero_grad()
    net.nll(X, Y).backward()
    first.mean.grad = first.std.grad = None
    opt.step()
    assert torch.equal(first.mean, mean)
    assert torch.equal(opt.state[first.mean]["velocity"], velocity)


@pytest.mark.filterwarnings("ignore::mesu.LearningWarning")
def test_a_deep_perceptron_learns():
    """Eight hidden layers without normalisation: as with Adam, and with bounded steps hardly."""
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 8 - 1, dtype=torch.float32), torch.tensor(labels)
    parts = [part for _ in range(7) for part in (nn.Linear(32, 32), nn.ReLU())]
    right = {}
    for update in ("auto", "exact"):
        torch.manual_seed(0)
        net = mesu.Bayesian(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), *parts, nn.Linear(32, 10)), seed=0)
        opt = mesu.MESU(net, memory=10_000, update=update)
        for rows in torch.cat([torch.randperm(1500) for _ in range(8)]).split(50):
            net.nll(x[rows], y[rows]).backward()
            opt.step()
            opt.zero_grad()
        with torch.no_grad():
            right[update] = float((net.at_mean(x[1500:]).argmax(1) == y[1500:]).float().mean())
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), *[copy.deepcopy(part) for part in parts], nn.Linear(32, 10))
    opt = torch.optim.Adam(net.parameters())
    for rows in torch.cat([torch.randperm(1500) for _ in range(8)]).split(50):
        opt.zero_grad()
        nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
        opt.step()
    adam = float((net(x[1500:]).argmax(1) == y[1500:]).float().mean())
    assert right["auto"] > adam - 0.05, (right, adam)
    assert right["exact"] < right["auto"] - 0.3, right
