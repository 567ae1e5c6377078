"""What bounds a step: the trust region, its defaults, and the largest sigma."""

from math import inf, nan

import pytest
import torch
from tests.optim.networks import POSTERIOR, one_pair
from torch import nn

import mesu


@pytest.mark.parametrize("make", [mesu.FOOVB, lambda p, **k: mesu.MESU(p, memory=inf, **k)])
def test_max_step_bounds_both_moves_in_sigmas(make):
    means = one_pair([0.0, 0.0, 0.0], [0.5, 0.5, 0.5], [1e6, -1e6, 0.01], [0.0, 0.0, 0.0])
    stds = one_pair([0.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.0, 0.0, 0.0], [1e6, -1e6, 0.01])
    make([means, stds], max_step=0.1).step()
    h = 0.5 * 0.01 / 2
    assert means[0].tolist() == pytest.approx([-0.05, 0.05, -0.25 * 0.01])
    assert stds[1].tolist() == pytest.approx([0.45, 0.55, 0.5 * ((1 + h**2) ** 0.5 - h)])


@pytest.mark.parametrize("update", ["exact", "paper"])
def test_max_std_bounds_sigma_and_nothing_else(update):
    means, stds, slopes = [0.3, -0.2, 0.1], [0.5, 0.5, 0.4], [-0.4, 0.4, -0.1]
    free, bounded = (one_pair(means, stds, [0.2, 0.1, -0.3], slopes) for _ in range(2))
    mesu.MESU([free], memory=100, update=update).step()
    mesu.MESU([bounded], memory=100, update=update, max_std=0.5).step()
    assert free[1][0] > 0.5 > free[1][1]  # without a bound the first would have been widened
    assert bounded[1].tolist() == [0.5, *free[1][1:].tolist()]
    assert torch.equal(free[0], bounded[0])


def test_max_std_start_is_what_each_parameter_starts_from():
    net = mesu.Bayesian(nn.Sequential(nn.Linear(9, 4), nn.ReLU(), nn.Linear(4, 2)), estimator="local", seed=0)
    starts = [float(pair.std.detach().max()) for pair in net.pairs()]
    assert len(set(starts)) == 2  # of the layers
    opt = mesu.MESU(net, memory=100, max_std="start", lr_std=30.0)
    assert [group["max_std"] for group in opt.param_groups] == starts
    assert [group["names"] for group in opt.param_groups] == [[pair.name] for pair in net.pairs()]
    learn_noise(net, opt)
    assert all(float(pair.std.detach().max()) <= start for pair, start in zip(net.pairs(), starts, strict=True))
    other = mesu.Bayesian(nn.Sequential(nn.Linear(9, 4), nn.ReLU(), nn.Linear(4, 2)), estimator="local", seed=0)
    learn_noise(other, mesu.MESU(other, memory=100, lr_std=30.0))
    assert any(float(pair.std.detach().max()) > start for pair, start in zip(other.pairs(), starts, strict=True))


def test_of_a_group_with_bounds_at_the_start_all_is_added_or_nothing():
    opt = mesu.MESU([one_pair([0.0], [0.5], [0.0], [0.0])], memory=100, max_std="start")
    known, broken = one_pair([0.0], [0.2], [0.0], [0.0]), one_pair([0.0], [nan], [0.0], [0.0])
    with pytest.raises(ValueError, match="max_std"):
        opt.add_param_group({"params": [known, broken]})
    assert [group["max_std"] for group in opt.param_groups] == [0.5]
    opt.add_param_group({"params": [known]})  # nothing of it was kept
    assert [group["max_std"] for group in opt.param_groups] == [0.5, pytest.approx(0.2)]


def learn_noise(net, opt):
    torch.manual_seed(0)
    for _ in range(30):
        net.nll(torch.randn(1, 9), torch.randint(2, (1,)), samples=1).backward()
        opt.step()
        opt.zero_grad()


def test_the_exact_form_has_a_trust_region_and_the_papers_has_none():
    assert mesu.MESU(mesu.Bayesian(nn.Linear(2, 2), seed=0), memory=100).param_groups[0]["max_step"] == 0.3
    net = mesu.Bayesian(nn.Linear(2, 2), estimator="local", seed=0)
    assert mesu.MESU(net, memory=100).param_groups[0]["max_step"] == 1.0
    assert mesu.MESU(net, memory=100, update="paper").param_groups[0]["max_step"] is None
    assert mesu.MESU(net, memory=100, max_step=None).param_groups[0]["max_step"] is None
    assert mesu.MESU(net, memory=100, max_step=0.3).param_groups[0]["max_step"] == 0.3
    weight, bias = net.pairs()
    groups = [{"params": [weight]}, {"params": [bias], "update": "paper"}]
    assert [group["max_step"] for group in mesu.MESU(groups, memory=100).param_groups] == [1.0, None]


@pytest.mark.parametrize("noise_std", [0.3, 0.1, 0.03])
def test_sharp_targets_do_not_throw_the_weights_about(noise_std):
    # with the trust region off and a noise of 0.1, sigma passes 200 at the second example
    torch.manual_seed(0)
    x = torch.randn(300, 3)
    y = 2 * x[:, :1] + noise_std * torch.randn(300, 1)
    module = nn.Sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 1))
    net = mesu.Bayesian(module, likelihood="gaussian", noise_std=noise_std, seed=0)
    opt = mesu.MESU(net, memory=10_000)
    for one, target in zip(x.split(1), y.split(1), strict=True):
        net.nll(one, target).backward()
        opt.step()
        opt.zero_grad()
        assert max(float(pair.std.detach().max()) for pair in net.pairs()) < 20
    assert float((mesu.predict(net, x).mean - y).square().mean()) < 1.0


def test_one_sample_of_drawn_weights_and_a_batch_of_64_learn():
    torch.manual_seed(0)
    truth = torch.randn(20, 5)
    net = mesu.Bayesian(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5)), estimator="weights", seed=0)
    opt = mesu.MESU(net, memory=100_000)
    for _ in range(200):
        x = torch.randn(64, 20)
        net.nll(x, (x @ truth).argmax(1), samples=1).backward()
        opt.step()
        opt.zero_grad()
    x = torch.randn(1000, 20)
    assert float((mesu.predict(net, x).labels == (x @ truth).argmax(1)).float().mean()) > 0.9


def test_small_forgetting_in_single_precision_is_not_lost_for_all_weights_at_once():
    # sigma grows by about 6e-8 of itself an update, less than single precision holds: some weights round up, others down
    torch.manual_seed(0)
    std = (torch.rand(1000) * 0.5 + 0.02).requires_grad_()
    mean = torch.zeros(1000, requires_grad=True)
    opt = mesu.MESU([(mean, std)], memory=8e6, prior_std=100.0)
    before = std.detach().clone()
    for _ in range(200):
        mean.grad, std.grad = torch.zeros(1000), torch.zeros(1000)
        opt.step()
    assert 0.2 < float((std.detach() > before).float().mean()) < 0.8


@pytest.mark.parametrize("name", ["mesu-paper", "foo-vb", "bayes-by-backprop"])
def test_a_rule_without_bounded_steps_says_so_on_the_default_network(name):
    default, narrow = (mesu.Bayesian(nn.Linear(2, 2), estimator=estimator, seed=0) for estimator in (None, "local"))
    with pytest.warns(UserWarning, match="does not bound the steps .* estimator='local'"):
        POSTERIOR[name](default)
    POSTERIOR[name](narrow)  # warnings are errors here
    mesu.MESU(default, memory=50)
