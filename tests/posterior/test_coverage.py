"""Which parameters are covered: names left out, frozen parameters, batch normalisation, layers that cannot be covered."""

import pytest
import torch
from tests.posterior.networks import ESTIMATORS, mlp
from torch import nn

import mesu


@pytest.mark.parametrize(
    ("deterministic", "left"),
    [
        ((), ["0.weight", "0.bias", "2.weight", "2.bias"]),
        (["0.bias"], ["0.weight", "2.weight", "2.bias"]),
        ("0.bias", ["0.weight", "2.weight", "2.bias"]),
        (["0"], ["2.weight", "2.bias"]),
        (["*.bias"], ["0.weight", "2.weight"]),
        (["*.bias", "2"], ["0.weight"]),
        (["?.weight"], ["0.bias", "2.bias"]),
    ],
)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_deterministic_names(deterministic, left, estimator):
    module = mlp(3, 5, 2)
    net = mesu.Bayesian(module, deterministic=deterministic, estimator=estimator, seed=0)
    assert [pair.name for pair in net.pairs()] == left
    stds = [name for name, _ in net.named_parameters() if name.endswith("_std")]
    assert stds == [f"module.{name}_std" for name in left]
    others = [id(p) for p in net.deterministic_parameters()]
    wanted = [id(p) for n, p in net.module.named_parameters() if n not in left and not n.endswith("_std")]
    assert others == wanted
    net(torch.randn(4, 3), samples=3).square().sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_number_prefix_is_a_whole_name():
    net = mesu.Bayesian(nn.ModuleDict({"a": nn.Linear(2, 2), "ab": nn.Linear(2, 2)}), deterministic=["a"])
    assert [pair.name for pair in net.pairs()] == ["ab.weight", "ab.bias"]
    assert [pair.name for pair in net.pairs("ab.bias")] == ["ab.bias"]


@pytest.mark.parametrize("unknown", ["3", "0.wight", "*.gain", "module.0"])
def test_unknown_deterministic_name_is_refused(unknown):
    with pytest.raises(ValueError, match="matches no parameter") as refusal:
        mesu.Bayesian(mlp(3, 5, 2), deterministic=["0.bias", unknown])
    assert repr(unknown) in str(refusal.value)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_frozen_parameters_stay_out(estimator):
    module = mlp(3, 5, 2)
    module[0].weight.requires_grad_(False)
    net = mesu.Bayesian(module, estimator=estimator, seed=0)
    assert [pair.name for pair in net.pairs()] == ["0.bias", "2.weight", "2.bias"]
    net(torch.randn(4, 3), samples=2).sum().backward()
    assert net.module[0].weight.grad is None
    assert torch.equal(net.module[0].weight, module[0].weight)


def test_nothing_to_cover_is_refused():
    with pytest.raises(ValueError, match="no parameter to be uncertain about"):
        mesu.Bayesian(nn.ReLU())
    with pytest.raises(ValueError, match="no parameter to be uncertain about"):
        mesu.Bayesian(nn.Linear(2, 2).requires_grad_(False))


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_lazy_module_is_refused():
    with pytest.raises(ValueError, match=r"'0\.weight' has no shape yet"):
        mesu.Bayesian(nn.Sequential(nn.LazyLinear(3)))


@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
def test_layers_with_sparse_gradients_are_refused_unless_left_out(layer):
    module = nn.Sequential(layer(10, 4, sparse=True), nn.Flatten(), nn.LazyLinear(3))
    words = torch.arange(12).view(4, 3) % 10
    module(words)
    with pytest.raises(
        ValueError, match=r"parameter '0.weight' is of a layer with sparse=True.*deterministic=\['0.weight'\]"
    ):
        mesu.Bayesian(module)
    net = mesu.Bayesian(module, deterministic=["0.weight"])
    net.nll(words, torch.tensor([0, 1, 2, 0])).backward()
    assert net.module[0].weight.grad.is_sparse


def normalised():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))
    for _ in range(3):
        net(torch.randn(8, 3) * 2 + 1)  # averages worth keeping
    return net


def test_batchnorm_is_refused_by_name():
    with pytest.raises(ValueError, match=r"layer '1' is a batch normalisation.*batchnorm='freeze'"):
        mesu.Bayesian(normalised())


def test_frozen_batchnorm_keeps_its_averages():
    module = normalised()
    averages = {name: value.clone() for name, value in module.named_buffers()}
    net = mesu.Bayesian(module, batchnorm="freeze", seed=0)
    x = torch.randn(8, 3)
    for mode in (True, False, True):
        net.train(mode)
        assert net.training == mode == net.module[0].training
        assert not net.module[1].training
        net(x, samples=3)
    assert all(torch.equal(value, averages[name]) for name, value in net.module.named_buffers())
    assert [pair.name for pair in net.pairs()] == ["0.weight", "0.bias", "3.weight", "3.bias"]
    assert torch.equal(net.at_mean(x), module.eval()(x))


def test_frozen_batchnorm_does_not_mix_examples():
    net = mesu.Bayesian(normalised(), batchnorm="freeze", estimator="weights", seed=0)
    x = torch.randn(8, 3)
    state = net.noise.state
    together = net(x, samples=2)
    net.noise.state = state
    assert torch.allclose(net(x[:1], samples=2), together[:, :1], atol=1e-6)


@pytest.mark.filterwarnings("ignore:Complex modules are a new feature", "ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Linear(3, 2).half(), r"'weight' is torch\.float16.*torch\.autocast"),
        (lambda: nn.Linear(3, 2).to(torch.complex64), r"'weight' is torch\.complex64.*deterministic=\['weight'\]"),
        (lambda: torch.jit.script(nn.Linear(3, 2)), r"torch\.jit"),
        (
            lambda: nn.utils.parametrizations.orthogonal(nn.Linear(3, 2)),
            r"orthogonal matrix.*deterministic=\['parametrizations\.weight\.original'\]",
        ),
    ],
)
def test_parameters_that_cannot_have_a_sigma_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        mesu.Bayesian(make())


def test_an_orthogonal_layer_learns_what_is_beside_it():
    layer = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3))
    net = mesu.Bayesian(nn.Sequential(layer, nn.Linear(3, 2)), deterministic=["0.parametrizations"], seed=0)
    before = layer.weight.detach().clone()
    opt = mesu.MESU(net, memory=10)
    for _ in range(5):
        net.nll(torch.randn(4, 3), torch.tensor([0, 1, 0, 1])).backward()
        opt.step()
        opt.zero_grad()
    assert torch.equal(net.module[0].weight, before)
    assert [pair.name for pair in net.pairs()] == ["0.bias", "1.weight", "1.bias"]
