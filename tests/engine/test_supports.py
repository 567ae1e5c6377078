"""What the engine runs and what it leaves to torch: it must never run what it does not know exactly."""

import copy
import functools
import sys
import types
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import mesu
from mesu import optim, rules
from mesu.engine import why_not
from mesu.posterior import Bernoulli, HeteroscedasticGaussian, Poisson
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


class Rates:
    def check(self, y):
        """Any count."""

    def nll(self, out, y):
        return (out.exp() - y * out).sum() / out.shape[0]

    def summarise(self, out):
        return out.exp().mean(0)


class Tempered(GaussianNoise):
    def nll(self, out, y):
        return 0.5 * super().nll(out, y)


@pytest.mark.parametrize("likelihood", [Rates(), Poisson(), HeteroscedasticGaussian(), Bernoulli(), Tempered(0.5)])
def test_likelihoods_that_it_does_not_know_are_left_to_torch(likelihood):
    net = posterior(likelihood=likelihood)
    reason = f"its likelihood, {type(likelihood).__name__}, has no compiled form"
    assert why_not(net, mesu_of(net)) == reason
    with pytest.warns(mesu.EngineFallback, match=reason):
        mesu.BayesianLearner(net, mesu_of(net))


@pytest.mark.parametrize(
    "options", [{"class_weights": [1.0, 2.0, 1.0]}, {"ignore_index": -1}, {"label_smoothing": 0.1}, {}]
)
def test_labels_that_do_not_count_alike_are_left_to_torch(options):
    net, plain = posterior(likelihood=Categorical(**options)), perceptron()
    reason = "its likelihood weighs, smooths or leaves out labels, which only torch does" if options else None
    assert why_not(net, mesu_of(net)) == reason
    if options:
        with pytest.warns(mesu.EngineFallback, match=reason):
            mesu.WeightLearner(plain, optim.SGD(plain.parameters(), 0.1), likelihood=Categorical(**options))
    else:
        mesu.WeightLearner(plain, optim.SGD(plain.parameters(), 0.1), likelihood=Categorical())


@pytest.mark.parametrize("method", ["check", "nll", "sample", "summarise"])
def test_a_likelihood_that_was_given_another_method_is_left_to_torch(method):
    net = posterior(likelihood=Categorical())
    setattr(net.likelihood, method, lambda *arguments: None)
    assert why_not(net, mesu_of(net)) == f"its likelihood, Categorical, has been given another {method}"


# -- what was changed on one object only, or everywhere ----------------------------------------------------------------


def test_methods_that_were_replaced_on_one_object_are_left_to_torch():
    net = posterior()
    optimizer = mesu_of(net)
    optimizer.step = lambda closure=None: None
    assert why_not(net, optimizer) == "MESU has a step of its own, which only torch runs"
    optimizer = mesu_of(net)
    net.nll = lambda *arguments, **options: torch.zeros(())
    assert why_not(net, optimizer) == "Bayesian has a nll of its own, which only torch runs"
    del net.nll
    assert why_not(net, optimizer) is None


def test_a_step_that_poses_as_the_one_it_replaces_is_left_to_torch():
    class Mine(mesu.MESU):
        @functools.wraps(mesu.MESU.step)
        def step(self, closure=None):
            return None

    net = posterior()
    assert why_not(net, mesu_of(net, Mine)) == "Mine has a step of its own, which only torch runs"


EVERYWHERE = [
    nn.modules.module.register_module_forward_hook,
    nn.modules.module.register_module_forward_pre_hook,
    nn.modules.module.register_module_full_backward_hook,
    sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook,
    sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook,
]


@pytest.mark.parametrize("register", EVERYWHERE)
def test_hooks_on_everything_are_left_to_torch_until_they_are_gone(register):
    net = posterior()
    handle = register(lambda *_: None)
    try:
        assert "there are hooks on all" in why_not(net, mesu_of(net))
    finally:
        handle.remove()
    assert why_not(net, mesu_of(net)) is None


def test_an_optimiser_for_another_estimator_is_left_to_torch():
    net = posterior()
    optimizer = mesu_of(net)
    net.estimator = "local"  # sigma's gradient then means something else
    assert "made for another estimator than 'local'" in why_not(net, optimizer)
    assert why_not(net, mesu_of(net)) is not None  # its draws are narrower than it believes
    net = posterior()
    tuples = [(pair.mean, pair.std) for pair in net.pairs()]
    assert "made for another estimator than 'linear'" in why_not(net, mesu.MESU(tuples, memory=100, prior_std=1.0))


def test_a_hook_that_comes_later_is_called():
    calls = []
    x, y = np.ones((3, 4), np.float32), np.array([0, 1, 2])
    net, plain = posterior(), perceptron()
    for module, learner in (
        (net.module, mesu.BayesianLearner(net, mesu_of(net))),
        (plain, mesu.WeightLearner(plain, optim.SGD(plain.parameters(), 0.1))),
    ):
        learner.learn(x, y)
        assert learner.engine is not None
        module[1].register_forward_hook(lambda *_: calls.append(1))
        with pytest.warns(mesu.EngineFallback, match="it has hooks on its layers"):
            learner.learn(x, y)
        assert len(calls) == 3
        calls.clear()


class Deaf(Categorical):
    def nll(self, out, y):
        return 0 * out.sum()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda net: net.module[1].requires_grad_(False), "some of its parameters are frozen"),
        (lambda net: setattr(net, "likelihood", Deaf()), "its likelihood, Deaf, has no compiled form"),
        (lambda net: setattr(net.module[2], "forward", torch.sin), "its ReLU has been given another forward"),
        (lambda net: net.module.__setitem__(2, nn.GELU()), "it has a GELU"),
    ],
)
def test_what_is_changed_after_the_learner_was_made_is_left_to_torch(change, reason):
    x, y = np.ones((3, 4), np.float32), np.array([0, 1, 2])
    net = posterior()
    twin = copy.deepcopy(net)
    learner = mesu.BayesianLearner(net, mesu_of(net))
    in_torch = mesu.BayesianLearner(twin, mesu_of(twin), engine=False)
    change(net)
    change(twin)
    with pytest.warns(mesu.EngineFallback, match=reason):
        learner.learn(x, y)
    in_torch.learn(x, y)
    assert learner.engine is None
    for one, other in zip(net.parameters(), twin.parameters(), strict=True):
        assert torch.equal(one, other)


# -- layers and parameters in more than one place ----------------------------------------------------------------------


def with_shared_activation(ends_in_it):
    active = nn.ReLU()
    layers = [nn.Linear(4, 5), active, nn.Linear(5, 5), active, nn.Linear(5, 3)]
    return nn.Sequential(*layers, active) if ends_in_it else nn.Sequential(*layers)


def with_shared_layer(between):
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, *between, layer)


def with_weight(weight):
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    module[2].weight = weight(module[0].weight)
    return module


class Own(nn.Parameter):
    pass


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: with_shared_activation(True), "ends in an activation"),
        (lambda: with_shared_layer([]), "Linear '1' is used more than once"),
        (lambda: with_shared_layer([nn.ReLU()]), "Linear '2' is used more than once"),
        (lambda: with_weight(lambda w: w), "share memory"),
        (lambda: with_weight(lambda w: nn.Parameter(w.data)), "share memory"),
        (lambda: with_weight(lambda w: nn.Parameter(w.data.view(-1).as_strided((4, 4), (0, 1)))), "share memory"),
        (lambda: with_weight(lambda w: nn.Parameter(torch.ones(4, 1).expand(4, 4))), "share memory"),
        (lambda: with_weight(lambda w: Own(torch.ones(4, 4))), "its parameters are Own, Parameter"),
        (lambda: perceptron().share_memory(), "shared with other processes"),
        (lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 3)), "Dropout"),
        (lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3))), "ParametrizedLinear"),
        (lambda: nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(4, 3))), "ParametrizedLinear"),
    ],
)
def test_networks_that_are_not_what_they_seem_are_left_to_torch(make, reason):
    net = make()
    assert reason in why_not(net, optim.SGD(net.parameters(), 0.1))


def test_tied_layers_of_a_posterior_are_left_to_torch():
    for make in (lambda: with_shared_layer([nn.ReLU()]), lambda: with_weight(lambda w: w)):
        net = posterior(make())
        assert ("used more than once" in why_not(net, mesu_of(net))) or ("share memory" in why_not(net, mesu_of(net)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: with_shared_activation(False),
        lambda: with_weight(lambda w: nn.Parameter(torch.randn(4, 4).t())),  # not contiguous
        lambda: with_weight(lambda w: nn.Parameter(torch.randn(4, 8)[:, ::2])),
    ],
)
def test_networks_that_only_look_strange_are_run_as_torch_runs_them(make):
    net, x, y = make(), torch.randn(6, 4).numpy(), np.array([0, 1, 2, 0, 1, 2])
    net[1].register_buffer("extra", torch.ones(3))  # which nothing uses
    twin = make()
    twin.load_state_dict(net.state_dict(), strict=False)
    compiled, plain = (
        mesu.WeightLearner(each, optim.SGD(each.parameters(), 0.1), engine=engine)
        for each, engine in ((net, None), (twin, False))
    )
    assert compiled.engine is not None
    compiled.learn(x, y)
    plain.learn(x, y)
    for (name, ours), theirs in zip(net.named_parameters(), twin.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5), name
