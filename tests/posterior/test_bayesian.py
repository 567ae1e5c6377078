"""Any module as a Gaussian over its weights: draws against mu + sigma * e by hand, and a life of saving and growing."""

import copy
import pickle
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

import mesu
from mesu.posterior.layers import Local
from mesu.posterior.noise import Noise

ESTIMATORS = ("weights", "local")


def mlp(*widths):
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


def image_net():
    return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(48, 2))


def signal_net():
    return nn.Sequential(nn.Conv1d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(9, 2))


def repeat(x, times):
    return (x,) * times


NETWORKS = {
    "mlp": (lambda: mlp(3, 5, 2), lambda: (torch.randn(4, 3),)),
    "no-bias": (lambda: nn.Linear(3, 2, bias=False), lambda: (torch.randn(4, 3),)),
    "conv2d": (image_net, lambda: (torch.randn(4, 2, 4, 4),)),
    "conv1d": (signal_net, lambda: (torch.randn(4, 2, 5),)),
    "conv3d": (lambda: nn.Conv3d(1, 2, 2), lambda: (torch.randn(4, 1, 3, 3, 3),)),
    "lstm": (lambda: nn.LSTM(3, 4, num_layers=2), lambda: (torch.randn(5, 4, 3),)),
    "lstm-batch-first": (lambda: nn.LSTM(3, 4, batch_first=True), lambda: (torch.randn(4, 5, 3),)),
    "gru": (lambda: nn.GRU(3, 4), lambda: (torch.randn(5, 4, 3),)),
    "attention": (lambda: nn.MultiheadAttention(8, 2, batch_first=True), lambda: repeat(torch.randn(4, 5, 8), 3)),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        lambda: (torch.randn(4, 5, 8),),
    ),
    "layer-norm": (lambda: nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2)), lambda: (torch.randn(4, 3),)),
    "embedding": (
        lambda: nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(6, 2)),
        lambda: (torch.randint(7, (4, 2)),),
    ),
}
VECTORISABLE = ("mlp", "conv2d", "attention", "layer-norm", "embedding")


def make(name, **settings):
    module, inputs = NETWORKS[name]
    module = module()
    return module, mesu.Bayesian(module, **{"seed": 0, **settings}), inputs()


def snapshot(net):
    return {name: value.clone() for name, value in net.state_dict().items()}


def unchanged(net, before):
    after = net.state_dict()
    return after.keys() == before.keys() and all(torch.equal(after[name], before[name]) for name in before)


def leaves(out):
    return pytree.tree_leaves(out)


def drawn_by_hand(net, module, inputs, samples, seed=0):
    """Outputs of the original module with mu + sigma * e put in its place, e from the seed, sample by sample."""
    noise, outs = Noise(seed), []
    pairs = list(net.pairs())
    for _ in range(samples):
        flat = noise.normal((sum(pair.mean.numel() for pair in pairs),), like=pairs[0].mean)
        parts = flat.split([pair.mean.numel() for pair in pairs])
        weights = {p.name: p.mean + p.std * e.view_as(p.mean) for p, e in zip(pairs, parts, strict=True)}
        outs.append(functional_call(module, weights, inputs))
    return pytree.tree_map(lambda *parts: torch.stack(parts), *outs)


# -- every kind of layer ----------------------------------------------------------------------------------------------


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


def test_transformer_draws_its_linear_layers_in_evaluation_too():
    # torch's fused inference path reads the weights itself, past the layers that draw their outputs
    net = mesu.Bayesian(
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        deterministic=["self_attn", "norm1", "norm2"],
        vectorize=False,
        seed=0,
    ).eval()
    with torch.no_grad():
        out = net(torch.randn(2, 5, 8), samples=2)
    assert not torch.equal(out[0], out[1])
    assert torch.backends.mha.get_fastpath_enabled()  # other people's networks keep it


def test_transformer_has_gradients_in_evaluation_too():
    _, net, inputs = make("transformer", estimator="weights")
    net.eval()(*inputs, samples=2).square().sum().backward()
    assert all((pair.std.grad != 0).any() for pair in net.pairs())


# -- the draws --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("name", VECTORISABLE)
def test_weights_are_mu_plus_sigma_e(name, vectorize):
    module, net, inputs = make(name, estimator="weights", vectorize=vectorize)
    module, net = module.double(), net.double()
    inputs = tuple(x.double() if x.is_floating_point() else x for x in inputs)
    wanted = drawn_by_hand(net, module, inputs, samples=4)
    for ours, theirs in zip(leaves(net(*inputs, samples=4)), leaves(wanted), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["lstm", "lstm-batch-first", "gru", "conv1d", "conv3d"])
def test_looped_layers_are_mu_plus_sigma_e(name):
    module, net, inputs = make(name, estimator="weights")
    wanted = drawn_by_hand(net, module, inputs, samples=3)
    for ours, theirs in zip(leaves(net(*inputs, samples=3)), leaves(wanted), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", VECTORISABLE)
def test_vectorised_equals_looped(name):
    _, net, inputs = make(name, estimator="weights", vectorize=True)
    net = net.double()
    inputs = tuple(x.double() if x.is_floating_point() else x for x in inputs)
    looped = copy.deepcopy(net)
    looped.vectorize = False
    for _ in range(2):  # twice: the noise has moved on alike
        pairs = zip(leaves(net(*inputs, samples=5)), leaves(looped(*inputs, samples=5)), strict=True)
        assert all(torch.allclose(a, b, rtol=1e-12, atol=1e-13) for a, b in pairs)


def test_gradients_are_those_of_the_drawn_weights():
    # eq. 12: dC/dmu = mean dC/dw, dC/dsigma = mean e dC/dw
    net = mesu.Bayesian(nn.Linear(3, 2, bias=False), estimator="weights", seed=4).double()
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1])
    net.nll(x, y, samples=6).backward()
    pair, noise = next(net.pairs()), Noise(4)
    g_mean, g_std = torch.zeros(2, 3).double(), torch.zeros(2, 3).double()
    for _ in range(6):
        e = noise.normal((6,), like=pair.mean).view(2, 3)
        w = (pair.mean + pair.std * e).detach()
        error = (x @ w.T).softmax(-1) - F.one_hot(y, 2)
        g_mean += error.T @ x / 6
        g_std += e * (error.T @ x) / 6
    assert torch.allclose(pair.mean.grad, g_mean)
    assert torch.allclose(pair.std.grad, g_std)


def test_local_linear_layers_by_hand():
    net = mesu.Bayesian(mlp(3, 5, 2), seed=1).double()
    x, noise = torch.randn(4, 3, dtype=torch.float64), Noise(1)
    w1, b1, w2, b2 = net.pairs()
    for ours in net(x, samples=1)[0], net(x):  # one sample is drawn layer by layer
        a = x
        for w, b, activation in ((w1, b1, torch.tanh), (w2, b2, lambda t: t)):
            mean = a @ w.mean.T + b.mean
            var = a**2 @ (w.std**2).T + b.std**2
            a = activation(mean + var.sqrt() * noise.normal(mean.shape, like=mean))
        assert torch.allclose(ours, a)


def test_local_convolution_by_hand():
    net = mesu.Bayesian(nn.Conv2d(2, 3, 3, stride=2, padding=1, padding_mode="circular"), seed=1).double()
    x = torch.randn(4, 2, 6, 6, dtype=torch.float64)
    w, b = net.pairs()
    padded = F.pad(x, (1, 1, 1, 1), mode="circular")
    mean = F.conv2d(padded, w.mean, b.mean, stride=2)
    var = F.conv2d(padded**2, w.std**2, b.std**2, stride=2)
    assert torch.allclose(net(x), mean + var.sqrt() * Noise(1).normal(mean.shape, like=mean))


def test_local_and_weights_have_the_same_mean_and_variance():
    x = torch.randn(1, 3, dtype=torch.float64)
    net = mesu.Bayesian(nn.Linear(3, 2), init_std=0.5, seed=0).double()
    w, b = net.pairs()
    mean, var = x @ w.mean.T + b.mean, x**2 @ (w.std**2).T + b.std**2
    with torch.no_grad():
        for estimator in ESTIMATORS:
            out = net.sample(x, samples=20_000, estimator=estimator)
            assert torch.all((out.mean(0) - mean).abs() < 5 * (var / 20_000).sqrt())
            assert torch.all((out.var(0) / var - 1).abs() < 5 * (2 / 20_000) ** 0.5)


@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("name", ["mlp", "conv1d", "conv2d", "conv3d"])
def test_rows_share_drawn_weights_but_not_local_draws(name, vectorize):
    for estimator in ESTIMATORS:
        _, net, (x,) = make(name, estimator=estimator, vectorize=vectorize)
        net = net.double()
        out = net(x[:1].double().expand(4, *x.shape[1:]), samples=6)
        same_row = torch.allclose(out[:, :1].expand_as(out), out, rtol=1e-12)
        assert same_row == (estimator == "weights")
        # every example meets six different networks, whichever the estimator
        for row in range(4):
            assert len({tuple(values) for values in out[:, row].flatten(1).tolist()}) == 6


def test_zero_input_has_a_finite_gradient():
    net = mesu.Bayesian(nn.Linear(3, 2, bias=False), seed=0)
    net(torch.zeros(4, 3), samples=2).sum().backward()
    assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in net.parameters())


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


class Branches(nn.Module):
    """Looks at its numbers, which vmap refuses."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        out = self.linear(x)
        return out if out.sum().item() > 0 else -out


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_module_that_cannot_be_vectorised_is_looped(estimator):
    x = torch.randn(4, 3)
    net = mesu.Bayesian(Branches(), estimator=estimator, seed=0)
    looped = mesu.Bayesian(Branches(), estimator=estimator, vectorize=False, seed=0)
    looped.load_state_dict(net.state_dict())
    for _ in range(2):
        assert torch.equal(net(x, samples=3), looped(x, samples=3))
    net.vectorize = True
    with pytest.raises(RuntimeError, match="vmap"):
        net(x, samples=3)


# -- what is covered --------------------------------------------------------------------------------------------------


class Tied(nn.Module):
    """A language model's usual tie: the decoder is the embedding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 3)
        self.decoder = nn.Linear(3, 7, bias=False)
        self.decoder.weight = self.embedding.weight

    def forward(self, x):
        return self.decoder(self.embedding(x))


@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_tied_weights_are_drawn_once(estimator, vectorize):
    net = mesu.Bayesian(Tied(), estimator=estimator, vectorize=vectorize, seed=3)
    (pair,) = net.pairs()
    assert not any(isinstance(m, Local) for m in net.modules())
    x, e = torch.arange(7), Noise(3).normal((21,)).view(7, 3)
    w = pair.mean + pair.std * e
    assert torch.allclose(net(x, samples=2)[0], F.embedding(x, w) @ w.T, atol=1e-6)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_two_tied_layers_are_drawn_once(estimator):
    module = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Tanh(), nn.Linear(3, 3, bias=False))
    module[2].weight = module[0].weight
    net = mesu.Bayesian(module, estimator=estimator, seed=3)
    (pair,) = net.pairs()
    w = pair.mean + pair.std * Noise(3).normal((9,)).view(3, 3)
    x = torch.randn(4, 3)
    assert torch.allclose(net(x), torch.tanh(x @ w.T) @ w.T, atol=1e-6)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_layer_used_in_two_places_is_drawn_once(estimator):
    layer = nn.Linear(3, 3, bias=False)
    net = mesu.Bayesian(nn.Sequential(layer, nn.Tanh(), layer), estimator=estimator, seed=3)
    (pair,) = net.pairs()
    w = pair.mean + pair.std * Noise(3).normal((9,)).view(3, 3)
    x = torch.randn(4, 3)
    assert torch.allclose(net(x), torch.tanh(x @ w.T) @ w.T, atol=1e-6)


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


def test_other_refusals_of_the_constructor():
    with pytest.raises(ValueError, match="already"):
        mesu.Bayesian(mesu.Bayesian(nn.Linear(2, 2)))
    with pytest.raises(ValueError, match="'weights' or 'local', got 'locl'"):
        mesu.Bayesian(nn.Linear(2, 2), estimator="locl")
    with pytest.raises(ValueError, match="'refuse' or 'freeze', got 'keep'"):
        mesu.Bayesian(nn.Linear(2, 2), batchnorm="keep")


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


# -- batch normalisation ----------------------------------------------------------------------------------------------


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


# -- saving and copying -----------------------------------------------------------------------------------------------


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


# -- growing ----------------------------------------------------------------------------------------------------------


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


# -- when something goes wrong inside ---------------------------------------------------------------------------------


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


# -- what is not a network, a tensor or a score --------------------------------------------------------------------------


def test_what_is_no_module_is_refused():
    with pytest.raises(TypeError, match=r"module must be an nn\.Module, got function"):
        mesu.Bayesian(lambda x: x)


@pytest.mark.parametrize(("name", "value"), [("init_std", "0.1"), ("noise_std", "a"), ("init_scale", None)])
def test_numbers_that_are_none_are_named(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a number, got {value!r}"):
        mesu.Bayesian(nn.Linear(2, 2), likelihood="gaussian", **{name: value})


@pytest.mark.parametrize("seed", ["a", 1.5, -1])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(ValueError, match="seed must be a whole number between 0"):
        mesu.Bayesian(nn.Linear(2, 2), seed=seed)


def test_inputs_and_targets_must_be_tensors():
    net = mesu.Bayesian(nn.Linear(2, 2), seed=0)
    with pytest.raises(TypeError, match="inputs must be a tensor, got list"):
        net.nll([[0.0, 1.0]], torch.tensor([0]))
    with pytest.raises(TypeError, match="targets must be a tensor, got list"):
        net.nll(torch.zeros(1, 2), [0])


def test_a_network_that_gives_a_tuple_is_told_what_the_cost_wants():
    net = mesu.Bayesian(nn.LSTM(2, 3, batch_first=True), seed=0)
    before = net.noise.state
    with pytest.raises(TypeError, match="gives a tuple, and the cost wants one tensor"):
        net.nll(torch.zeros(4, 5, 2), torch.zeros(4, dtype=torch.long))
    assert torch.equal(net.noise.state, before)


def test_labels_of_a_sequence_must_lie_as_torch_wants_them():
    net = mesu.Bayesian(nn.Linear(2, 3), seed=0)  # [batch, time, classes]
    with pytest.raises(
        ValueError, match=r"labels of shape \(4, 7\) do not fit outputs of shape \(4, 7, 3\): classes are on"
    ):
        net.nll(torch.zeros(4, 7, 2), torch.zeros(4, 7, dtype=torch.long))
    with pytest.raises(ValueError, match=r"labels of shape \(4, 1\) do not fit outputs of shape \(4, 3\)"):
        net.nll(torch.zeros(4, 2), torch.zeros(4, 1, dtype=torch.long))


def test_a_head_of_one_is_told_that_a_choice_of_two_needs_two():
    net = mesu.Bayesian(nn.Linear(2, 1), seed=0)
    with pytest.raises(ValueError, match="an output for every class, and two for a choice of two"):
        net.nll(torch.zeros(4, 2), torch.ones(4, dtype=torch.long))


# -- learners -----------------------------------------------------------------------------------------------------------


def test_a_learner_refuses_the_optimiser_of_another_network():
    net, other = (mesu.Bayesian(nn.Linear(2, 2), seed=0) for _ in range(2))
    with pytest.raises(ValueError, match="moves no parameter of this network"):
        mesu.BayesianLearner(net, mesu.MESU(other, memory=100))
    plain, stranger = nn.Linear(2, 2), nn.Linear(2, 2)
    with pytest.raises(ValueError, match="moves no parameter of this network"):
        mesu.WeightLearner(plain, mesu.optim.SGD(stranger.parameters(), 0.1))


@pytest.mark.parametrize("settings", [{"samples": 0}, {"batch": 0}, {"samples": 1.5}, {"batch": "8"}])
def test_a_learner_counts_in_whole_numbers(settings):
    net = mesu.Bayesian(nn.Linear(2, 2), seed=0)
    ((name, value),) = settings.items()
    with pytest.raises(ValueError, match=f"{name} must be a whole number, 1 or more, got {value!r}"):
        mesu.BayesianLearner(net, mesu.MESU(net, memory=100), **settings)
