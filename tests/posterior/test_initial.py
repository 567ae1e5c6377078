"""Where a posterior starts: the named initialisations against their formulas."""

from math import sqrt

import pytest
import torch
from torch import nn

import mesu
from mesu.posterior.draws import drawn_std
from mesu.posterior.initial import KEEP_SCALE, fans, start
from mesu.posterior.noise import Noise


@pytest.mark.parametrize(
    ("owner", "name", "wanted"),
    [
        (nn.Linear(7, 3), "weight", (7, 3)),
        (nn.Linear(7, 3), "bias", (7, 3)),
        (nn.Conv2d(16, 32, 3), "weight", (144, 288)),
        (nn.Conv2d(16, 32, 3), "bias", (144, 288)),
        (nn.Conv1d(4, 6, 5, groups=2), "weight", (10, 30)),
        (nn.LSTM(3, 5), "weight_ih_l0", (3, 20)),
        (nn.LSTM(3, 5), "bias_ih_l0", (3, 20)),
        (nn.LSTM(3, 5), "bias_hh_l0", (5, 20)),
        (nn.MultiheadAttention(8, 2), "in_proj_bias", (8, 24)),
        (nn.Embedding(10, 4), "weight", (4, 10)),
        (nn.LayerNorm(6), "weight", None),
        (nn.LayerNorm(6), "bias", None),
    ],
)
def test_fans(owner, name, wanted):
    assert fans(owner, name) == wanted


def test_fans_of_attention_with_its_own_key_width():
    # its in_proj_weight is registered as None: the bias has no one weight
    attention = nn.MultiheadAttention(8, 2, kdim=4, vdim=6)
    assert fans(attention, "k_proj_weight") == (4, 8)
    net = mesu.Bayesian(attention, seed=0, estimator="local")
    query, key, value = torch.randn(3, 2, 8), torch.randn(5, 2, 4), torch.randn(5, 2, 6)
    assert net(query, key, value, samples=4)[0].shape == (4, 3, 2, 8)


def drawn(layer, init, name="weight"):
    net = mesu.Bayesian(layer, init=init, seed=0)
    return {pair.name: pair for pair in net.pairs()}[name]


@pytest.mark.parametrize("name", ["weight", "bias"])
@pytest.mark.parametrize(
    ("init", "half_width", "sigma"),
    [
        ("mnist", 4 / sqrt(18), 2 / sqrt(18)),
        ("cifar", sqrt(2 / 18), 1 / (2 * sqrt(9 * 500))),
    ],
)
def test_paper_starts_of_a_convolution(init, half_width, sigma, name):
    # fan_in = 2 * 9, fan_out = 500 * 9; the bias has the fans of its weight
    pair = drawn(nn.Conv2d(2, 500, 3), init, name)
    assert torch.allclose(pair.std, torch.full_like(pair.std, sigma), rtol=1e-6, atol=0)
    assert pair.mean.abs().max() <= half_width
    assert pair.mean.max() > 0.97 * half_width
    assert pair.mean.min() < -0.97 * half_width
    assert abs(pair.mean.mean()) < 4 * half_width / sqrt(3 * pair.mean.numel())


@pytest.mark.parametrize("name", ["weight", "bias"])
@pytest.mark.parametrize(
    ("init", "half_width", "sigma"), [("mnist", 0.4, 0.2), ("cifar", sqrt(2) / 10, 1 / (2 * sqrt(300)))]
)
def test_paper_starts_of_a_linear_layer(init, half_width, sigma, name):
    pair = drawn(nn.Linear(100, 300), init, name)
    assert torch.allclose(pair.std, torch.full_like(pair.std, sigma), rtol=1e-6, atol=0)
    assert 0.95 * half_width < pair.mean.abs().max() <= half_width


@pytest.mark.parametrize(
    ("estimator", "scale"), [(None, 3.0), ("linear", 3.0), ("local", KEEP_SCALE), ("weights", KEEP_SCALE)]
)
def test_keep_keeps_the_weights(estimator, scale):
    layer = nn.Linear(25, 4)
    before = layer.weight.detach().clone()
    for pair in mesu.Bayesian(layer, estimator=estimator, seed=0).pairs():
        assert torch.allclose(pair.std, torch.full(pair.mean.shape, scale / 5))
        assert pair.start == pytest.approx(scale / 5)
        assert pair.narrowing == (5.0 if scale == 3 else 1.0)
        assert torch.equal(pair.mean, before if pair.name == "weight" else layer.bias)


def test_an_example_moves_its_own_unit_by_the_same_share_whatever_the_size_of_inputs():
    # sigma^2 |x|^2 is the same: of the first layer by its inputs' size, of the others for inputs of size one
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(16, 3))
    plain, large = (mesu.Bayesian(module, input_scale=scale, seed=0, estimator="local") for scale in (1.0, 50.0))
    x = 50 * torch.ones(18)
    assert float(next(large.pairs("0.weight")).std.detach().max() ** 2 * x.square().sum()) == pytest.approx(
        KEEP_SCALE**2
    )
    for a, b in zip(plain.pairs("2"), large.pairs("2"), strict=True):
        assert torch.equal(a.std, b.std)
    for a, b in zip(plain.pairs(), large.pairs(), strict=True):
        assert torch.equal(a.mean, b.mean)


@pytest.mark.parametrize("init", ["mnist", "cifar"])
def test_the_paper_s_starts_do_not_look_at_the_inputs(init):
    a, b = (mesu.Bayesian(nn.Linear(3, 2), init=init, input_scale=s, seed=0) for s in (1.0, 7.0))
    assert all(torch.equal(p.std, q.std) for p, q in zip(a.pairs(), b.pairs(), strict=True))


@pytest.mark.parametrize("init", ["keep", "mnist", "cifar"])
def test_init_scale_multiplies_the_named_sigma(init):
    plain, narrow = (mesu.Bayesian(nn.Linear(5, 4), init=init, init_scale=s, seed=3) for s in (1.0, 0.2))
    for a, b in zip(plain.pairs(), narrow.pairs(), strict=True):
        assert torch.allclose(b.std, 0.2 * a.std)


@pytest.mark.parametrize("name", ["init_scale", "input_scale"])
@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_scales_must_be_positive(name, scale):
    with pytest.raises(ValueError, match=f"{name} .* got {scale!r}"):
        mesu.Bayesian(nn.Linear(2, 2), **{name: scale})


@pytest.mark.parametrize("init", ["keep", "mnist", "cifar"])
def test_gains_keep_their_means(init):
    for pair in mesu.Bayesian(nn.LayerNorm(16), init=init, seed=0).pairs():
        assert torch.equal(pair.mean, torch.full((16,), 1.0 if pair.name == "weight" else 0.0))
        assert torch.all(pair.std > 0)


@pytest.mark.parametrize("init", ["keep", "mnist", "cifar"])
def test_init_std_overrides_sigma_alone(init):
    layer = nn.Linear(5, 4)
    plain, wide = (mesu.Bayesian(layer, init=init, init_std=s, seed=3) for s in (None, 0.25))
    for a, b in zip(plain.pairs(), wide.pairs(), strict=True):
        assert torch.equal(a.mean, b.mean)
        assert torch.equal(b.std, torch.full_like(b.std, 0.25))


def test_random_means_come_from_the_seed():
    layer = nn.Linear(5, 4)
    a, b, c = (next(mesu.Bayesian(layer, init="mnist", seed=s).pairs()).mean for s in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_start_does_not_touch_the_owner():
    layer = nn.Linear(5, 4)
    before = layer.weight.detach().clone()
    mean, _ = start(layer, "weight", "keep", None, Noise(0))
    mean.add_(1)
    assert torch.equal(layer.weight, before)


@pytest.mark.parametrize("init", ["MNIST", "", "xavier"])
def test_unknown_name_is_refused(init):
    with pytest.raises(ValueError, match=r"'keep', 'mnist', 'cifar'.*got"):
        mesu.Bayesian(nn.Linear(2, 2), init=init)


@pytest.mark.parametrize("init_std", [0.0, -1.0, float("nan"), float("inf")])
def test_init_std_must_be_positive(init_std):
    with pytest.raises(ValueError, match=f"init_std .* got {init_std!r}"):
        mesu.Bayesian(nn.Linear(2, 2), init_std=init_std, estimator="local")


def test_the_default_draws_the_narrower_the_more_weight_matrices_there_are():
    net = nn.Sequential(nn.Conv1d(1, 2, 3), nn.GroupNorm(1, 2), nn.Flatten(), nn.Linear(4, 3), nn.Linear(3, 2))
    for posterior, wanted in ((mesu.Bayesian(net), 33.75), (mesu.Bayesian(net, narrowing=7), 7.0)):
        assert posterior.narrowing == wanted
        for pair in posterior.pairs():
            owner = posterior.module.get_submodule(pair.name.rpartition(".")[0])
            s = drawn_std(owner, pair.name.rpartition(".")[2]).detach()
            assert torch.allclose(s, pair.std.detach() / wanted**0.5)
    for layer in net.parameters():
        layer.requires_grad_(layer.dim() == 1)
    assert mesu.Bayesian(net).narrowing == 5.0  # frozen matrices have no noise
