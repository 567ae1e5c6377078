"""Predictions against averages written out: the split of uncertainty, and that predicting changes nothing."""

import copy
from math import log

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call

import mesu
from mesu.posterior.noise import Noise
from mesu.prediction import Prediction, RegressionPrediction

FIELDS = ("probs", "total", "aleatoric", "epistemic")


def net_with_dropout(**settings):
    module = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 3))
    return mesu.Bayesian(module, init_std=0.5, seed=0, **settings)


def image_net(**settings):
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3))
    return mesu.Bayesian(module, init_std=0.5, seed=0, **settings)


def entropy(*p):
    return -sum(q * log(q) for q in p)


def test_split_by_hand():
    p = torch.tensor([[[0.9, 0.1], [0.5, 0.5]], [[0.1, 0.9], [0.5, 0.5]]], dtype=torch.float64)
    out = Prediction.from_scores(p.log())
    assert torch.allclose(out.probs, torch.full((2, 2), 0.5, dtype=torch.float64))
    assert out.total.tolist() == pytest.approx([log(2), log(2)])
    assert out.aleatoric.tolist() == pytest.approx([entropy(0.9, 0.1), log(2)])
    assert out.epistemic.tolist() == pytest.approx([log(2) - entropy(0.9, 0.1), 0.0], abs=1e-12)


def test_certain_but_disagreeing_draws_are_all_epistemic():
    scores = torch.tensor([[[1e4, -1e4]], [[-1e4, 1e4]]])
    out = Prediction.from_scores(scores)
    assert out.aleatoric.item() == 0
    assert out.epistemic.item() == pytest.approx(log(2))


def test_draws_that_agree_are_not_epistemic_past_rounding():
    # the two entropies, worked out differently, differ in their last digits, either way
    scores = 3 * torch.randn(1, 1000, 5)
    out = Prediction.from_scores(scores.expand(7, -1, -1))
    assert torch.all(out.epistemic >= 0)
    assert torch.all(out.epistemic < 1e-5)


@pytest.mark.parametrize("impossible", [-3e38, -float("inf")])
def test_impossible_classes_add_no_uncertainty(impossible):
    out = Prediction.from_scores(torch.tensor([[[3e38, impossible]], [[3e38, impossible]]]))
    assert out.probs.tolist() == [[1.0, 0.0]]
    assert (out.total.item(), out.aleatoric.item(), out.epistemic.item()) == (0, 0, 0)


def test_labels_are_the_most_probable():
    assert Prediction.from_scores(torch.tensor([[[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]]])).labels.tolist() == [1, 0]


SCORES = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_uncertainty_is_never_negative_or_not_a_number(samples, classes, data):
    scores = data.draw(st.lists(SCORES, min_size=samples * classes, max_size=samples * classes))
    out = Prediction.from_scores(torch.tensor(scores).view(samples, 1, classes))
    for field in FIELDS:
        assert torch.isfinite(getattr(out, field)).all()
    assert out.epistemic.item() >= 0
    assert out.aleatoric.item() >= 0
    assert out.total.item() == pytest.approx(out.aleatoric.item() + out.epistemic.item())
    assert out.total.item() <= log(classes) + 1e-5
    assert out.probs.sum().item() == pytest.approx(1, abs=1e-5)
    if samples == 1:
        assert out.epistemic.item() == 0


def test_predict_averages_the_draws_of_its_seed():
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    net = mesu.Bayesian(module, init_std=0.3, seed=0)
    x, noise = torch.randn(6, 4, dtype=torch.float64), Noise(7)
    pairs, p = list(net.pairs()), []
    for _ in range(5):
        e = noise.normal((sum(q.mean.numel() for q in pairs),), like=x).split([q.mean.numel() for q in pairs])
        weights = {q.name: q.mean + q.std * part.view_as(q.mean) for q, part in zip(pairs, e, strict=True)}
        p.append(functional_call(module, weights, x).softmax(-1).detach())
    p = torch.stack(p)
    mean = p.mean(0)
    total, aleatoric = -(mean * mean.log()).sum(-1), -(p * p.log()).sum(-1).mean(0)
    out = mesu.predict(net, x, samples=5, seed=7)
    assert torch.allclose(out.probs, mean)
    assert torch.allclose(out.total, total)
    assert torch.allclose(out.aleatoric, aleatoric)
    assert torch.allclose(out.epistemic, total - aleatoric)
    assert torch.all(out.epistemic > 1e-4)


@pytest.mark.parametrize("estimator", ["weights", "local"])
@pytest.mark.parametrize("make", [net_with_dropout, image_net])
def test_chunks_change_nothing(make, estimator):
    net = make(estimator=estimator).double()
    x = torch.randn(15, *((4,) if make is net_with_dropout else (1, 4, 4)), dtype=torch.float64)
    whole = mesu.predict(net, x, samples=6, chunk=15)
    assert whole.probs.shape == (15, 3)
    assert torch.allclose(whole.probs.sum(-1), torch.ones(15, dtype=torch.float64))
    for chunk in (1, 7, 100, None):
        parts = mesu.predict(net, x, samples=6, chunk=chunk)
        for field in FIELDS:
            assert torch.allclose(getattr(parts, field), getattr(whole, field), rtol=1e-10, atol=1e-12)


def test_budget_cuts_large_inputs(monkeypatch):
    net, x = net_with_dropout(), torch.randn(15, 4)
    whole = mesu.predict(net, x, samples=6)
    sizes = []
    monkeypatch.setattr("mesu.prediction.BUDGET", 24)
    monkeypatch.setattr(net, "sample", lambda part, **k: sizes.append(len(part)) or type(net).sample(net, part, **k))
    assert torch.allclose(mesu.predict(net, x, samples=6).probs, whole.probs, atol=1e-6)
    assert sizes == [4, 4, 4, 3]


def test_predicting_is_repeatable_and_the_seed_counts():
    net, x = net_with_dropout(), torch.randn(5, 4)
    first = mesu.predict(net, x, samples=5)
    torch.rand(10)
    assert torch.equal(mesu.predict(net, x, samples=5).probs, first.probs)
    assert torch.equal(mesu.predict(net, x, samples=5, seed=0).probs, first.probs)
    assert not torch.equal(mesu.predict(net, x, samples=5, seed=1).probs, first.probs)


@pytest.mark.parametrize("estimator", ["weights", "local"])
def test_predicting_leaves_training_alone(estimator):
    net = net_with_dropout(estimator=estimator)
    net.module[0].eval()  # a mixture of modes, to be kept
    twin = copy.deepcopy(net)
    x, y = torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 0])
    before = {name: value.clone() for name, value in net.state_dict().items()}
    out = mesu.predict(net, x, samples=5)
    assert [m.training for m in net.modules()] == [m.training for m in twin.modules()]
    assert net.module[2].training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    assert not out.probs.requires_grad
    torch.manual_seed(1)
    after = net.nll(x, y, samples=3)
    torch.manual_seed(1)
    assert torch.equal(after, twin.nll(x, y, samples=3))


def test_modes_come_back_after_a_failure():
    net = net_with_dropout()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(ValueError, match="4 features"):
        mesu.predict(net, torch.randn(5, 3))
    assert all(m.training for m in net.modules())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_dropout_is_off():
    net, x = net_with_dropout(), torch.randn(5, 4)
    torch.manual_seed(1)
    first = mesu.predict(net, x, samples=4)
    torch.manual_seed(2)
    assert torch.equal(mesu.predict(net, x, samples=4).probs, first.probs)
    assert torch.equal(mesu.predict(net.eval(), x, samples=4).probs, first.probs)
    assert not net.training


def test_plain_module_knows_no_epistemic_uncertainty():
    module, x = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)), torch.randn(5, 4)
    out = mesu.predict(module, x, samples=7)
    p = module.eval()(x).softmax(-1)
    assert torch.allclose(out.probs, p)
    assert torch.allclose(out.total, -(p * p.log()).sum(-1))
    assert torch.equal(out.total, out.aleatoric)
    assert torch.equal(out.epistemic, torch.zeros(5))
    module.train()
    mesu.predict(module, x)
    assert module[1].training


def test_regression_split_by_hand():
    means = torch.tensor([[[1.0], [2.0]], [[3.0], [2.0]]])
    out = RegressionPrediction.from_means(means, 0.25)
    assert out.mean.flatten().tolist() == [2.0, 2.0]
    assert out.epistemic.flatten().tolist() == [1.0, 0.0]
    assert out.aleatoric.flatten().tolist() == [0.25, 0.25]
    assert out.total.flatten().tolist() == [1.25, 0.25]
    assert out.std.flatten().tolist() == pytest.approx([1.25**0.5, 0.5])


def test_regression_against_the_closed_form():
    net = mesu.Bayesian(nn.Linear(3, 1), likelihood="gaussian", noise_std=0.5, init_std=0.4, seed=0).double()
    x, samples = torch.randn(4, 3, dtype=torch.float64), 20_000
    w, b = net.pairs()
    mean, var = x @ w.mean.T + b.mean, x**2 @ (w.std**2).T + b.std**2
    out = mesu.predict(net, x, samples=samples)
    assert isinstance(out, RegressionPrediction)
    assert torch.all((out.mean - mean).abs() < 5 * (var / samples).sqrt())
    assert torch.all((out.epistemic / var - 1).abs() < 5 * (2 / samples) ** 0.5)
    assert torch.equal(out.aleatoric, torch.full_like(var, 0.25))
    assert torch.allclose(out.total, out.epistemic + 0.25)


class Heads(nn.Module):
    """Two heads, chosen by a keyword."""

    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 3)})

    def forward(self, x, head="a", scale=1.0):
        return self.heads[head](x) * scale


def test_keywords_reach_the_network():
    net, x = mesu.Bayesian(Heads(), seed=0), torch.randn(5, 4)
    assert mesu.predict(net, x, samples=3).probs.shape == (5, 2)
    assert mesu.predict(net, x, samples=3, head="b").probs.shape == (5, 3)
    flat = mesu.predict(net, x, samples=3, head="b", scale=0.0)
    assert torch.allclose(flat.probs, torch.full((5, 3), 1 / 3))
    assert torch.allclose(mesu.predict(Heads(), x, head="b", scale=0.0).probs, flat.probs)


@pytest.mark.parametrize("net", [net_with_dropout(), nn.Linear(4, 3)])
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(0, 4), r"nothing to predict.*\(0, 4\)"),
        (torch.tensor(1.0), r"nothing to predict.*\(\)"),
        (torch.tensor([[0.0, float("nan"), 0.0, 0.0]]), r"nan at index \(0, 1\)"),
        (torch.tensor([[0.0, 0.0, 0.0, -float("inf")]]), r"-inf at index \(0, 3\)"),
    ],
)
def test_bad_inputs_are_refused(net, x, message):
    with pytest.raises(ValueError, match=message):
        mesu.predict(net, x)


def test_transformer_is_predicted_by_drawn_weights():
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.layer(x).mean(1))

    net = mesu.Bayesian(Classifier(), init_std=0.1, seed=0)
    x = torch.randn(4, 5, 8)
    out = mesu.predict(net, x, samples=3)
    with torch.no_grad():
        scores = net.train().sample(x, samples=3, noise=Noise(0), estimator="weights")
    assert torch.allclose(out.probs, scores.softmax(-1).mean(0), atol=1e-5)


# -- classes on the second axis ----------------------------------------------------------------------------------------


def test_pixels_are_predicted_on_the_axis_they_are_learned_on():
    torch.manual_seed(0)
    net = mesu.Bayesian(nn.Conv2d(1, 3, 1), seed=0)
    opt = mesu.MESU(net, memory=10_000)
    x = torch.randn(8, 1, 5, 4)
    y = (x[:, 0] > 0).long() * 2
    for _ in range(60):
        net.nll(x, y, samples=5).backward()
        opt.step()
        opt.zero_grad()
    p = mesu.predict(net, x, samples=20)
    assert p.probs.shape == (8, 3, 5, 4)
    assert torch.allclose(p.probs.sum(1), torch.ones(8, 5, 4))
    assert p.total.shape == p.epistemic.shape == p.labels.shape == (8, 5, 4)
    assert float((p.labels == y).float().mean()) > 0.9


def test_one_row_that_is_no_batch_is_told_so():
    net = mesu.Bayesian(nn.Linear(4, 3), seed=0)
    with pytest.raises(ValueError, match=r"needs a batch of inputs \(x\[None\] for one\)"):
        mesu.predict(net, torch.zeros(4))


def test_numpy_arrays_are_told_what_to_become():
    net = mesu.Bayesian(nn.Linear(4, 3), seed=0)
    with pytest.raises(TypeError, match=r"inputs must be a tensor, got ndarray: take torch.as_tensor"):
        mesu.predict(net, np.zeros((2, 4)))


@pytest.mark.parametrize("wrap", [mesu.Bayesian, lambda module: module])
def test_a_network_that_gives_a_tuple_is_told_what_a_prediction_wants(wrap):
    with pytest.raises(TypeError, match="gives a tuple, and a prediction wants one tensor"):
        mesu.predict(wrap(nn.LSTM(2, 3, batch_first=True)), torch.zeros(4, 5, 2))


# -- keywords in chunks -----------------------------------------------------------------------------------------------


class Masked(nn.Module):
    """Inputs times a mask, plus what has no rows."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x, mask, shift=None, more=None):
        x = x * mask if more is None else x * mask * more["scale"]
        return self.layer(x if shift is None else x + shift)


@pytest.mark.parametrize("wrap", [lambda module: mesu.Bayesian(module, seed=0), lambda module: module])
def test_keywords_with_rows_are_cut_with_the_inputs(wrap):
    net, x, mask = wrap(Masked()), torch.randn(7, 4), torch.randint(2, (7, 4)).float()
    more = {"scale": torch.rand(7, 1)}
    for keywords in ({}, {"shift": torch.randn(4)}, {"shift": torch.randn(1, 4), "more": more}):
        whole = mesu.predict(net, x, samples=5, mask=mask, **keywords)
        parts = mesu.predict(net, x, samples=5, chunk=2, mask=mask, **keywords)
        for field in FIELDS:
            assert torch.allclose(getattr(parts, field), getattr(whole, field), atol=1e-6)


@pytest.mark.parametrize("make", [lambda mask: mask.numpy(), lambda mask: list(mask)])
def test_keywords_that_may_be_rows_are_refused_where_rows_are_cut(make):
    net, x, mask = mesu.Bayesian(Masked(), seed=0), torch.randn(7, 4), torch.ones(7, 4)
    with pytest.raises(ValueError, match=r"'mask' is a \w+ as long as the 7 rows.*chunk=len\(x\)"):
        mesu.predict(net, x, samples=5, chunk=3, mask=make(mask))


def test_a_closed_form_refuses_tensors_that_are_deep_in_a_keyword():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x, shifts=None):
            return self.layer(x + shifts["first"])

    x = torch.randn(6, 4)
    net = mesu.Bayesian(Shifted(), seed=0)
    with pytest.raises(TypeError, match="got a tensor in 'shifts' too"):
        mesu.predict(net, x, samples=0, shifts={"first": x})


def test_a_likelihood_by_its_name():
    net = mesu.Bayesian(nn.Linear(4, 3), seed=0)
    x = torch.randn(6, 4)
    named = mesu.predict(net, x, samples=5, likelihood="bernoulli")
    given = mesu.predict(net, x, samples=5, likelihood=mesu.posterior.Bernoulli())
    assert torch.equal(named.probs, given.probs)
    closed = mesu.predict(net, x, samples=0, likelihood="bernoulli")
    assert torch.equal(closed.probs, mesu.predictor(net, likelihood="bernoulli")(x)[0])
    with pytest.raises(ValueError, match="likelihood must be 'categorical'"):
        mesu.predict(net, x, likelihood="bernouli")
