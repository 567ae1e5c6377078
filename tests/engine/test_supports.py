"""What the engine runs and what it leaves to torch: it must never run what it does not know exactly."""

import sys
import types
from typing import NamedTuple

import pytest
import torch
from torch import nn

import mesu
from mesu import optim, rules
from mesu.engine import why_not
from mesu.posterior.likelihood import Categorical, GaussianNoise


def perceptron():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


def posterior(module=None, **options):
    return mesu.Bayesian(perceptron() if module is None else module, seed=0, **options)


def mesu_of(net, kind=mesu.MESU, **options):
    return kind(net, memory=100, **options)


# -- what it runs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["local", "weights"])
@pytest.mark.parametrize("likelihood", ["categorical", "gaussian", Categorical(), GaussianNoise(0.5)])
def test_it_runs_what_it_knows(likelihood, estimator):
    net = posterior(likelihood=likelihood, estimator=estimator)
    assert why_not(net, mesu_of(net)) is None
    assert why_not(net, mesu_of(net, update="paper")) is None
    for optimizer in (mesu.FOOVB(net), mesu.BayesByBackprop(net, lr=0.1), mesu.BayesianSynapse(net, tau=50)):
        assert why_not(net, optimizer) is None


def test_it_runs_a_subclass_that_changes_nothing():
    class Named(mesu.MESU):
        """MESU by another name, with settings of its own."""

        remedy = "ask us"

        def __init__(self, params):
            super().__init__(params, memory=100)

        def report(self):
            return "nothing that moves a weight"

    class Network(mesu.Bayesian):
        def report(self):
            return "nothing that the engine would have to know"

    class Descent(optim.SGD):
        pass

    net = Network(perceptron(), seed=0)
    assert why_not(net, Named(net)) is None
    plain = perceptron()
    assert why_not(plain, Descent(plain.parameters(), 0.1)) is None


def test_it_runs_under_a_learning_rate_scheduler():
    plain = perceptron()
    optimizer = optim.SGD(plain.parameters(), 0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 10)  # which wraps the optimiser's step
    assert why_not(plain, optimizer) is None


# -- optimisers and rules ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["step", "rule", "constants", "_moved"])
def test_a_posterior_optimiser_with_methods_of_its_own_is_left_to_torch(method):
    def own(self, *arguments):
        return getattr(mesu.MESU, method)(self, *arguments)

    net = posterior()
    kind = type("Mine", (mesu.MESU,), {method: own})
    assert why_not(net, mesu_of(net, kind)) == f"Mine has a {method} of its own, which only torch runs"


@pytest.mark.parametrize("method", ["step", "constants", "rule_state", "_follow"])
def test_a_weight_optimiser_with_methods_of_its_own_is_left_to_torch(method):
    def own(self, *arguments):
        return getattr(optim.SGD, method)(self, *arguments)

    net = perceptron()
    optimizer = type("Mine", (optim.SGD,), {method: own})(net.parameters(), 0.1)
    assert why_not(net, optimizer) == f"Mine has a {method} of its own, which only torch runs"


def test_other_peoples_optimisers_are_left_to_torch():
    net, plain = posterior(), perceptron()
    assert "Adam" in why_not(net, torch.optim.Adam(net.parameters()))
    assert "Adam" in why_not(plain, torch.optim.Adam(plain.parameters()))
    assert "Adam moves its weights" in why_not(plain, optim.EWC(plain.parameters(), 0.1, 1.0, inner=torch.optim.Adam))


def own_rule(monkeypatch, **parts):
    """A module of a rule: SGD with some parts replaced."""
    module = types.ModuleType("rule_under_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    vars(module).update({name: getattr(rules.sgd, name) for name in ("State", "initial", "step")})

    class Constants(NamedTuple):
        lr: float

    Constants.__module__, Constants.__qualname__ = module.__name__, "Constants"
    vars(module).update({"Constants": Constants, "constants": Constants, **parts})
    return type("Mine", (optim.WeightOptimizer,), {"file": module})


def moved(w, g, state, c):
    return w - c.lr * torch.sign(g), state


def endless(w, g, state, c):
    return endless(w, g, state, c)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"step": moved}, "moved uses torch.sign, which has no compiled form"),
        ({"step": endless}, "endless calls itself"),
        ({"constants": rules.sgd.constants}, "those of another one, mesu.rules.sgd: give it Constants of its own"),
        ({"constants": rules.Gaussian._make}, None),
    ],
)
def test_a_rule_that_the_engine_could_not_run_alike_is_left_to_torch(monkeypatch, parts, reason):
    net = perceptron()
    kind = own_rule(monkeypatch, **parts)
    if reason is None:
        monkeypatch.setattr(kind.file, "constants", lambda lr: rules.Gaussian(lr, lr))
        reason = "mesu.rules.gaussian.Gaussian does not identify a rule"
    assert reason in why_not(net, kind(net.parameters(), lr=0.1))


def test_a_rule_of_ones_own_is_run(monkeypatch):
    net = perceptron()
    assert why_not(net, own_rule(monkeypatch)(net.parameters(), lr=0.1)) is None


# -- networks ---------------------------------------------------------------------------------------------------------


class Twice(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Skipping(nn.Sequential):
    def forward(self, x):
        return super().forward(x) + 1


class Rectifier(nn.ReLU):
    def forward(self, x):
        return super().forward(x - 1)


def with_forward(module):
    module.forward = lambda x: x
    return module


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: nn.Sequential(Twice(4, 5), nn.ReLU(), nn.Linear(5, 3)), "Twice"),
        (lambda: Skipping(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), "Skipping"),
        (lambda: nn.Sequential(nn.Linear(4, 5), Rectifier(), nn.Linear(5, 3)), "Rectifier"),
        (lambda: nn.Sequential(nn.Flatten(0), nn.Linear(4, 3)), "Flatten"),
        (lambda: with_forward(nn.Linear(4, 3)), "another forward"),
        (lambda: nn.Sequential(with_forward(nn.Linear(4, 3))), "another forward"),
        (lambda: with_forward(nn.Sequential(nn.Linear(4, 3))), "another forward"),
        (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), "ParametrizedLinear"),
    ],
)
def test_layers_with_a_forward_of_their_own_are_left_to_torch(make, reason):
    net = make()
    assert reason in why_not(net, optim.SGD(net.parameters(), 0.1))


HOOKS = {
    "forward": lambda net: net[1].register_forward_hook(lambda *_: None),
    "forward pre": lambda net: net[1].register_forward_pre_hook(lambda *_: None),
    "backward": lambda net: net[1].register_full_backward_hook(lambda *_: None),
    "backward pre": lambda net: net.register_full_backward_pre_hook(lambda *_: None),
    "parameter": lambda net: net[1].weight.register_hook(lambda g: 0 * g),
    "accumulated": lambda net: net[1].weight.register_post_accumulate_grad_hook(lambda p: None),
}


@pytest.mark.parametrize("hook", HOOKS)
def test_networks_with_hooks_are_left_to_torch_until_the_hooks_are_gone(hook):
    net, plain = posterior(), perceptron()
    for whole, module, optimizer in (
        (net, net.module, mesu_of(net)),
        (plain, plain, optim.SGD(plain.parameters(), 0.1)),
    ):
        handle = HOOKS[hook](module)
        assert "hooks" in why_not(whole, optimizer)
        handle.remove()
        assert why_not(whole, optimizer) is None


def test_hooks_of_an_optimiser_are_left_to_torch():
    net = posterior()
    for register in ("register_step_pre_hook", "register_step_post_hook"):
        optimizer = mesu_of(net)
        getattr(optimizer, register)(lambda *_: None)
        assert why_not(net, optimizer) == "there are hooks on MESU, which only torch calls"


def test_a_posterior_with_methods_of_its_own_is_left_to_torch():
    class Annealed(mesu.Bayesian):
        def nll(self, *arguments, **options):
            return 0.5 * super().nll(*arguments, **options)

    net = Annealed(perceptron(), seed=0)
    assert why_not(net, mesu_of(net)) == "Annealed has a nll of its own, which only torch runs"


# -- likelihoods ------------------------------------------------------------------------------------------------------


class Poisson:
    def check(self, y):
        """Any count."""

    def nll(self, out, y):
        return (out.exp() - y * out).sum() / out.shape[0]

    def summarise(self, out):
        return out.exp().mean(0)


class Tempered(GaussianNoise):
    def nll(self, out, y):
        return 0.5 * super().nll(out, y)


@pytest.mark.parametrize("likelihood", [Poisson(), Tempered(0.5)])
def test_likelihoods_that_it_does_not_know_are_left_to_torch(likelihood):
    net = posterior(likelihood=likelihood)
    reason = f"its likelihood, {type(likelihood).__name__}, has no compiled form"
    assert why_not(net, mesu_of(net)) == reason
    with pytest.warns(mesu.EngineFallback, match=reason):
        mesu.BayesianLearner(net, mesu_of(net))
