"""What every step of a posterior goes through: pairs, pieces, dtypes, and the refusal that changes nothing."""

from math import inf, nan

import pytest
import torch
from tests.optim.networks import POSTERIOR, X, Y, learn, one_pair, same, small_net, values
from torch import nn

import mesu
from mesu import optim


def test_a_negative_sigma_is_refused_with_a_bound_too():
    pair = one_pair([0.0], [0.5], [0.0], [100.0])
    with pytest.raises(mesu.StepRefused):
        mesu.MESU([pair], memory=100, update="paper", max_std=0.5).step()


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


def test_bad_setting_of_one_group_stops_the_whole_step():
    net = small_net()
    opt = mesu.MESU([{"params": net.pairs("0")}, {"params": net.pairs("2")}], memory=50)
    net.nll(X, Y).backward()
    before = values(net)
    opt.param_groups[1]["prior_std"] = -1.0
    with pytest.raises(ValueError, match=r"prior_std .* got -1\.0"):
        opt.step()
    assert same(values(net), before)


def test_a_gradient_that_is_not_finite_is_told_with_the_largest_sigma():
    net = mesu.Bayesian(nn.Linear(2, 2), init_std=123.0, seed=0)
    opt = mesu.MESU(net, memory=100)
    for pair in net.pairs():
        pair.mean.grad, pair.std.grad = torch.full_like(pair.mean, float("inf")), torch.zeros_like(pair.std)
    with pytest.raises(mesu.StepRefused, match=r"run away \(the largest sigma is 123\): take max_step=1 or less"):
        opt.step()
