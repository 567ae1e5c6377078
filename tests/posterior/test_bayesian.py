"""Any module as a Gaussian over its weights: what its constructor takes and refuses, saving, copying and growing."""

import copy
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.posterior.networks import ESTIMATORS, NETWORKS, leaves, make, mlp, snapshot, unchanged
from torch import nn

import mesu
from mesu.posterior.layers import Local
from mesu.posterior.noise import Noise


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_module_becomes_a_gaussian(name, estimator):
    module, net, inputs = make(name, estimator=estimator)
    assert [pair.name for pair in net.pairs()] == [n for n, _ in module.named_parameters()]
    plain, drawn = leaves(module(*inputs)), leaves(net(*inputs, samples=3))
    assert [d.shape for d in drawn] == [(3, *p.shape) for p in plain]
    assert all(not torch.equal(d[i], d[j]) for d in drawn for i, j in ((0, 1), (0, 2), (1, 2)))
    sum((d * torch.randn_like(d)).sum() for d in drawn).backward()
    for pair in net.pairs():
        for parameter in (pair.mean, pair.std):
            assert torch.isfinite(parameter.grad).all(), pair.name
            assert (parameter.grad != 0).any(), pair.name


@pytest.mark.parametrize("name", NETWORKS)
def test_one_draw_has_no_sample_axis(name):
    module, net, inputs = make(name)
    assert [o.shape for o in leaves(net(*inputs))] == [o.shape for o in leaves(module(*inputs))]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("name", NETWORKS)
def test_original_module_is_not_changed(name, estimator):
    module, inputs = NETWORKS[name]
    module, inputs = module(), inputs()
    before, types = snapshot(module), [type(m) for m in module.modules()]
    net = mesu.Bayesian(module, init="mnist", estimator=estimator, seed=0)
    sum(o.sum() for o in leaves(net(*inputs, samples=2))).backward()
    with torch.no_grad():
        next(net.pairs()).mean.add_(1)
    assert unchanged(module, before)
    assert [type(m) for m in module.modules()] == types
    assert all(p.grad is None for p in module.parameters())


@pytest.mark.parametrize("name", NETWORKS)
def test_at_mean_is_the_plain_module(name):
    module, net, inputs = make(name)
    state = net.noise.state
    for ours, plain in zip(leaves(net.at_mean(*inputs)), leaves(module(*inputs)), strict=True):
        assert torch.equal(ours, plain)
    assert torch.equal(net.noise.state, state)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_global_random_numbers_and_draws_leave_each_other_alone(estimator):
    _, net, inputs = make("mlp", estimator=estimator)
    twin = copy.deepcopy(net)
    torch.manual_seed(1)
    wanted = torch.rand(3)
    torch.manual_seed(1)
    first = net(*inputs, samples=3)
    assert torch.equal(torch.rand(3), wanted)
    torch.rand(1000)
    assert torch.equal(twin(*inputs, samples=3), first)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_seed_decides_the_draws(estimator):
    module, x = mlp(3, 2), torch.randn(4, 3)
    a, b, c = (mesu.Bayesian(module, estimator=estimator, seed=s)(x, samples=2) for s in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_noise_of_the_callers_choice_leaves_the_networks_own():
    _, net, inputs = make("mlp")
    state = net.noise.state
    a, b = (net.sample(*inputs, samples=2, noise=Noise(8)) for _ in range(2))
    assert torch.equal(a, b)
    assert torch.equal(net.noise.state, state)


def test_other_refusals_of_the_constructor():
    with pytest.raises(ValueError, match="already"):
        mesu.Bayesian(mesu.Bayesian(nn.Linear(2, 2)))
    with pytest.raises(ValueError, match="'linear', 'joint', 'local' or 'weights', got 'locl'"):
        mesu.Bayesian(nn.Linear(2, 2), estimator="locl")
    with pytest.raises(ValueError, match="'refuse' or 'freeze', got 'keep'"):
        mesu.Bayesian(nn.Linear(2, 2), batchnorm="keep")


def test_names_in_the_state_dict():
    net = mesu.Bayesian(mlp(3, 2), seed=0)
    wanted = ["module.0.weight", "module.0.bias", "module.0.weight_std", "module.0.bias_std", "_extra_state"]
    assert sorted(net.state_dict()) == sorted(wanted)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("name", ["mlp", "conv2d", "lstm", "attention"])
def test_restored_network_draws_what_the_saved_one_would_have_drawn(name, estimator, tmp_path):
    _, net, inputs = make(name, estimator=estimator, seed=1)
    net(*inputs, samples=3)  # the stream is somewhere in its middle
    save_file(net.state_dict(), tmp_path / "net.safetensors")
    _, restored, _ = make(name, estimator=estimator, init="mnist", seed=2)
    restored.load_state_dict(load_file(tmp_path / "net.safetensors"))
    for _ in range(2):
        both = zip(leaves(net(*inputs, samples=3)), leaves(restored(*inputs, samples=3)), strict=True)
        assert all(torch.equal(a, b) for a, b in both)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
@pytest.mark.parametrize("name", ["mlp", "conv2d", "lstm", "attention"])
def test_copies_draw_alike_and_are_independent(name, copied):
    _, net, inputs = make(name)
    net(*inputs, samples=2)
    twin = copied(net)
    assert [pair.name for pair in twin.pairs()] == [pair.name for pair in net.pairs()]
    state = twin.noise.state
    first = leaves(net(*inputs, samples=2))
    assert torch.equal(twin.noise.state, state)
    assert all(torch.equal(a, b) for a, b in zip(first, leaves(twin(*inputs, samples=2)), strict=True))
    before = snapshot(twin)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(1)
    assert unchanged(twin, before)


@pytest.mark.parametrize("name", ["mlp", "conv2d", "lstm"])
def test_double(name):
    _, net, (x,) = make(name)
    net = net.double()
    assert {p.dtype for pair in net.pairs() for p in (pair.mean, pair.std)} == {torch.float64}
    assert all(o.dtype == torch.float64 for o in leaves(net(x.double(), samples=2)))


class Heads(nn.Module):
    """A trunk and a head for each task."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(3, 4)
        self.heads = nn.ModuleDict({"first": nn.Linear(4, 2)})

    def forward(self, x, head="first"):
        return self.heads[head](torch.tanh(self.trunk(x)))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_new_head_learns(estimator):
    net = mesu.Bayesian(Heads(), estimator=estimator, seed=0).double()
    opt = mesu.MESU(net, memory=100)
    before = snapshot(net)
    pairs = net.attach("heads.second", nn.Linear(4, 5))
    assert [pair.name for pair in pairs] == ["heads.second.weight", "heads.second.bias"]
    assert {p.dtype for pair in pairs for p in (pair.mean, pair.std)} == {torch.float64}
    assert all(torch.equal(net.state_dict()[name], value) for name, value in before.items())
    opt.add_param_group({"params": pairs, "memory": 7})
    x = torch.randn(4, 3, dtype=torch.float64)
    out = net(x, samples=3, head="second")
    assert out.shape == (3, 4, 5)
    assert not torch.equal(out[0], out[1])
    old_head = [p.clone() for pair in net.pairs("heads.first") for p in (pair.mean, pair.std)]
    new_head = [p.clone() for pair in pairs for p in (pair.mean, pair.std)]
    net.nll(x, torch.tensor([0, 4, 2, 1]), samples=3, head="second").backward()
    opt.step()
    now = [p for pair in net.pairs("heads.first") for p in (pair.mean, pair.std)]
    assert all(torch.equal(a, b) for a, b in zip(now, old_head, strict=True))
    now = [p for pair in net.pairs("heads.second") for p in (pair.mean, pair.std)]
    assert not any(torch.equal(a, b) for a, b in zip(now, new_head, strict=True))


def test_attached_module_is_copied_and_its_start_is_named():
    net = mesu.Bayesian(Heads(), init="mnist", seed=0)
    head = nn.Linear(4, 5)
    before = snapshot(head)
    weight, bias = net.attach("heads.second", head)
    assert unchanged(head, before)
    assert torch.allclose(weight.std, torch.tensor(1.0))  # 2 / sqrt(4)
    assert torch.allclose(bias.std, torch.tensor(1.0))
    assert not torch.equal(weight.mean, head.weight)


@pytest.mark.parametrize("deterministic", [["bias"], "bias", ["*ias"]])
def test_attached_parts_can_be_deterministic(deterministic):
    net = mesu.Bayesian(Heads(), seed=0)
    pairs = net.attach("heads.second", nn.Linear(4, 5), deterministic=deterministic)
    assert [pair.name for pair in pairs] == ["heads.second.weight"]


@pytest.mark.parametrize("name", ["heads.first", "trunk", "heads", "trunk.weight", "heads.keys"])
def test_taken_name_is_refused(name):
    net = mesu.Bayesian(Heads(), seed=0)
    before = snapshot(net)
    with pytest.raises(ValueError, match="already has something called") as refusal:
        net.attach(name, nn.Linear(4, 2))
    assert repr(name) in str(refusal.value)
    assert unchanged(net, before)


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
@pytest.mark.parametrize(
    ("module", "deterministic"),
    [
        (lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), []),
        (lambda: nn.Linear(4, 2), ["gain"]),
        (lambda: nn.LazyLinear(2), []),
    ],
)
def test_failed_attach_leaves_no_trace(module, deterministic):
    net = mesu.Bayesian(Heads(), seed=0)
    before, names = snapshot(net), [pair.name for pair in net.pairs()]
    with pytest.raises(ValueError, match=r"heads\.second"):
        net.attach("heads.second", module(), deterministic)
    assert unchanged(net, before)
    assert list(net.module.heads) == ["first"]
    assert [pair.name for pair in net.pairs()] == names
    assert len(net.attach("heads.second", nn.Linear(4, 2))) == 2


def test_grown_network_is_saved_whole():
    net, other = (mesu.Bayesian(Heads(), seed=s) for s in (1, 2))
    for grown in (net, other):
        grown.attach("heads.second", nn.Linear(4, 5))
    other.load_state_dict(net.state_dict())
    x = torch.randn(4, 3)
    assert torch.equal(net(x, samples=2, head="second"), other(x, samples=2, head="second"))


class Fails(nn.Module):
    """Fails at the n-th call, after its first layer has drawn."""

    def __init__(self, call, error):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.call, self.error, self.calls = call, error, 0

    def forward(self, x):
        x = self.first(x)
        self.calls += 1
        if self.calls == self.call:
            raise self.error
        return self.second(x)


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyError("broken"), KeyboardInterrupt("broken")])
@pytest.mark.parametrize(("vectorize", "call"), [(True, 1), (False, 1), (False, 3)])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_failure_inside_leaves_everything_as_it_was(estimator, vectorize, call, error):
    net = mesu.Bayesian(Fails(call, error), estimator=estimator, vectorize=vectorize, seed=0)
    before, parameters = snapshot(net), [id(p) for p in net.parameters()]
    x = torch.randn(4, 3)
    with pytest.raises(type(error), match="broken"):
        net(x, samples=3)
    assert unchanged(net, before)
    assert [id(p) for p in net.parameters()] == parameters
    assert all(m.noise is None for m in net.modules() if isinstance(m, Local))
    assert torch.backends.mha.get_fastpath_enabled()
    twin = mesu.Bayesian(Fails(0, error), estimator=estimator, vectorize=vectorize, seed=5)
    twin.load_state_dict(before)
    assert torch.equal(net(x, samples=3), twin(x, samples=3))


def test_what_is_no_module_is_refused():
    with pytest.raises(TypeError, match=r"module must be an nn\.Module, got function"):
        mesu.Bayesian(lambda x: x)


@pytest.mark.parametrize(
    ("name", "value"), [("init_std", "0.1"), ("noise_std", "a"), ("init_scale", "b"), ("narrowing", "c")]
)
def test_a_setting_that_is_not_a_number_is_named(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a number, got {value!r}"):
        mesu.Bayesian(nn.Linear(2, 2), likelihood="gaussian", **{name: value})


@pytest.mark.parametrize("seed", ["a", 1.5, -1])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(ValueError, match="seed must be a whole number between 0"):
        mesu.Bayesian(nn.Linear(2, 2), seed=seed)


def test_a_parameter_that_was_taken_away_is_named():
    net = mesu.Bayesian(nn.Sequential(nn.Linear(4, 3)), seed=0)
    del net.module[0].weight_std
    with pytest.raises(RuntimeError, match=r"'0\.weight' or its sigma is not in the network any more"):
        net.nll(torch.ones(1, 4), torch.tensor([0]))
