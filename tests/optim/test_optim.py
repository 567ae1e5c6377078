"""Rules as optimisers: each step against its equation written out, and all that other people do to an optimiser."""

import copy
import io
import pickle
from collections import defaultdict
from math import inf, nan

import numpy as np
import pytest
import torch
from torch import nn

import mesu
from mesu import optim

POSTERIOR = {
    "mesu": lambda p, **k: mesu.MESU(p, **{"memory": 50, "prior_std": 0.5, **k}),
    "mesu-paper": lambda p, **k: mesu.MESU(
        p, **{"memory": 50, "prior_std": 0.5, "update": "paper", "lr_std": 0.1, **k}
    ),
    "mesu-bounded": lambda p, **k: mesu.MESU(p, **{"memory": 50, "max_step": 0.05, **k}),
    "foo-vb": lambda p, **k: mesu.FOOVB(p, **k),
    "bayes-by-backprop": lambda p, **k: mesu.BayesByBackprop(p, **{"lr": 0.003, "weight": 0.01, **k}),
    "bayesian-synapse": lambda p, **k: mesu.BayesianSynapse(p, **{"tau": 40, "max_step": 0.5, **k}),
}
WEIGHT = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "ewc": lambda p: optim.EWC(p, lr=0.1, strength=2.0),
    "ewc-online": lambda p: optim.EWCOnline(p, lr=0.1, strength=2.0, decay=0.9),
    "ewc-stream": lambda p: optim.EWCStream(p, lr=0.1, strength=2.0, decay=0.9),
    "si": lambda p: optim.SI(p, lr=0.1, strength=2.0, damping=0.1),
}
X = torch.linspace(-1, 1, 18).view(6, 3)
Y = torch.tensor([0, 1, 1, 0, 1, 0])


def small_net(seed=0, estimator="local"):
    torch.manual_seed(seed)
    return mesu.Bayesian(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), estimator=estimator, seed=seed)


def plain_net():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def learn(net, opt, steps):
    for _ in range(steps):
        opt.zero_grad()
        net.nll(X, Y, samples=3).backward()
        opt.step()


def learn_plain(net, opt, steps):
    for _ in range(steps):
        opt.zero_grad()
        nn.functional.cross_entropy(net(X), Y, reduction="sum").backward()
        opt.step()


def values(net):
    return [p.detach().clone() for p in net.parameters()]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def one_pair(mean, std, g_mean, g_std, dtype=torch.float64):
    mean, std = (nn.Parameter(torch.tensor(v, dtype=dtype)) for v in (mean, std))
    mean.grad, std.grad = (torch.tensor(g, dtype=dtype) for g in (g_mean, g_std))
    return mean, std


# -- the equations ----------------------------------------------------------------------------------------------------

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
    mesu.BayesByBackprop([(mean, std)], lr=0.001, weight=0.1, prior_mean=0.5, prior_std=2.0).step()
    assert torch.allclose(mean, mu - 0.001 * (mean.grad + 0.1 * (mu - 0.5) / 4), rtol=1e-12)
    assert torch.allclose(std, sigma - 0.001 * (std.grad + 0.1 * (sigma / 4 - 1 / sigma)), rtol=1e-12)


def test_bayesian_synapse_step_is_its_equation():
    mean, std = one_pair(MEAN, STD, G_MEAN, [0.4, -2.0, 0.1, 0.0])
    mu, var, s = mean.detach().clone(), std.detach() ** 2, std.detach().clone()
    mesu.BayesianSynapse([(mean, std)], tau=8, prior_mean=0.5, prior_std=2.0).step()
    assert torch.allclose(mean, mu - var * mean.grad - (mu - 0.5) / 8, rtol=1e-12)
    assert torch.allclose(std**2, var - var**2 * std.grad / s - 2 / 8 * (var - 4), rtol=1e-12)


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


def test_a_negative_sigma_is_refused_with_a_bound_too():
    pair = one_pair([0.0], [0.5], [0.0], [100.0])
    with pytest.raises(mesu.StepRefused):
        mesu.MESU([pair], memory=100, update="paper", max_std=0.5).step()


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


# -- saved, copied, pickled -------------------------------------------------------------------------------------------


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


def end_task(opt):
    if isinstance(opt, optim.EWC):
        opt.consolidate([torch.full_like(p, 0.3) for group in opt.param_groups for p in group["params"]])
    elif isinstance(opt, optim.SI):
        opt.consolidate()


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


# -- groups -----------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("given", ["net", "pairs", "list", "group", "tuples"])
def test_ways_to_give_the_posterior(given):
    net, twin = small_net(), small_net()
    params = {
        "net": net,
        "pairs": net.pairs(),
        "list": list(net.pairs()),
        "group": [{"params": net}],
        "tuples": [(pair.mean, pair.std) for pair in net.pairs()],
    }[given]
    learn(net, mesu.MESU(params, memory=50), 2)
    learn(twin, mesu.MESU(twin, memory=50), 2)
    assert same(values(net), values(twin))


@pytest.mark.parametrize("make", POSTERIOR.values())
def test_bare_parameters_are_refused_with_the_remedy(make):
    with pytest.raises(TypeError, match=r"got Parameter: pass a mesu\.Bayesian or its pairs\(\), not net\.parameters"):
        make(small_net().parameters())


def test_nothing_or_unequal_pairs_are_refused():
    with pytest.raises(ValueError, match="nothing to optimise"):
        mesu.MESU([], memory=10)
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        mesu.MESU([(nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3)))], memory=10)


# -- which parameters move --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("foreach", [None, False])
@pytest.mark.parametrize("name", POSTERIOR)
def test_parameters_without_gradient_stay(name, foreach):
    net = small_net()
    opt = POSTERIOR[name](net, foreach=foreach)
    before = values(net)
    opt.step()
    assert same(values(net), before)
    net.nll(X, Y, samples=3).backward()
    still = list(net.pairs("0"))
    for pair in still:
        pair.mean.grad = pair.std.grad = None
    kept = [p.detach().clone() for pair in still for p in (pair.mean, pair.std)]
    opt.step()
    assert same([p for pair in still for p in (pair.mean, pair.std)], kept)
    assert not same(values(net), before)


def test_zero_gradient_forgets_where_no_gradient_does_not():
    mean, std = one_pair([1.0], [0.1], [0.0], [0.0])
    mesu.MESU([(mean, std)], memory=10, prior_std=1.0).step()
    assert 0 < mean < 1
    assert std > 0.1


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", POSTERIOR)
def test_foreach_equals_one_at_a_time_bit_for_bit(name, dtype):
    nets = [small_net().to(dtype) for _ in range(3)]
    for net, foreach in zip(nets, (None, True, False), strict=True):
        opt = POSTERIOR[name](net, foreach=foreach)
        for _ in range(4):
            opt.zero_grad()
            net.nll(X.to(dtype), Y, samples=3).backward()
            opt.step()
    assert {p.dtype for p in nets[0].parameters()} == {dtype}
    assert same(values(nets[0]), values(nets[1]))
    assert same(values(nets[0]), values(nets[2]))


@pytest.mark.parametrize("name", POSTERIOR)
def test_pieces_make_no_difference(name, monkeypatch):
    """A large network goes through the rule piece by piece; every weight must get there, the last short piece too."""
    nets = []
    for piece in (optim.posterior.PIECE, 5):
        monkeypatch.setattr(optim.posterior, "PIECE", piece)
        net = small_net()
        opt = POSTERIOR[name](net)
        for _ in range(3):
            net.nll(X, Y, samples=4).backward()
            opt.step()
            opt.zero_grad()
        nets.append(net)
    whole, pieces = (torch.cat([t.flatten() for pair in net.pairs() for t in (pair.mean, pair.std)]) for net in nets)
    assert len(whole) % 5, "the last piece must be a short one"
    torch.testing.assert_close(pieces, whole, rtol=0, atol=0)


def test_mixed_dtypes_in_one_group():
    net = small_net()
    double = one_pair([0.3], [0.5], [1.0], [0.4])
    opt = mesu.MESU([*net.pairs(), ("double", *double)], memory=50)
    learn_with = small_net()
    alone = one_pair([0.3], [0.5], [1.0], [0.4])
    net.nll(X, Y, samples=3).backward()
    opt.step()
    learn(learn_with, mesu.MESU(learn_with, memory=50), 1)
    mesu.MESU([alone], memory=50).step()
    assert same(values(net), values(learn_with))
    assert same(double, alone)


# -- the life of an optimiser -----------------------------------------------------------------------------------------


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


def test_failure_between_sampling_and_stepping_leaves_the_posterior():
    net = small_net()
    before = values(net)
    loss = net.nll(X, Y, samples=3)
    with pytest.raises(ZeroDivisionError):
        (loss * (1 / 0)).backward()
    assert same(values(net), before)


def test_failing_closure_leaves_the_posterior():
    net = small_net()
    opt = mesu.MESU(net, memory=50)
    net.nll(X, Y, samples=3).backward()
    before = values(net)

    def closure():
        raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        opt.step(closure)
    assert same(values(net), before)


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


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["mean", "std"])
@pytest.mark.parametrize("make", POSTERIOR.values())
def test_half_a_gradient_is_refused(make, missing):
    net = small_net()
    opt = make(net)
    net.nll(X, Y).backward()
    before = values(net)
    getattr(list(net.pairs())[1], missing).grad = None
    with pytest.raises(mesu.StepRefused, match=rf"the {missing} of '0\.bias' has no gradient"):
        opt.step()
    assert same(values(net), before)


@pytest.mark.parametrize("foreach", [None, False])
@pytest.mark.parametrize("which", ["mean", "std"])
@pytest.mark.parametrize("bad", [nan, inf, -inf])
@pytest.mark.parametrize("name", POSTERIOR)
def test_gradient_that_is_not_finite_is_refused(name, bad, which, foreach):
    net = small_net()
    opt = POSTERIOR[name](net.pairs("0"), foreach=foreach)
    opt.add_param_group({"params": net.pairs("2")})
    net.nll(X, Y).backward()
    before = values(net)
    getattr(list(net.pairs("2"))[1], which).grad[1] = bad
    with pytest.raises(mesu.StepRefused, match=r"'2\.bias' is not finite") as refusal:
        opt.step()
    assert str(bad) in str(refusal.value)
    assert same(values(net), before)


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


def test_refusal_is_a_value_error():
    assert issubclass(mesu.StepRefused, ValueError)


def test_paper_update_refuses_the_gradient_that_the_exact_one_survives():
    for update in ("paper", "exact"):
        net = small_net()
        opt = mesu.MESU(net, memory=50, update=update)
        net.nll(X, Y).backward()
        pair = list(net.pairs())[2]
        pair.std.grad[0, 0] = 1e6
        before = values(net)
        if update == "paper":
            with pytest.raises(mesu.StepRefused, match=r"1 of 26 weights, the first in '2\.weight'.*update='exact'"):
                opt.step()
            assert same(values(net), before)
        else:
            opt.step()
            # sigma' -> 1/g as g grows
            assert pair.std[0, 0].item() == pytest.approx(1e-6, rel=1e-3)
            assert not same(values(net), before)


def test_bad_settings_of_a_later_group_leave_the_optimiser():
    net = small_net()
    opt = mesu.MESU(net.pairs("0"), memory=50)
    with pytest.raises(ValueError, match=r"memory .* got 0\.5"):
        opt.add_param_group({"params": net.pairs("2"), "memory": 0.5})
    assert len(opt.param_groups) == 1
    with pytest.raises(ValueError, match="'exact' or 'paper', got 'newton'"):
        mesu.MESU(net, memory=50, update="newton")


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


def test_bad_setting_of_one_group_stops_the_whole_step():
    net = small_net()
    opt = mesu.MESU([{"params": net.pairs("0")}, {"params": net.pairs("2")}], memory=50)
    net.nll(X, Y).backward()
    before = values(net)
    opt.param_groups[1]["prior_std"] = -1.0
    with pytest.raises(ValueError, match=r"prior_std .* got -1\.0"):
        opt.step()
    assert same(values(net), before)


# -- weight rules -----------------------------------------------------------------------------------------------------


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


# -- the default trust region ------------------------------------------------------------------------------------------


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


def test_a_gradient_that_is_not_finite_is_told_with_the_largest_sigma():
    net = mesu.Bayesian(nn.Linear(2, 2), init_std=123.0, seed=0)
    opt = mesu.MESU(net, memory=100)
    for pair in net.pairs():
        pair.mean.grad, pair.std.grad = torch.full_like(pair.mean, float("inf")), torch.zeros_like(pair.std)
    with pytest.raises(mesu.StepRefused, match=r"run away \(the largest sigma is 123\): take max_step=1 or less"):
        opt.step()


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
