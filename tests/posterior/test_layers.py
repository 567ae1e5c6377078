"""Layers that draw their outputs: the backward pass by hand against autograd's, in every way it can be asked for."""

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint

import mesu
from mesu.posterior import layers
from mesu.posterior.noise import Noise

SHAPES = {
    nn.Linear: ((3, 4), (6, 3)),
    nn.Conv1d: ((3, 4, 2), (5, 3, 7)),
    nn.Conv2d: ((3, 4, 2), (5, 3, 7, 6)),
    nn.Conv3d: ((3, 4, 2), (2, 3, 4, 5, 4)),
}


@pytest.fixture(autouse=True)
def always_lean(monkeypatch):
    """Small layers take the way of large ones."""
    monkeypatch.setattr(layers, "LEAN", 0)


def make(kind=nn.Conv2d, dtype=torch.float64, **settings):
    """A layer that draws, its sigma random, and an input that wants a slope."""
    torch.manual_seed(3)
    arguments, shape = SHAPES[kind]
    net = mesu.Bayesian(kind(*arguments, dtype=dtype, **settings), seed=0, estimator="local")
    layer = net.module
    with torch.no_grad():
        layer.weight_std.copy_(torch.rand_like(layer.weight_std) + 0.1)
    return layer, torch.randn(shape, dtype=dtype, requires_grad=True)


def lean(layer, x, seed=7):
    """The layer's draw, as it makes it."""
    inner = getattr(layer, "_orig_mod", layer)  # of a compiled layer, the layer
    with layers.drawing_with([inner], Noise(seed)):
        return layer(x)


def plain(layer, x, seed=7):
    """The same draw, differentiated by autograd."""
    inputs = (layer.weight, layer.weight_std, layer.bias, getattr(layer, "bias_std", None))
    mean, var = layers.moments(layer.linear, x, *inputs)
    return layers.draw(mean, var, layers.normal(Noise(seed), mean))


def leaves(layer, x):
    """Everything that wants a slope."""
    return [each for each in (x, *layer.parameters()) if each.requires_grad]


def same_slopes(layer, x):
    """Whether both ways agree in value and slopes."""
    ours, theirs = lean(layer, x), plain(layer, x)
    assert type(ours.grad_fn).__name__ == "LeanDrawBackward"
    torch.testing.assert_close(ours, theirs)
    grad = torch.randn_like(ours)
    mine = torch.autograd.grad(ours, leaves(layer, x), grad)
    for a, b in zip(mine, torch.autograd.grad(theirs, leaves(layer, x), grad), strict=True):
        torch.testing.assert_close(a, b)
        assert a.abs().max() > 0


@pytest.mark.parametrize("kind", SHAPES)
def test_slopes_by_hand_are_those_of_autograd(kind):
    same_slopes(*make(kind))


@pytest.mark.parametrize(
    "settings", [{"padding": "same", "dilation": 2}, {"stride": 2}, {"padding": 1, "padding_mode": "circular"}]
)
def test_any_convolution(settings):
    same_slopes(*make(**settings))


def test_without_a_bias():
    same_slopes(*make(bias=False))


def test_a_linear_layer_along_a_sequence():
    layer, _ = make(nn.Linear)
    same_slopes(layer, torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True))


def test_a_deterministic_bias():
    torch.manual_seed(0)
    net = mesu.Bayesian(nn.Linear(3, 4, dtype=torch.float64), deterministic="bias", seed=0, estimator="local")
    same_slopes(net.module, torch.randn(6, 3, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("frozen", ["x", "weight", "weight_std", "bias", "bias_std"])
def test_what_wants_no_slope_gets_none(frozen):
    layer, x = make()
    (x if frozen == "x" else getattr(layer, frozen)).requires_grad_(False)
    same_slopes(layer, x)


def test_channels_last_stays_so_and_agrees():
    layer, x = make()
    layer.to(memory_format=torch.channels_last)
    x = x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    assert lean(layer, x).is_contiguous(memory_format=torch.channels_last)
    same_slopes(layer, x)


def test_normals_lie_as_the_outputs_do():
    out = torch.zeros(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    assert layers.normal(Noise(0), out).stride() == out.stride()
    many = layers.normal(Noise(0), torch.zeros(20, 30, 20, 20).contiguous(memory_format=torch.channels_last))
    assert abs(float(many.mean())) < 0.01
    assert float(many.std()) == pytest.approx(1.0, abs=0.01)


def test_a_second_backward_pass_finds_the_same_slopes():
    layer, x = make()
    out = lean(layer, x)
    grad = torch.randn_like(out)
    first = torch.autograd.grad(out, leaves(layer, x), grad, retain_graph=True)
    second = torch.autograd.grad(out, leaves(layer, x), grad, retain_graph=True)
    third = torch.autograd.grad(out, leaves(layer, x), grad)
    for a, b, c in zip(first, second, third, strict=True):
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(a, c)


def test_a_second_backward_pass_is_refused_as_torch_does():
    layer, x = make()
    out = lean(layer, x).sum()
    out.backward()
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def test_slopes_of_slopes():
    layer, x = make()

    def curvature(out):
        slopes = torch.autograd.grad(out.tanh().sum(), leaves(layer, x), create_graph=True)
        return torch.autograd.grad(sum(each.square().sum() for each in slopes), leaves(layer, x))

    for a, b in zip(curvature(lean(layer, x)), curvature(plain(layer, x)), strict=True):
        torch.testing.assert_close(a, b)


def test_an_all_zero_input_has_zero_slopes():
    layer, x = make(dtype=torch.float32, bias=False)
    x = torch.zeros_like(x, requires_grad=True)
    out = lean(layer, x)
    assert (out.abs() < 1e-12).all()
    for slope in torch.autograd.grad(out.sum(), [layer.weight_std, layer.weight]):
        assert (slope == 0).all()
    assert torch.isfinite(torch.autograd.grad(lean(layer, x).sum(), x)[0]).all()


def test_an_input_changed_after_the_draw_is_noticed():
    layer, x = make()
    inner = x * 1
    out = lean(layer, inner)
    inner.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_the_output_may_be_changed_in_place():
    layer, x = make()
    ours = torch.autograd.grad(torch.relu_(lean(layer, x)).sum(), leaves(layer, x))
    theirs = torch.autograd.grad(torch.relu(plain(layer, x)).sum(), leaves(layer, x))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_no_slopes_wanted_draws_the_same():
    layer, x = make()
    with torch.no_grad():
        quiet = lean(layer, x)
    assert not quiet.requires_grad
    torch.testing.assert_close(quiet, lean(layer, x).detach())


@pytest.mark.filterwarnings(
    "ignore:`torch.jit:DeprecationWarning"
)  # torch's own, when it first differentiates forwards
def test_functional_transforms_still_pass():
    layer, x = make()

    def cost(std):
        with layers.drawing_with([layer], Noise(7)):
            return torch.func.functional_call(layer, {"weight_std": std}, (x.detach(),)).sum()

    by_transform = torch.func.grad(cost)(layer.weight_std.detach())
    by_hand = torch.autograd.grad(lean(layer, x.detach()).sum(), layer.weight_std)[0]
    torch.testing.assert_close(by_transform, by_hand)
    ones = torch.ones_like(layer.weight_std)
    _, along = torch.func.jvp(cost, (layer.weight_std.detach(),), (ones,))
    torch.testing.assert_close(along, by_hand.sum())
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(layer.weight_std.detach(), ones)
        pushed = torch.autograd.forward_ad.unpack_dual(cost(dual)).tangent
    torch.testing.assert_close(pushed, by_hand.sum())


def test_outputs_are_not_kept_for_the_backward_pass():
    layer, x = make()
    made = []
    linear = layer.linear

    def recording(*arguments):
        out = linear(*arguments)
        made.append(StorageWeakRef(out.untyped_storage()))
        return out

    layer.linear = recording
    out = torch.relu(lean(layer, x))
    assert len(made) == 2
    assert all(each.expired() for each in made)
    torch.testing.assert_close(out, torch.relu(plain(layer, x)))


def test_the_first_pass_is_the_quick_one_and_a_second_is_not(monkeypatch):
    layer, x = make()

    def refuse(*_):
        raise NotImplementedError("slow")

    monkeypatch.setattr(layers, "_gradients_through_draw", refuse)
    out = lean(layer, x).sum()
    out.backward(retain_graph=True)
    with pytest.raises(NotImplementedError, match="slow"):
        out.backward()


class Shifted(layers.LocalLinear):
    """A layer whose variances a fast algorithm has rounded, some to below zero."""

    def linear(self, x, weight, bias):
        out = super().linear(x, weight, bias)
        return out - 0.05 if (weight >= 0).all() else out


@pytest.mark.parametrize("again", [False, True])
def test_a_variance_rounded_below_zero_has_no_slope(again):
    layer, _ = make(nn.Linear, bias=False)
    layer.__class__ = Shifted
    x = torch.linspace(0.0, 0.5, 30, dtype=torch.float64).reshape(10, 3).requires_grad_()
    with torch.no_grad():
        assert 0 < (layers.moments(layer.linear, x, layer.weight, layer.weight_std, None, None)[1] < 0).sum() < 40
    out = lean(layer, x)
    torch.testing.assert_close(out, plain(layer, x))
    if again:
        out.sum().backward(retain_graph=True)
    ours = torch.autograd.grad(out.sum(), leaves(layer, x))
    for a, b in zip(ours, torch.autograd.grad(plain(layer, x).sum(), leaves(layer, x)), strict=True):
        torch.testing.assert_close(a, b)
        assert a.abs().max() < 100


@pytest.mark.parametrize("way", [lean, plain])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nothing_in_has_no_slope(way, dtype):
    layer, x = make(dtype=dtype, bias=False)
    out = way(layer, torch.zeros_like(x, requires_grad=True))
    for slope in torch.autograd.grad(out.sum(), [layer.weight, layer.weight_std]):
        assert (slope == 0).all()


class Twice(nn.Module):
    """One layer in two places: the second's input depends on the same weights."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))


def test_a_layer_called_twice_has_the_same_slopes_in_every_pass():
    torch.manual_seed(0)
    net = mesu.Bayesian(Twice(nn.Linear(4, 4)), seed=0, estimator="local").double()
    x = torch.randn(8, 4, dtype=torch.float64)
    weights = list(net.parameters())

    def out():
        return net.sample(x, samples=1, noise=Noise(1)).tanh().sum()

    with torch.autograd.graph.save_on_cpu():  # takes the plain way
        by_torch = torch.autograd.grad(out(), weights)
    quick = torch.autograd.grad(out(), weights)
    twice_differentiable = torch.autograd.grad(out(), weights, create_graph=True)
    kept = out()
    torch.autograd.grad(kept, weights, retain_graph=True)
    second = torch.autograd.grad(kept, weights)
    for way in (quick, twice_differentiable, second):
        for a, b in zip(way, by_torch, strict=True):
            torch.testing.assert_close(a, b)


def test_with_and_without_slopes_the_draw_is_the_same_in_any_layout():
    layer, x = make()
    layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)  # and sigma is not
    with torch.no_grad():
        quiet = lean(layer, x)
    torch.testing.assert_close(quiet, lean(layer, x).detach())


@pytest.mark.parametrize("shape", [(3, 4, 5), (3, 4, 5, 6), (2, 3, 4, 5, 6)])
def test_normals_follow_layouts_of_any_rank(shape):
    last = torch.zeros(shape).movedim(1, -1).contiguous().movedim(-1, 1)
    assert layers.normal(Noise(0), last).stride() == last.stride()
    assert layers.normal(Noise(0), torch.zeros(shape)).is_contiguous()
    odd = torch.zeros(shape).transpose(0, -1).contiguous().transpose(0, -1)
    assert layers.normal(Noise(0), odd).shape == odd.shape


def looked_on():
    """Ways in which somebody has a say in what autograd does."""
    return {
        "no slopes": torch.no_grad(),
        "autocast": torch.autocast("cpu", dtype=torch.bfloat16),
        "offloading": torch.autograd.graph.save_on_cpu(),
        "forward mode": torch.autograd.forward_ad.dual_level(),
    }


@pytest.mark.parametrize("name", looked_on())
def test_who_looks_on_gets_operations_that_they_know(monkeypatch, name):
    layer, x = make(dtype=torch.float32)
    monkeypatch.setattr(layers, "LeanDraw", None)
    with looked_on()[name]:
        lean(layer, x)
    with pytest.raises(AttributeError):
        lean(layer, x)


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # the compiler's own, where it breaks off to draw
def test_a_compiled_layer_draws_the_same(monkeypatch):
    layer, x = make(dtype=torch.float32)
    torch.compiler.reset()
    monkeypatch.setattr(layers, "LeanDraw", None)
    torch.testing.assert_close(lean(torch.compile(layer, backend="eager"), x), plain(layer, x))


def test_checkpoints_recompute_what_was_drawn():
    layer, x = make()
    ours = torch.autograd.grad(checkpoint(lambda z: lean(layer, z).sum(), x, use_reentrant=False), leaves(layer, x))
    for a, b in zip(ours, torch.autograd.grad(plain(layer, x).sum(), leaves(layer, x)), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(("numbers", "name"), [(65_535, "AddcmulBackward0"), (65_538, "LeanDrawBackward")])
def test_small_inputs_take_the_shorter_way(monkeypatch, numbers, name):
    monkeypatch.undo()
    layer, _ = make(nn.Linear)
    assert layers.LEAN == 65_536
    assert type(lean(layer, torch.zeros(numbers // 3, 3, dtype=torch.float64)).grad_fn).__name__ == name


def test_an_input_smaller_than_the_weights_takes_the_shorter_way():
    layer, _ = make(nn.Linear)  # of 12 weights
    for rows, name in ((3, "AddcmulBackward0"), (4, "LeanDrawBackward")):
        assert type(lean(layer, torch.zeros(rows, 3, dtype=torch.float64)).grad_fn).__name__ == name
