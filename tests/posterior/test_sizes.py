"""Inputs of any size: the first batch tells it, once, and a network learns as from inputs of size one."""

import copy
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mesu
from mesu.posterior import Categorical, sizes

X = torch.randn(40, 6, 6, generator=torch.Generator().manual_seed(1))
Y = torch.arange(40) % 3


class Recurrent(nn.Module):
    """An LSTM in both directions over rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(6, 8, batch_first=True, bidirectional=True), nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


def perceptron() -> Any:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 3))


def conv():
    return nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))


def made(build, **settings) -> tuple[Any, Any]:
    torch.manual_seed(0)
    net = mesu.Bayesian(build(), seed=0, **settings)
    return net, mesu.MESU(net, memory=50)


def learn(net, opt, x, times=4):
    for step in range(times):
        at = slice(step * 10, step * 10 + 10)
        net.nll(x[at], Y[at]).backward()
        opt.step()
        opt.zero_grad()


@pytest.mark.parametrize("power", [-9, 3, 8])
@pytest.mark.parametrize("build", [perceptron, conv, Recurrent])
def test_inputs_that_are_a_power_of_two_larger_teach_the_very_same(build, power):
    (net, opt), (other, its) = made(build), made(build)
    learn(net, opt, X)
    learn(other, its, X * 2.0**power)
    assert torch.equal(net.at_mean(X), other.at_mean(X * 2.0**power))
    entries = {f"{name}.{leaf}" for name, m in net.module.named_children() for leaf in sizes.entries(m)}
    first = {name for name in entries if name in ("1.weight", "layer.weight_ih_l0", "layer.weight_ih_l0_reverse")}
    for a, b in zip(net.pairs(), other.pairs(), strict=True):
        by = 2.0**power if a.name in first else 1.0
        assert torch.equal(a.std, b.std * by)
        assert a.start == b.start * by
    drawn, same = net(X, samples=3), other(X * 2.0**power, samples=3)
    assert torch.equal(drawn, same)


@pytest.mark.parametrize("chunks", [(0, 40), (0, 1, 2, 40)])
def test_the_engine_is_told_by_the_first_update_however_the_stream_is_cut(chunks):
    rows = X.reshape(40, 36).numpy()
    rows[:1] = 0  # of no size: it is the second that tells
    nets = []
    for by, engine in ((1.0, None), (256.0, None), (256.0, False)):
        net, opt = made(lambda: nn.Sequential(*perceptron()[1:]))
        learner = mesu.BayesianLearner(net, opt, engine=engine)
        for a, b in pairwise(chunks):
            learner.learn(rows[a:b] * np.float32(by), Y.numpy()[a:b])
        nets.append(net)
    plain, large, in_torch = nets
    assert torch.equal(plain.at_mean(torch.from_numpy(rows)), large.at_mean(torch.from_numpy(rows) * 256))
    for a, b, c in zip(plain.pairs(), large.pairs(), in_torch.pairs(), strict=True):
        by = 256.0 if a.name == "0.weight" else 1.0
        assert torch.equal(a.std, b.std * by)
        assert a.start == b.start * by == c.start * by


def test_sizes_near_one_change_nothing():
    for by in (0.3, 1.0, 3.5):
        (net, opt), (other, its) = made(perceptron), made(perceptron, input_scale=1.0)
        learn(net, opt, X * by)
        learn(other, its, X * by)
        assert all(torch.equal(a.mean, b.mean) for a, b in zip(net.pairs(), other.pairs(), strict=True))


@pytest.mark.parametrize("change", [lambda w: w.mul_(1.1), lambda w: w.mul_(0.5), lambda w: w.normal_(0, 0.1)])
def test_weights_that_torch_did_not_make_stay(change):
    module = perceptron()
    with torch.no_grad():
        change(module[1].weight)
    net = mesu.Bayesian(module, seed=0)
    before = net.at_mean(X * 256)
    net.fit_inputs(X * 256)
    assert torch.equal(net.at_mean(X * 256), before)
    assert [pair.start for pair in net.pairs("1")] == pytest.approx([3 / 6 / 256, 3 / 6])


def test_torch_s_own_weights_are_told_from_others():
    torch.manual_seed(0)
    layers = [nn.Linear(9, 4), nn.Linear(784, 50), nn.Conv2d(3, 8, 3), nn.Conv1d(4, 8, 3, groups=2), nn.GRU(5, 7)]
    for _ in range(20):
        for layer in layers:
            layer.reset_parameters()
            leaf = sizes.entries(layer)[0]
            bound = sizes.torch_bound(layer, leaf)
            assert sizes.as_torch_made(getattr(layer, leaf), bound)
    for init in (nn.init.xavier_uniform_, nn.init.kaiming_normal_, nn.init.orthogonal_, nn.init.zeros_):
        layer = nn.Linear(64, 10)
        init(layer.weight)
        assert not sizes.as_torch_made(layer.weight, 1 / 8)
    layer = nn.Linear(64, 10)
    optimizer = torch.optim.Adam(layer.parameters())
    for _ in range(30):
        nn.functional.cross_entropy(layer(torch.randn(20, 64)), torch.arange(20) % 10).backward()
        optimizer.step()
    assert not sizes.as_torch_made(layer.weight, 1 / 8)


def test_only_layers_that_raw_inputs_enter_are_told():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.text = nn.Embedding(20, 36), nn.Linear(36, 8)
            self.backbone, self.head = nn.Linear(36, 9), nn.Linear(9, 8)
            self.norm, self.after = nn.LayerNorm(36), nn.Linear(36, 8)
            self.backbone.requires_grad_(False).weight.mul_(100)  # frozen, with large outputs
            self.out = nn.Linear(8, 3)

        def forward(self, x):
            words = self.text(self.words((x[:, :1] > 0).long()).mean(1))
            return self.out(words + self.head(self.backbone(x)) + self.after(self.norm(x)))

    net, _ = made(Two)
    x = X.reshape(40, 36)
    size = float(net.module.backbone(x).square().mean().sqrt())
    net.fit_inputs(x)
    by = {pair.name: 3 / pair.mean.shape[-1] ** 0.5 / pair.start for pair in net.pairs() if "weight" in pair.name}
    assert by.pop("head.weight") == pytest.approx(2 ** round(np.log2(size)))
    assert size > 8
    assert all(each == pytest.approx(1) for name, each in by.items() if name not in ("words.weight", "norm.weight"))
    assert not net.awaits_inputs


def test_a_resumed_run_starts_where_the_first_one_did():
    net, opt = made(perceptron)
    learn(net, opt, X * 100, times=2)
    again, its = made(perceptron)
    again.load_state_dict(net.state_dict())
    its.load_state_dict(opt.state_dict())
    assert [pair.start for pair in again.pairs()] == [pair.start for pair in net.pairs()]
    both = copy.deepcopy((net, opt))
    for some, moving in ((net, opt), (again, its), both):
        learn(some, moving, X * 100)
    for a, b, c in zip(net.pairs(), again.pairs(), both[0].pairs(), strict=True):
        assert torch.equal(a.std, b.std)
        assert torch.equal(a.std, c.std)
    assert torch.equal(net(X, samples=2), again(X, samples=2))


def test_the_state_of_a_network_that_knew_no_sizes_is_read():
    net, _ = made(perceptron)
    old = {**net.state_dict(), "_extra_state": net.noise.state}  # as versions before wrote it
    net.noise.normal((3,))
    net.load_state_dict(old)
    assert torch.equal(net.noise.state, old["_extra_state"])
    assert not net.awaits_inputs  # its weights have learned


def test_a_copy_of_both_before_the_first_batch_stays_together():
    net, opt = copy.deepcopy(made(perceptron))
    opt.load_state_dict(opt.state_dict())
    net.fit_inputs(X * 256)
    assert float(opt.param_groups[0]["starts"][0]) == next(net.pairs()).start == pytest.approx(0.5 / 256)


def test_the_widest_sigma_follows_the_start():
    torch.manual_seed(0)
    net = mesu.Bayesian(perceptron(), seed=0)
    opt = mesu.MESU(net, memory=50, max_std="start")
    learn(net, opt, X / 256)
    assert float(next(net.pairs()).std.detach().max()) > 100


@pytest.mark.filterwarnings("ignore::mesu.LearningWarning")
@pytest.mark.parametrize("engine", [None, False])
def test_a_refused_chunk_tells_nothing(engine):
    net, opt = made(lambda: nn.Sequential(*perceptron()[1:]))
    learner = mesu.BayesianLearner(net, opt, engine=engine)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    huge = np.full((1, 36), 1e25, np.float32)
    huge[:, ::2] *= -1e13  # their squares overflow
    with pytest.raises(ValueError, match="nothing changed"):
        learner.learn(huge, np.array([0]))
    assert all(torch.equal(net.state_dict()[name], value) for name, value in before.items())
    assert net.awaits_inputs


@pytest.mark.parametrize("labels", [Y + 9, Y.float()[:, None]])
def test_a_batch_with_labels_that_are_refused_tells_nothing(labels):
    for weights in (1.0, 2.0):  # as torch made them, and not
        net, _ = made(perceptron)
        net.module.get_parameter("1.weight").data *= weights
        before = {name: value.clone() for name, value in net.state_dict().items()}
        with pytest.raises(ValueError, match="label"):
            net.nll(1000 * X, labels)
        assert all(torch.equal(net.state_dict()[name], value) for name, value in before.items())
        net.nll(X, Y)
        assert next(net.pairs()).start == pytest.approx(0.5)


def test_few_numbers_may_be_small_by_chance():
    assert [sizes.divisor(0.01, count) for count in (1, 15, 16)] == [1.0, 1.0, 2.0**-7]
    assert sizes.divisor(100.0, 1) == 128.0
    assert sizes.divisor(float("inf"), 99) == 1.0


def test_several_processes_start_alike(monkeypatch):
    monkeypatch.setattr(sizes, "several_processes", lambda: True)
    net, _ = made(perceptron)
    with pytest.warns(mesu.LearningWarning, match=r"inputs are of size 26\d .* input_scale=2.6e\+02"):
        net.nll(X * 256, Y)
    assert next(net.pairs()).start == pytest.approx(0.5)
    net.fit_inputs(X * 256)  # asked for, it is done
    assert next(net.pairs()).start == pytest.approx(0.5 / 256)


@pytest.mark.parametrize("settings", [{"estimator": "local"}, {"init": "mnist"}, {"init_std": 0.1}, {"input_scale": 2}])
def test_others_are_told_nothing(settings):
    net, _ = made(perceptron, **settings)
    assert not net.awaits_inputs
    assert torch.equal(net.state_dict()["_extra_state"], net.noise.state)


def test_sigmas_that_have_learned_are_not_divided_by_inputs_that_come_late():
    net = mesu.Bayesian(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), seed=0)
    opt = mesu.MESU(net, memory=100)
    x, y = 80 * torch.randn(16, 4, generator=torch.Generator().manual_seed(0)), torch.arange(16) % 2
    for _ in range(5):
        net.nll(x, y).backward()
        opt.step()
        opt.zero_grad()
    kept = {name: value for name, value in net.state_dict().items() if "extra" not in name}  # as other tools save it
    again = mesu.Bayesian(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), seed=0)
    again.load_state_dict(kept, strict=False)
    assert again.awaits_inputs
    again.nll(x, y)
    assert not again.awaits_inputs
    for name, value in again.state_dict().items():
        assert "extra" in name or torch.equal(value, kept[name])


class Broken(Categorical):
    def nll(self, out, y):
        raise RuntimeError("not today")


def test_a_batch_that_fails_for_any_reason_tells_nothing():
    net = mesu.Bayesian(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), likelihood=Broken(), seed=0)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(RuntimeError, match="not today"):
        net.nll(80 * torch.ones(16, 4), torch.arange(16) % 2)
    assert net.awaits_inputs
    assert net.input_size == 1
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_a_layer_that_is_never_called_is_not_waited_for():
    block = nn.TransformerEncoderLayer(
        8, 2, 16, batch_first=True
    )  # attention uses the weight of its last layer by itself
    net = mesu.Bayesian(nn.Sequential(block, nn.Flatten(), nn.Linear(24, 2)), seed=0)
    net.nll(torch.randn(5, 3, 8), torch.arange(5) % 2)
    assert not net.awaits_inputs
