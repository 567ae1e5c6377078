"""Predictions without draws: exact where they can be, near to draws elsewhere, refused by name, and exported."""

import copy
import importlib.util

import pytest
import torch
from torch import nn

import mesu
from mesu.posterior import closed_form, moments
from mesu.posterior.moments import Gaussian
from mesu.posterior.noise import Noise

FIELDS = ("probs", "total", "aleatoric", "epistemic")


def small(**settings):
    torch.manual_seed(0)
    return mesu.Bayesian(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)), seed=0, **settings)


def image_net():
    torch.manual_seed(0)
    features = (nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3))
    rest = (nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(54, 8), nn.ReLU(), nn.Linear(8, 3))
    return mesu.Bayesian(nn.Sequential(*features, *rest), seed=0)


class Residual(nn.Module):
    """A forward of one's own: functions, methods, sizes, a sum, a parameter."""

    def __init__(self):
        super().__init__()
        self.first, self.inner, self.head = (
            nn.Conv2d(1, 4, 3, padding=1),
            nn.Conv2d(4, 4, 3, padding=1),
            nn.Linear(4, 3),
        )
        self.shift = nn.Parameter(torch.randn(4, 1, 1))

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = x + self.inner(x).relu() * 0.5
        return self.head(nn.functional.adaptive_avg_pool2d(x, 1).view(x.size(0), -1))


class Given(nn.Module):
    """A network that does something once with what its layer gives."""

    def __init__(self, do, layer=None):
        super().__init__()
        self.layer, self.do = layer or nn.Linear(4, 4), do

    def forward(self, x):
        return self.do(self.layer(x))


def gaussian_of(net, x):
    """The closed form's outputs as a Gaussian: mean, covariance."""
    p = mesu.predictor(net)
    out = closed_form.run(p, p._steps, p._uncertain, x)
    return out, closed_form.covariance(out)


@pytest.mark.parametrize("bias", [True, False])
def test_one_linear_layer_is_exact(bias):
    """The outputs of a linear network are Gaussian: x mu, and x^2 sigma^2 of what predictions draw."""
    net = mesu.Bayesian(nn.Linear(4, 3, bias=bias).double(), seed=0, likelihood="gaussian", noise_std=0.5)
    x = torch.randn(6, 4, dtype=torch.float64)
    pairs = {pair.name: pair for pair in net.pairs()}
    precision = {name: (pair.narrowing - 1) / pair.start**2 for name, pair in pairs.items()}
    square = {name: 1 / (1 / pair.std.detach() ** 2 + precision[name]) for name, pair in pairs.items()}
    var = x.square() @ square["weight"].T + (square["bias"] if bias else 0)
    p = mesu.predict(net, x, samples=0)
    assert torch.allclose(p.mean, net.at_mean(x), atol=1e-6)
    assert torch.allclose(p.epistemic, var, rtol=1e-6)
    assert torch.allclose(p.total, var + 0.25, rtol=1e-6)
    assert torch.allclose(p.aleatoric, torch.full_like(var, 0.25))


def test_two_linear_layers_are_exact_with_their_covariances():
    """Outputs share hidden units: W V W^T beside the noise of the last layer, here by the algebra of products."""
    net = mesu.Bayesian(nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)).double(), seed=0, narrowing=1.0)
    x = torch.randn(6, 4, dtype=torch.float64)
    out, covariance = gaussian_of(net, x)
    first, second = net.module
    with torch.no_grad():
        var = x.square() @ first.weight_std.square().T + first.bias_std.square()
        mean = first(x)
        own = (mean.square() + var) @ second.weight_std.square().T + second.bias_std.square()
        shared = torch.einsum("ci,bi,di->bcd", second.weight, var, second.weight)
    assert torch.allclose(covariance, shared + torch.diag_embed(own), rtol=1e-6)
    assert torch.allclose(out.var, torch.diagonal(covariance, dim1=1, dim2=2), rtol=1e-6)


def test_the_fixed_outputs_have_the_moments_that_they_stand_for():
    torch.manual_seed(0)
    half = torch.randn(5, 7, 7, dtype=torch.float64)
    covariance = half @ half.transpose(1, 2)
    factor = closed_form.root(covariance)
    assert torch.allclose(factor @ factor.transpose(1, 2), covariance, rtol=1e-9)
    assert torch.equal(factor, factor.tril())
    weight = nn.Linear(4, 7).double()
    weight.weight_var = torch.rand(7, 4, dtype=torch.float64)
    hidden = Gaussian(torch.randn(5, 4, dtype=torch.float64), torch.rand(5, 4, dtype=torch.float64))
    out = moments.through_linear(weight, hidden)
    z = closed_form.outputs(out)
    assert torch.allclose(z.mean(0), out.mean)
    away = z - out.mean
    assert torch.allclose(torch.einsum("sbi,sbj->bij", away, away) / len(z), closed_form.covariance(out), atol=1e-9)


def test_a_covariance_without_full_rank_has_a_finite_root():
    v = torch.randn(3, 5, 1)
    factor = closed_form.root(v @ v.transpose(1, 2))
    assert torch.allclose(factor @ factor.transpose(1, 2), v @ v.transpose(1, 2), atol=1e-4)
    assert torch.isfinite(closed_form.root(torch.zeros(2, 4, 4))).all()


@pytest.mark.parametrize("likelihood", ["categorical", "bernoulli"])
def test_probabilities_of_gaussian_scores_against_many_draws(likelihood):
    net = mesu.Bayesian(nn.Linear(4, 3), seed=0, init_std=0.4, likelihood=likelihood)
    x = torch.randn(8, 4)
    closed, draws = mesu.predict(net, x, samples=0), mesu.predict(net, x, samples=4000)
    assert torch.allclose(closed.probs, draws.probs, atol=0.02)
    for field in FIELDS[1:]:
        assert torch.allclose(getattr(closed, field), getattr(draws, field), atol=0.03), field


@pytest.mark.parametrize("make", [small, image_net, lambda: mesu.Bayesian(Residual(), seed=0)])
def test_networks_are_near_to_many_draws(make):
    net = make()
    torch.manual_seed(1)
    x = (
        torch.randn(12, 4)
        if isinstance(net.module, nn.Sequential) and len(net.module) == 3
        else torch.rand(12, 1, 12, 12)
    )
    if len(list(net.module.children())) > 4:
        x = torch.rand(12, 1, 16, 16)
    out, _ = gaussian_of(net, x)
    draws = net.sample(x, samples=500, noise=Noise(3), estimator="weights").detach()
    assert torch.allclose(out.mean, draws.mean(0), atol=0.15 * float(draws.std(0).mean()) + 0.02)
    ratio = (out.var / draws.var(0)).sqrt()
    assert 0.6 < float(ratio.min()) < float(ratio.max()) < 1.6
    many = 3000 if make is small else 300
    closed, averaged = mesu.predict(net, x, samples=0), mesu.predict(net, x, samples=many)
    assert torch.allclose(closed.probs, averaged.probs, atol=0.07)
    assert torch.allclose(closed.total, averaged.total, atol=0.07)


def test_nothing_is_drawn_and_nothing_changes():
    net, x = small(), torch.randn(6, 4)
    net.train()
    twin, state = copy.deepcopy(net), torch.get_rng_state()
    first, again = mesu.predict(net, x, samples=0), mesu.predict(net, x, samples=0, seed=5)
    assert all(torch.equal(getattr(first, field), getattr(again, field)) for field in FIELDS)
    assert torch.equal(torch.get_rng_state(), state)
    assert net.training
    for name, value in net.state_dict().items():
        assert torch.equal(value, twin.state_dict()[name]), name


@pytest.mark.parametrize("make", [small, image_net])
def test_a_row_does_not_depend_on_the_others(make):
    net = make().double()
    x = torch.randn(7, *((4,) if make is small else (1, 16, 16)), dtype=torch.float64)
    whole = mesu.predict(net, x, samples=0)
    for part in (mesu.predict(net, x, samples=0, chunk=3), mesu.predict(net, x.flip(0), samples=0)):
        flipped = part if part.probs.allclose(whole.probs) else None
        for field in FIELDS:
            value = getattr(part, field)
            assert torch.allclose(value if flipped else value.flip(0), getattr(whole, field), rtol=1e-9, atol=1e-12)
    alone = mesu.predict(net, x[3:4], samples=0)
    assert torch.allclose(alone.total, whole.total[3:4], rtol=1e-9)


def test_sigma_that_draws_have_is_used_and_not_the_believed_one():
    wide, narrow = small(narrowing=1.0), small(narrowing=10.0)
    x = torch.randn(6, 4)
    assert gaussian_of(wide, x)[0].var.mean() > 5 * gaussian_of(narrow, x)[0].var.mean()


def test_deterministic_parts_add_nothing():
    net = small(deterministic=["2"])
    x = torch.randn(6, 4)
    all_of_it = gaussian_of(small(), x)[0].var
    assert bool((gaussian_of(net, x)[0].var < all_of_it).all())
    certain = mesu.Bayesian(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), deterministic=["1"], seed=0, init_std=1e-8)
    assert mesu.predict(certain, x, samples=0).epistemic.max() < 1e-5


def test_a_plain_network_has_no_epistemic_uncertainty():
    p = mesu.predict(nn.Linear(4, 3), torch.randn(5, 4), samples=0)
    assert p.epistemic.abs().max() == 0


def test_a_relu_and_a_maximum_change_places():
    net = image_net()
    steps = mesu.predictor(net)._steps
    targets = [step.target for step in steps if step.kind == "call_module"]
    assert targets.index("module.3") < targets.index("module.2")
    x = torch.randn(3, 1, 16, 16)
    module = net.mean_network().eval()
    assert torch.equal(module[3](module[2](x)), module[2](module[3](x)))


@pytest.mark.parametrize(
    ("module", "named"),
    [
        (lambda: nn.Sequential(nn.LSTM(4, 4)), "LSTM"),
        (lambda: nn.Sequential(nn.Linear(4, 4), nn.Softmax(1)), r"'1' \(Softmax\)"),
        (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), "TransformerEncoderLayer"),
        (lambda: Given(torch.exp), "'exp'"),
        (lambda: Given(lambda a: a * a), "product of two"),
        (lambda: Given(lambda a: 1 / a), "division"),
        (lambda: Given(lambda a: a.mean(1)), "axes 1"),
        (lambda: Given(lambda a: a if a.sum() > 0 else -a), "cannot be followed"),
        (lambda: Given(lambda a: a.mT), "attribute 'mT'"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(module, named):
    net = mesu.Bayesian(module(), seed=0)
    x = torch.randn(2, 3, 4) if "Encoder" in named or named == "LSTM" else torch.randn(3, 4)
    with pytest.raises(TypeError, match=named) as error:
        mesu.predict(net, x, samples=0)
    assert "samples=100" in str(error.value)


def test_weights_that_are_used_twice_are_refused():
    layer = nn.Linear(4, 4)
    with pytest.raises(TypeError, match="'0' is called 2 times"):
        mesu.predictor(mesu.Bayesian(nn.Sequential(layer, nn.ReLU(), layer), seed=0))
    tied = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    tied[2].weight = tied[0].weight
    with pytest.raises(TypeError, match=r"'0.weight' is shared by 2"):
        mesu.predictor(mesu.Bayesian(tied, seed=0))


def test_hooks_are_refused():
    net = small()
    net.module[0].register_forward_hook(lambda module, args, out: 2 * out)
    with pytest.raises(TypeError, match="'0' has hooks"):
        mesu.predictor(net)


def test_a_subclass_with_a_forward_of_its_own_is_not_taken_for_its_parent():
    class Twice(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    with pytest.raises(TypeError, match="linear"):
        mesu.predict(mesu.Bayesian(nn.Sequential(Twice(4, 3)), seed=0), torch.randn(2, 4), samples=0)


def test_a_rule_of_ones_own():
    class Double(nn.Module):
        def forward(self, x):
            return torch.exp(torch.log(x)) * 2

    net = mesu.Bayesian(nn.Sequential(nn.Linear(4, 3), Double()), seed=0, likelihood="gaussian")
    plain = mesu.Bayesian(nn.Sequential(net.mean_network()[0]), seed=0, likelihood="gaussian")
    x = torch.randn(5, 4)
    with pytest.raises(TypeError, match="'log'"):
        mesu.predict(net, x, samples=0)
    moments.rule(Double)(lambda layer, a: Gaussian(2 * a.mean, 4 * a.var))
    try:
        p, q = mesu.predict(net, x, samples=0), mesu.predict(plain, x, samples=0)
    finally:
        del moments.RULES[Double]
    assert torch.allclose(p.mean, 2 * q.mean, atol=1e-5)
    assert torch.allclose(p.epistemic, 4 * q.epistemic, rtol=1e-4)


def test_a_head_chosen_by_name():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 5)})

        def forward(self, x, head="a"):
            return self.heads[head](x)

    net = mesu.Bayesian(Heads(), seed=0)
    assert mesu.predict(net, torch.randn(3, 4), samples=0, head="b").probs.shape == (3, 5)
    assert mesu.predictor(net)(torch.randn(3, 4))[0].shape == (3, 2)
    with pytest.raises(TypeError, match="tensor in 'head'"):
        mesu.predictor(net, head=torch.zeros(1))


# -- as a module --------------------------------------------------------------------------------------------------------


def test_a_predictor_is_buffers_alone_and_gives_what_predict_gives():
    net, x = small(), torch.randn(6, 4)
    module = mesu.predictor(net)
    assert list(module.parameters()) == []
    p = mesu.predict(net, x, samples=0)
    for value, field in zip(module(x), FIELDS, strict=True):
        assert torch.equal(value, getattr(p, field))
    assert not module.train().training
    assert torch.equal(copy.deepcopy(module)(x)[1], p.total)
    module.double()(x.double())


def test_a_predictor_is_a_copy():
    net, x = small(), torch.randn(6, 4)
    module = mesu.predictor(net)
    before = module(x)[0]
    with torch.no_grad():
        next(net.pairs()).mean.add_(1)
    assert torch.equal(module(x)[0], before)


def test_its_slopes_are_those_of_finite_differences():
    module = mesu.predictor(small()).double()
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    for i in (1, 2, 3):
        assert torch.autograd.gradcheck(lambda x, i=i: module(x)[i], x)


def exported(module, x):
    rows = {0: torch.export.Dim("rows", min=2)}
    return torch.export.export(module, (x,), dynamic_shapes=(rows,))


@pytest.mark.parametrize("make", [small, image_net])
@pytest.mark.parametrize("how", ["export", "trace"])
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_exported_it_gives_the_same_for_any_number_of_rows(make, how):
    module = mesu.predictor(make())
    shape = (4,) if make is small else (1, 16, 16)
    x, other = torch.randn(5, *shape), torch.randn(9, *shape)
    run = exported(module, x).module() if how == "export" else torch.jit.trace(module, x)
    for here, there in zip(module(other), run(other), strict=True):
        assert torch.allclose(here, there, atol=1e-5)


ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime", "onnxscript"))


@pytest.mark.skipif(not ONNX, reason="onnx, onnxruntime and onnxscript are not installed: the ONNX file is not checked")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [small, image_net])
def test_onnx_gives_the_same(make, tmp_path):
    import onnxruntime

    module = mesu.predictor(make())
    x = torch.randn(5, *((4,) if make is small else (1, 16, 16)))
    rows = {0: torch.export.Dim("rows", min=2)}
    torch.onnx.export(module, (x,), tmp_path / "net.onnx", dynamic_shapes=(rows,), dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    other = torch.randn(9, *x.shape[1:])
    given = session.run(None, {session.get_inputs()[0].name: other.numpy()})
    for here, there in zip(module(other), given, strict=True):
        assert torch.allclose(here, torch.from_numpy(there), atol=1e-5)


class Overwrites(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.a, self.r, self.b, self.kind = nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2), kind

    def forward(self, x):
        h = self.a(x)
        if self.kind == "module":
            self.r(h)
            return self.b(h)
        if self.kind == "residual":
            return self.b(self.r(h) + h)
        if self.kind == "function":
            return self.b(torch.relu_(h) + h)
        return self.b(torch.relu_(h.flatten(1)) + h)


@pytest.mark.parametrize("kind", ["module", "residual", "function", "view"])
def test_what_is_changed_in_place_and_read_again_is_refused(kind):
    with pytest.raises(TypeError, match="in place"):
        mesu.predict(mesu.Bayesian(Overwrites(kind), seed=0), torch.randn(3, 4), samples=0)


def test_what_is_changed_in_place_and_not_read_again_is_followed():
    one, other = (
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=inplace), nn.Linear(8, 2)) for inplace in (True, False)
    )
    other.load_state_dict(one.state_dict())
    x = torch.randn(3, 4)
    found = [mesu.predict(mesu.Bayesian(net, seed=0), x, samples=0).probs for net in (one, other)]
    torch.testing.assert_close(*found)
