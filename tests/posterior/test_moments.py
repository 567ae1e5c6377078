"""Moments of single layers and functions, against quadrature, algebra and draws."""

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import nn
from torch.func import functional_call

from mesu.posterior import moments
from mesu.posterior.moments import Gaussian, Unknown


def gaussian(*shape, seed=0, wide=1.0):
    torch.manual_seed(seed)
    mean = torch.randn(*shape, dtype=torch.float64)
    return Gaussian(mean, wide * torch.rand(*shape, dtype=torch.float64) + 0.01)


def uncertain(layer, seed=1):
    """The layer in double precision, each parameter with a variance."""
    torch.manual_seed(seed)
    layer = layer.double()
    for owner in layer.modules():
        for leaf, value in list(owner._parameters.items()):
            if value is not None:
                owner.register_buffer(leaf + "_var", 0.1 * torch.rand_like(value) + 0.01)
    return layer


def drawn(layer, x, times):
    """Outputs of drawn weights for drawn inputs, ``[times, B, ...]``."""
    torch.manual_seed(5)
    outs = []
    parameters = dict(layer.named_parameters())
    for _ in range(times):
        weights = {
            name: value + layer.get_buffer(name + "_var").sqrt() * torch.randn_like(value)
            for name, value in parameters.items()
        }
        inputs = x.mean + x.var.sqrt() * torch.randn_like(x.mean)
        outs.append(functional_call(layer, weights, inputs).detach())
    return torch.stack(outs)


FUNCTIONS = {
    "relu": (nn.ReLU(), lambda a: max(a, 0.0), 1e-7),
    "leaky": (nn.LeakyReLU(0.2), lambda a: a if a > 0 else 0.2 * a, 1e-7),
    "tanh": (nn.Tanh(), np.tanh, 2e-3),
    "sigmoid": (nn.Sigmoid(), lambda a: 1 / (1 + np.exp(-a)), 1e-4),
    "gelu": (nn.GELU(), lambda a: a * stats.norm.cdf(a), 2e-3),
    "silu": (nn.SiLU(), lambda a: a / (1 + np.exp(-a)), 1e-3),
    "elu": (nn.ELU(), lambda a: a if a > 0 else np.expm1(a), 2e-2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (1.3, 0.4), (-2.0, 1.5), (0.2, 0.05), (4.0, 0.5), (-6.0, 1.0)])
def test_functions_against_numerical_integrals(name, mean, std):
    layer, function, error = FUNCTIONS[name]

    def expected(f):
        return integrate.quad(lambda e: f(mean + std * e) * stats.norm.pdf(e), -9, 9, points=[-mean / std], limit=200)[
            0
        ]

    first = expected(function)
    out = moments.RULES[type(layer)](
        layer, Gaussian(torch.tensor([[mean]]).double(), torch.tensor([[std**2]]).double())
    )
    assert out.mean.item() == pytest.approx(first, abs=error)
    assert out.var.item() == pytest.approx(expected(lambda a: (function(a) - first) ** 2), abs=error)
    slope = expected(lambda a: function(a) * (a - mean)) / std**2  # Stein's lemma
    assert out.made.slope.item() == pytest.approx(slope, abs=4 * error)


def test_relu_of_what_is_nearly_certain_is_the_plain_one():
    mean = torch.tensor([[-1e4, -3.0, -1e-3, 1e-3, 3.0, 1e4]])
    for var in (0.0, 1e-20):
        out = moments.through_relu(nn.ReLU(), Gaussian(mean, torch.full_like(mean, var)))
        assert torch.allclose(out.mean, mean.relu(), rtol=1e-6, atol=1e-9)
        assert torch.allclose(out.var, torch.full_like(mean, var) * (mean > 0), rtol=1e-5, atol=1e-12)


def test_relu_keeps_its_digits_far_from_zero():
    mean, var = torch.tensor([[200.0, 3000.0]]), torch.tensor([[1.0, 1.0]])
    out = moments.through_relu(nn.ReLU(), Gaussian(mean, var))
    assert torch.allclose(out.var, var, rtol=1e-5)
    assert torch.allclose(out.mean, mean, rtol=1e-6)


LINEAR = {
    "linear": (lambda: nn.Linear(4, 3), (2, 4)),
    "linear, no bias": (lambda: nn.Linear(4, 3, bias=False), (2, 4)),
    "conv1d": (lambda: nn.Conv1d(2, 3, 3, padding=1), (2, 2, 6)),
    "conv2d": (lambda: nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2), (2, 2, 5, 5)),
    "conv3d": (lambda: nn.Conv3d(1, 2, 2), (2, 1, 3, 3, 3)),
}


@pytest.mark.parametrize("name", LINEAR)
def test_linear_maps_of_independent_inputs_are_exact(name):
    """By algebra: var(w x) = mu^2 v + s^2 (m^2 + v), the map being written out as a matrix."""
    make, shape = LINEAR[name]
    layer, x = uncertain(make()), gaussian(*shape)
    out = moments.RULES[type(layer)](layer, x)
    parameters = dict(layer.named_parameters())

    def forward(values, inputs):
        return functional_call(layer, values, inputs[None])[0].flatten()

    for b in range(2):
        by_x = torch.func.jacrev(lambda inputs: forward(parameters, inputs))(x.mean[b]).flatten(1)
        var = by_x.square() @ x.var[b].flatten()
        by_weight = torch.func.jacrev(forward)(parameters, x.mean[b])
        for leaf, jacobian in by_weight.items():
            var = var + jacobian.flatten(1).square() @ layer.get_buffer(leaf + "_var").flatten()
        zero = {leaf: torch.zeros_like(value) for leaf, value in parameters.items()}
        zero["weight"] = layer.weight_var
        var = var + forward(zero, x.var[b])  # both uncertain: s^2 v
        assert torch.allclose(out.var[b].flatten(), var, rtol=1e-12)
    assert torch.allclose(out.mean, layer(x.mean))


@pytest.mark.parametrize(
    "settings", [{"padding": 1}, {"padding": 1, "stride": 2}, {}, {"padding": "same", "dilation": 2}]
)
def test_the_average_over_positions_of_a_convolution_is_exact_for_even_inputs(settings):
    """Weights count as often as they meet an input: the covariance of the averages, against draws."""
    layer = uncertain(nn.Conv2d(2, 3, 3, **settings))
    even = torch.tensor([0.7, -1.2], dtype=torch.float64)[None, :, None, None].expand(1, 2, 5, 5)
    out = moments.through_convolution(layer, even)
    average = drawn(layer, Gaussian(even, torch.zeros_like(even)), 20_000).mean((3, 4))[:, 0]
    assert torch.allclose(out.common[0], torch.cov(average.T), atol=0.02 * float(out.common.detach().max()))


def test_what_channels_have_in_common_passes_through_a_second_convolution():
    """Two convolutions of a kernel of 1 along even inputs: channels are mixed, and the covariance between them is known."""
    first, second = uncertain(nn.Conv1d(2, 3, 1)), uncertain(nn.Conv1d(3, 3, 1), seed=2)
    even = torch.tensor([0.7, -1.2], dtype=torch.float64)[None, :, None].expand(1, 2, 4)
    out = moments.through_convolution(second, moments.through_convolution(first, even))
    inner = drawn(first, Gaussian(even, torch.zeros_like(even)), 20_000)
    torch.manual_seed(3)
    weight = second.weight + second.weight_var.sqrt() * torch.randn(20_000, 3, 3, 1, dtype=torch.float64)
    bias = second.bias + second.bias_var.sqrt() * torch.randn(20_000, 3, dtype=torch.float64)
    average = (torch.einsum("sij,sj->si", weight[..., 0], inner[:, 0, :, 0]) + bias).detach()
    assert torch.allclose(out.common[0], torch.cov(average.T), atol=0.03 * float(out.common.detach().max()))
    pooled = moments.through_average(nn.AdaptiveAvgPool1d(1), out)
    assert torch.allclose(pooled.var[0, :, 0], moments.diagonal(out.common)[0], rtol=1e-9)


def test_the_average_of_independent_positions_is_divided_by_their_number():
    x = gaussian(2, 3, 4, 4)
    alone = x.var.flatten(2).mean(2) / 16
    common = moments.on_diagonal(torch.zeros(2, 3, dtype=torch.float64))
    out = moments.through_average(nn.AdaptiveAvgPool2d(1), Gaussian(x.mean, x.var, common))
    assert torch.allclose(out.var[:, :, 0, 0], alone)
    with pytest.raises(Unknown, match="vary together"):
        moments.through_average(nn.AdaptiveAvgPool2d(1), x)


def test_a_maximum_takes_the_variance_of_the_largest_mean():
    x = gaussian(2, 3, 4, 4)
    out = moments.through_maximum(nn.MaxPool2d(2), x)
    cells = x.mean.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)
    variances = x.var.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)
    assert torch.equal(out.mean, cells.amax(-1))
    assert torch.equal(out.var, variances.gather(-1, cells.argmax(-1, keepdim=True))[..., 0])


def test_frozen_batchnorm_is_a_linear_map():
    layer = nn.BatchNorm2d(3).double().eval()
    layer.running_mean.normal_()
    layer.running_var.uniform_(0.5, 2)
    layer.weight.data.normal_()
    x = gaussian(2, 3, 4, 4)
    out = moments.through_frozen_batchnorm(layer, x)
    slope = layer(x.mean + 1) - layer(x.mean)
    assert torch.allclose(out.var, x.var * slope.square())
    assert torch.allclose(out.mean, layer(x.mean))


def test_layer_norm_against_draws():
    layer, x = uncertain(nn.LayerNorm(40)), gaussian(3, 40, wide=0.1)
    out, draws = moments.through_layer_norm(layer, x), drawn(layer, x, 20_000)
    assert torch.allclose(out.mean, draws.mean(0), atol=0.02)
    assert torch.allclose(out.var, draws.var(0), rtol=0.08, atol=5e-3)


def test_group_norm_takes_out_what_a_group_has_in_common():
    """Channels that move as a whole, against draws."""
    torch.manual_seed(0)
    layer = uncertain(nn.GroupNorm(2, 8))
    mean = torch.randn(1, 8, 5, dtype=torch.float64)
    common = 0.05 * torch.rand(8, dtype=torch.float64) + 0.01
    var = common[None, :, None].expand(1, 8, 5)
    out = moments.through_group_norm(layer, Gaussian(mean, var, moments.on_diagonal(common[None])))
    torch.manual_seed(1)
    moved = mean + common.sqrt()[None, :, None] * torch.randn(20_000, 8, 1, dtype=torch.float64)
    gain = layer.weight + layer.weight_var.sqrt() * torch.randn(20_000, 8, dtype=torch.float64)
    bias = layer.bias + layer.bias_var.sqrt() * torch.randn(20_000, 8, dtype=torch.float64)
    draws = nn.functional.group_norm(moved, 2) * gain[:, :, None] + bias[:, :, None]
    assert torch.allclose(out.mean[0], draws.mean(0), atol=0.03)
    covariance = torch.cov(draws.detach().mean(2).T)
    assert torch.allclose(out.common[0], covariance, atol=0.05 * float(covariance.max()))
