"""Rules of a posterior, local and by weight draws: the same noise into engine and torch, the same weights out."""

import copy

import numpy as np
import pytest
import torch
from tests.engine.networks import DEPTHS, STEPS, WIDTHS, agree_within_rounding, apart, lively, perceptron, teacher
from torch import nn

import mesu
from mesu import optim
from mesu.engine import PosteriorEngine


class FedNoise(mesu.posterior.bayesian.Noise):
    """Noise from a list instead of a generator."""

    state = None  # nothing to go back to

    def feed(self, draws):
        self.draws = list(draws)

    def normal(self, shape, like=None):
        return self.draws.pop(0).view(shape).to(like.dtype)


def feed_update(fed, noise, estimator, sizes, samples, batch, weights):
    """Hand the engine's noise for one update to the torch path, in the order in which that asks for it."""
    e = torch.from_numpy(noise)
    if estimator == "weights":
        fed.feed(e[s * weights : (s + 1) * weights] for s in range(samples))
        return
    blocks, at = [], 0
    for units in sizes[1:]:
        blocks.append(e[at : at + samples * batch * units].view(samples, batch, units))
        at += samples * batch * units
    fed.feed(block[s] for s in range(samples) for block in blocks)


def learn_in_torch(net, optimizer, sizes, x, y, noise, samples, batch, at_once):
    """Learn with the noise that the engine was given, the samples one after the other or `at_once`, which is quicker."""
    dtype = next(net.parameters()).dtype
    weights = sum(pair.mean.numel() for pair in net.pairs())
    x, y = torch.from_numpy(x).to(dtype), torch.from_numpy(y)
    y = y.to(dtype) if y.is_floating_point() else y
    net.noise, net.vectorize = FedNoise(0), at_once
    copies = samples if at_once and net.estimator == "local" else 1  # drawn rows are independent: a batch of copies
    for examples, targets, normals in zip(x.split(batch), y.split(batch), noise, strict=True):
        feed_update(net.noise, normals, net.estimator, sizes, samples // copies, batch * copies, weights)
        examples, targets = torch.cat([examples] * copies), torch.cat([targets] * copies)
        (net.nll(examples, targets, samples=samples // copies) / copies).backward()
        optimizer.step()
        optimizer.zero_grad()


def three_ways(module, sizes, estimator, make, *, samples=2, batch=1, regression=False, at_once=False):
    """Means and stds after 1,000 updates with the same noise: of engine, of torch, and of the engine in double precision."""
    likelihood = "gaussian" if regression else "categorical"
    options = {"estimator": estimator, "init_std": 0.12, "likelihood": likelihood, "noise_std": 0.7, "seed": 1}
    net = mesu.Bayesian(module, **options)
    mine, theirs, exact = copy.deepcopy(net), copy.deepcopy(net), copy.deepcopy(net).double()
    x, y = teacher(sizes, STEPS * batch, regression)
    engine = PosteriorEngine(mine, make(mine), samples, batch)
    normals = engine.normals(sum(pair.mean.numel() for pair in net.pairs()))
    noise = np.random.default_rng(1).normal(size=(STEPS, normals)).astype(np.float32)
    engine.learn(x, y, noise=noise)
    PosteriorEngine(exact, make(exact), samples, batch).learn(x, y, noise=noise)
    learn_in_torch(theirs, make(theirs), sizes, x, y, noise, samples, batch, at_once)
    for before, after in zip(net.pairs(), theirs.pairs(), strict=True):  # examples have moved every layer:
        assert (after.mean - before.mean).abs().max() > 0.04
        assert (after.std - before.std).abs().max() > 0.006  # of 0.12
        assert after.std.max() > 1.005 * after.std.min()  # forgetting alone would keep all sigmas equal
    return [list(one.parameters()) for one in (mine, theirs, exact)]


RATES = {"lr_mean": 0.9, "lr_std": 1.1}
SETTINGS = {"memory": 500, "prior_mean": 0.1, "prior_std": 0.5, **RATES}
BOUND = 0.2
RULES = {
    "exact": lambda net: mesu.MESU(net, **SETTINGS),
    "paper": lambda net: mesu.MESU(net, update="paper", max_step=0.2, **SETTINGS),
    "bounded": lambda net: mesu.MESU(net, max_std=BOUND, **SETTINGS),
    "paper, bounded": lambda net: mesu.MESU(net, update="paper", max_step=0.2, max_std=BOUND, **SETTINGS),
    "foo-vb": lambda net: mesu.FOOVB(net, **RATES),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("estimator", ["local", "weights"])
@pytest.mark.parametrize("rule", RULES)
def test_posterior_rules_learn_the_same_both_ways(rule, estimator, depth, bias):
    module = lively(perceptron(DEPTHS[depth], bias))
    mine, theirs, _ = three_ways(module, DEPTHS[depth], estimator, RULES[rule], at_once=estimator == "local")
    assert apart(mine, theirs) < 1e-9
    if "bounded" in rule:
        stds = [p.detach() for p in theirs if float(p.detach().min()) > 0]
        assert max(float(std.max()) for std in stds) == pytest.approx(BOUND)  # the bound was met


class Newton(optim.PosteriorOptimizer):
    """The Newton form, for which the library has a rule and no optimiser."""

    file = mesu.rules.newton


OTHER_RULES = {
    "bayes-by-backprop": lambda net: mesu.BayesByBackprop(net, lr=0.02, kl_weight=0.01, prior_std=0.5),
    "bayesian-synapse": lambda net: mesu.BayesianSynapse(net, tau=500, prior_mean=0.1, prior_std=0.2, max_step=0.5),
    "newton": lambda net: Newton(net, {"gamma": 0.0018, "memory": 500, "prior_mean": 0.1, "prior_std": 0.5}),
}


@pytest.mark.parametrize("estimator", ["local", "weights"])
@pytest.mark.parametrize("rule", OTHER_RULES)
def test_every_posterior_rule_learns_the_same_both_ways(rule, estimator):
    module = lively(perceptron(DEPTHS[2]))
    mine, theirs, _ = three_ways(module, DEPTHS[2], estimator, OTHER_RULES[rule], at_once=estimator == "local")
    assert apart(mine, theirs) < 1e-9


def test_a_posterior_rule_without_idle_constants_learns_the_same_both_ways(monkeypatch):
    monkeypatch.delattr(mesu.rules.newton, "idle")
    module = lively(perceptron(DEPTHS[2]))
    mine, theirs, _ = three_ways(module, DEPTHS[2], "local", OTHER_RULES["newton"], at_once=True)
    assert apart(mine, theirs) < 1e-9


@pytest.mark.parametrize("estimator", ["local", "weights"])
def test_a_bound_below_the_start_holds_from_the_first_update_both_ways(estimator):
    def make(net):
        return mesu.MESU(net, max_std=0.1, **SETTINGS)  # sigma starts from 0.12

    mine, theirs, _ = three_ways(
        lively(perceptron(DEPTHS[1])), DEPTHS[1], estimator, make, at_once=estimator == "local"
    )
    assert apart(mine, theirs) < 1e-9


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("estimator", ["local", "weights"])
def test_a_single_layer_learns_the_same_both_ways(estimator, bias):
    mine, theirs, _ = three_ways(perceptron(DEPTHS[0], bias), DEPTHS[0], estimator, RULES["exact"])
    assert apart(mine, theirs) < 1e-9


@pytest.mark.filterwarnings("ignore::mesu.LearningWarning")  # copies of one example are averaged
@pytest.mark.parametrize(
    ("width", "estimator", "samples", "batch"),
    [
        *(("wide", "local", samples, 1) for samples in (1, 3, 10, 16, 17)),
        ("wide", "local", 22, 6),  # more rows than a word has bits, and a part of a third word
        ("wide", "weights", 10, 1),
        ("vast", "local", 10, 1),
        ("long", "local", 2, 1),
    ],
)
def test_wide_layers_and_many_rows_learn_the_same_both_ways(width, estimator, samples, batch):
    sizes = WIDTHS[width]
    module = lively(perceptron(sizes))
    once = samples > 1 and batch == 1
    mine, theirs, _ = three_ways(module, sizes, estimator, RULES["exact"], samples=samples, batch=batch, at_once=once)
    assert apart(mine, theirs) < 1e-9


@pytest.mark.parametrize("estimator", ["local", "weights"])
@pytest.mark.parametrize(
    ("activation", "options"),
    [(nn.ReLU, {"batch": 6}), (nn.Tanh, {}), (nn.ReLU, {"batch": 6, "regression": True})],
    ids=["batches", "tanh", "regression"],
)
def test_batches_tanh_and_regression_learn_the_same_both_ways(activation, options, estimator):
    module = lively(perceptron(DEPTHS[2], True, activation))
    mine, theirs, _ = three_ways(module, DEPTHS[2], estimator, RULES["exact"], **options)
    assert apart(mine, theirs) < 1e-9


@pytest.mark.parametrize(("depth", "bias"), [(1, False), (3, True)])
@pytest.mark.parametrize("estimator", ["local", "weights"])
@pytest.mark.parametrize("rule", RULES)
def test_posterior_rules_agree_within_rounding_in_single_precision(rule, estimator, depth, bias):
    module = lively(perceptron(DEPTHS[depth], bias, dtype=torch.float32))
    assert agree_within_rounding(*three_ways(module, DEPTHS[depth], estimator, RULES[rule], at_once=True))
