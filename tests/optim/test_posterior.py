"""Rules of a posterior as optimisers: each step against its equation written out, groups, hooks, closures, settings."""

from math import inf

import numpy as np
import pytest
import torch
from tests.optim.networks import POSTERIOR, X, Y, learn, one_pair, same, small_net, values
from torch import nn

import mesu

MEAN, STD = [0.3, -1.2, 0.0, 2.0], [0.5, 0.1, 1.5, 0.02]
G_MEAN, G_STD = [1.0, -20.0, 0.0, 3.0], [0.4, -2.0, 30.0, 0.0]


def exact(mu, sigma, g_mu, g_sigma, N, mp, sp, lr_mean, lr_std):
    a = (1 - lr_std / N) / sigma**2 + lr_std / (N * sp**2)
    new = 2 / (lr_std * g_sigma + (lr_std**2 * g_sigma**2 + 4 * a) ** 0.5)
    V = torch.minimum(1 / a, new**2)
    return mu - lr_mean * V * (g_mu + (mu - mp) / (N * sp**2)), new


def paper(mu, sigma, g_mu, g_sigma, N, mp, sp, lr_mean, lr_std):
    v = sigma**2
    d_sigma = lr_std * 0.5 * (-v * g_sigma + sigma * (sp**2 - v) / (N * sp**2))
    return mu + lr_mean * (-v * g_mu + v * (mp - mu) / (N * sp**2)), sigma + d_sigma


@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize(("update", "formula"), [("exact", exact), ("paper", paper)])
@pytest.mark.parametrize(("lr_mean", "lr_std"), [(1.0, 1.0), (0.3, 0.05), (2.0, 0.0)])
def test_mesu_step_is_its_equation(update, formula, lr_mean, lr_std, foreach):
    g_std = [0.4, -2.0, 0.9, 0.0] if update == "paper" else G_STD
    mean, std = one_pair(MEAN, STD, G_MEAN, g_std)
    wanted = formula(mean.detach(), std.detach(), mean.grad, std.grad, 40, 0.2, 0.7, lr_mean, lr_std)
    settings = {"memory": 40, "prior_mean": 0.2, "prior_std": 0.7, "lr_mean": lr_mean, "lr_std": lr_std}
    mesu.MESU([(mean, std)], **settings, update=update, max_step=None, foreach=foreach).step()
    assert torch.allclose(mean, wanted[0], rtol=1e-12, atol=1e-14)
    assert torch.allclose(std, wanted[1], rtol=1e-12, atol=1e-14)


def test_foovb_step_is_its_equation():
    mean, std = one_pair(MEAN, STD, G_MEAN, G_STD)
    mu, sigma, h = mean.detach().clone(), std.detach().clone(), std.detach() * std.grad / 2
    mesu.FOOVB([(mean, std)]).step()
    assert torch.allclose(mean, mu - sigma**2 * mean.grad, rtol=1e-12)
    assert torch.allclose(std, sigma * ((1 + h**2).sqrt() - h), rtol=1e-11)


def test_bayes_by_backprop_step_is_its_equation():
    mean, std = one_pair(MEAN, STD, G_MEAN, G_STD)
    mu, sigma = mean.detach().clone(), std.detach().clone()
    mesu.BayesByBackprop([(mean, std)], lr=0.001, kl_weight=0.1, prior_mean=0.5, prior_std=2.0).step()
    assert torch.allclose(mean, mu - 0.001 * (mean.grad + 0.1 * (mu - 0.5) / 4), rtol=1e-12)
    assert torch.allclose(std, sigma - 0.001 * (std.grad + 0.1 * (sigma / 4 - 1 / sigma)), rtol=1e-12)


def test_bayesian_synapse_step_is_its_equation():
    mean, std = one_pair(MEAN, STD, G_MEAN, [0.4, -2.0, 0.1, 0.0])
    mu, var, s = mean.detach().clone(), std.detach() ** 2, std.detach().clone()
    mesu.BayesianSynapse([(mean, std)], tau=8, prior_mean=0.5, prior_std=2.0).step()
    assert torch.allclose(mean, mu - var * mean.grad - (mu - 0.5) / 8, rtol=1e-12)
    assert torch.allclose(std**2, var - var**2 * std.grad / s - 2 / 8 * (var - 4), rtol=1e-12)


def test_groups_have_their_own_settings():
    net, twin = small_net(), small_net()
    opt = mesu.MESU([{"params": net.pairs("0")}, {"params": net.pairs("2"), "lr_mean": 0.0, "memory": 7}], memory=50)
    first, second = mesu.MESU(twin.pairs("0"), memory=50), mesu.MESU(twin.pairs("2"), memory=7, lr_mean=0.0)
    net.nll(X, Y, samples=3).backward()
    twin.nll(X, Y, samples=3).backward()
    opt.step()
    first.step()
    second.step()
    assert same(values(net), values(twin))
    assert same([p.mean for p in net.pairs("2")], [p.mean for p in small_net().pairs("2")])
    assert not same([p.mean for p in net.pairs("0")], [p.mean for p in small_net().pairs("0")])


def test_added_group_takes_defaults_and_its_own_settings():
    net = small_net()
    opt = mesu.MESU(net.pairs("0"), memory=50, prior_std=0.5)
    opt.add_param_group({"params": net.pairs("2"), "memory": 8})
    first, second = opt.param_groups
    assert (first["memory"], second["memory"]) == (50, 8)
    assert (first["prior_std"], second["prior_std"]) == (0.5, 0.5)
    assert second["names"] == ["2.weight", "2.bias"]
    expected = [p for pair in net.pairs("2") for p in (pair.mean, pair.std)]
    assert [id(p) for p in second["params"]] == [id(p) for p in expected]


def test_pairs_may_not_be_in_two_groups():
    net = small_net()
    opt = mesu.MESU(net, memory=50)
    with pytest.raises(ValueError, match="more than one parameter group"):
        opt.add_param_group({"params": net.pairs("0")})
    assert len(opt.param_groups) == 1


def test_gradients_accumulate():
    one, two = (small_net(estimator="weights") for _ in range(2))
    opt_one, opt_two = mesu.MESU(one, memory=50), mesu.MESU(two, memory=50)
    one.nll(X[:2], Y[:2], samples=3).backward()
    one.nll(X[2:], Y[2:], samples=3).backward()
    (two.nll(X[:2], Y[:2], samples=3) + two.nll(X[2:], Y[2:], samples=3)).backward()
    opt_one.step()
    opt_two.step()
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(values(one), values(two), strict=True))
    assert not same(values(one), values(small_net()))


def test_zero_grad():
    net = small_net()
    opt = mesu.MESU(net, memory=50)
    net.nll(X, Y).backward()
    assert all(p.grad is not None for p in net.parameters())
    opt.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    net.nll(X, Y).backward()
    opt.zero_grad(set_to_none=False)
    assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in net.parameters())


@pytest.mark.parametrize("make", [POSTERIOR["mesu"], POSTERIOR["foo-vb"], POSTERIOR["bayes-by-backprop"]])
def test_hooks_fire_around_the_step(make):
    net = small_net()
    opt, seen = make(net), []
    opt.register_step_pre_hook(lambda *_: seen.append(("before", values(net))))
    opt.register_step_post_hook(lambda *_: seen.append(("after", values(net))))
    start = values(net)
    learn(net, opt, 1)
    assert [name for name, _ in seen] == ["before", "after"]
    assert same(seen[0][1], start)
    assert same(seen[1][1], values(net))
    assert not same(start, values(net))


def test_closure_is_run_and_its_loss_returned():
    net, twin = small_net(), small_net()
    opt = mesu.MESU(net, memory=50)

    def closure():
        opt.zero_grad()
        loss = net.nll(X, Y, samples=3)
        loss.backward()
        return loss

    loss = opt.step(closure)
    wanted = twin.nll(X, Y, samples=3)
    wanted.backward()
    mesu.MESU(twin, memory=50).step()
    assert torch.equal(loss, wanted)
    assert same(values(net), values(twin))


def test_rates_edited_between_steps_count():
    net = small_net()
    opt = mesu.MESU(net, memory=inf)
    moved = []
    for rate in (1.0, 0.1, 0.0):
        for group in opt.param_groups:
            group["lr_mean"] = rate
        before = [pair.mean.detach().clone() for pair in net.pairs()]
        learn(net, opt, 1)
        moved.append(max(float((p.mean - b).detach().abs().max()) for p, b in zip(net.pairs(), before, strict=True)))
    assert moved[0] > moved[1] > moved[2] == 0


def test_torch_scheduler_moves_a_plain_rate():
    net = small_net()
    opt = mesu.BayesByBackprop(net, lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.5)
    learn(net, opt, 1)
    schedule.step()
    assert opt.param_groups[0]["lr"] == 0.005


@pytest.mark.filterwarnings("ignore")  # torch's own, about graph breaks
@pytest.mark.parametrize("estimator", ["weights", "local"])
def test_compiled_cost_and_step_give_the_same_numbers(estimator):
    torch.compiler.reset()
    net, twin = small_net(estimator=estimator), small_net(estimator=estimator)
    opt, other = mesu.MESU(net, memory=50), mesu.MESU(twin, memory=50)
    cost = torch.compile(lambda x, y: net.nll(x, y, samples=3), backend="aot_eager")
    step = torch.compile(opt.step, backend="aot_eager")
    for _ in range(2):
        cost(X, Y).backward()
        step()
        opt.zero_grad()
        learn(twin, other, 1)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(values(net), values(twin), strict=True))
    assert not same(values(net), values(small_net(estimator=estimator)))


def test_bad_settings_of_a_later_group_leave_the_optimiser():
    net = small_net()
    opt = mesu.MESU(net.pairs("0"), memory=50)
    with pytest.raises(ValueError, match=r"memory .* got 0\.5"):
        opt.add_param_group({"params": net.pairs("2"), "memory": 0.5})
    assert len(opt.param_groups) == 1
    with pytest.raises(ValueError, match="'exact' or 'paper' or 'paced', got 'newton'"):
        mesu.MESU(net, memory=50, update="newton")


@pytest.mark.parametrize(
    "settings",
    [{"memory": "1000"}, {"memory": 100, "prior_std": "1"}, {"memory": 100, "lr_mean": [1]}, {"memory": True}],
)
def test_settings_that_are_not_numbers_are_named(settings):
    name = next(name for name, value in reversed(settings.items()))
    with pytest.raises(ValueError, match=f"{name} must be a number, got"):
        mesu.MESU(mesu.Bayesian(nn.Linear(2, 2), seed=0), **settings)
    with pytest.raises(ValueError, match="max_step must be a number, got 'big'"):
        mesu.MESU(mesu.Bayesian(nn.Linear(2, 2), seed=0), memory=100, max_step="big")


def test_numbers_of_numpy_and_torch_are_numbers():
    net = mesu.Bayesian(nn.Linear(2, 2), seed=0)
    assert mesu.MESU(net, memory=np.float32(100), lr_mean=torch.tensor(0.5), prior_std=np.array(2.0))
    assert mesu.BayesianLearner(net, mesu.MESU(net, memory=np.int64(100)), samples=np.int64(3), batch=np.int32(2))
