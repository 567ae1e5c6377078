"""The loop of estimator="linear" against autograd's exact Gauss-Newton diagonal, closed forms and the rule on tensors."""

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev, vmap

import mesu
from mesu import optim
from mesu.engine import PosteriorEngine, why_not
from mesu.posterior.draws import drawn_std
from mesu.rules import Gaussian
from mesu.rules.curvature import gradient_of_sigma
from mesu.rules.parts import curvature_constants, scaled_constants

NOISE_STD = 0.7
SIZES = {0: (5, 3), 1: (5, 18, 3), 2: (5, 6, 9, 3), 3: (5, 6, 4, 17, 3)}


# -- a rule from outside whose step returns the gradients, so that they can be read off the weights --------------------


class Constants(NamedTuple):
    """Where the next mean and sigma come from: from the gradients, or, under `idle`, from the weight itself."""

    shown: float


def step(q, g, c):
    """The gradients themselves; sigma's is moved up by 1, for a sigma has to be positive."""
    return Gaussian(q.mean + c.shown * (g.mean - q.mean), q.std + c.shown * (1.0 + g.std - q.std))


def idle(c):
    """Constants that move nothing."""
    return Constants(0.0)


def constants():
    """Constants that show the gradients."""
    return Constants(1.0)


class Show(optim.PosteriorOptimizer):
    """The rule of this module."""

    file = sys.modules[__name__]

    def __init__(self, params):
        super().__init__(params, {})


# -- what they should be ----------------------------------------------------------------------------------------------


def posterior(sizes, *, bias=True, tanh=False, numbers=False, dtype=torch.float64, **options):
    torch.manual_seed(len(sizes))
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs, bias=bias), nn.Tanh() if tanh else nn.ReLU()]
    module = nn.Sequential(*layers[:-1]).to(dtype)
    likelihood = "gaussian" if numbers else "categorical"
    options = {"narrowing": 1.0, "init_std": 0.3, "seed": 1, **options}
    net = mesu.Bayesian(module, estimator="linear", likelihood=likelihood, noise_std=NOISE_STD, **options)
    with torch.no_grad():
        for pair in net.pairs():
            pair.mean.mul_(2)
            pair.std.mul_(1 + torch.rand_like(pair.std))
    return net


def examples(sizes, rows, numbers=False, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, sizes[0]))
    return x, rng.normal(size=(rows, sizes[-1])) if numbers else rng.integers(0, sizes[-1], rows)


def exact_gradients(net, x, y):
    """As `slopes_and_curvatures`, with sigma's gradient for the curvature."""
    found = slopes_and_curvatures(net, x, y)
    for pair in net.pairs():
        slope, h = found[pair.name]
        found[pair.name] = Gaussian(slope, gradient_of_sigma(pair.std.detach(), h))
    return found


def slopes_and_curvatures(net, x, y):
    """For each pair, the summed slopes of the loss, and the diagonal of sum_b G^T Lambda G."""
    inputs = torch.from_numpy(x)
    means = {pair.name: pair.mean.detach() for pair in net.pairs()}

    def outputs(weights, row):
        with net._local_layers(None):
            return functional_call(net.module, weights, (row[None],))[0]

    out = torch.stack([outputs(means, row) for row in inputs])
    if y.dtype.kind == "f":
        r = (out - torch.from_numpy(y)) / NOISE_STD**2
        curved = torch.eye(out.shape[1], dtype=out.dtype).expand(len(x), -1, -1) / NOISE_STD**2
    else:
        p = out.softmax(1)
        r = p - torch.eye(out.shape[1], dtype=out.dtype)[torch.from_numpy(y)]
        curved = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    jacobians = vmap(jacrev(outputs), (None, 0))(means, inputs)  # for each parameter [B, C, ...]
    gradients = {}
    for pair in net.pairs():
        jacobian = jacobians[pair.name].flatten(2)
        slope = torch.einsum("bcw,bc->w", jacobian, r)
        diagonal = torch.einsum("bcw,bcd,bdw->w", jacobian, curved, jacobian)
        shape = pair.mean.shape
        gradients[pair.name] = Gaussian(slope.view(shape), diagonal.view(shape))
    return gradients


def shown_gradients(net, x, y):
    """What the loop gives the rule in one update."""
    PosteriorEngine(net, Show(net), samples=3, batch=len(x)).learn(x, y)
    return {pair.name: Gaussian(pair.mean.detach(), pair.std.detach() - 1) for pair in net.pairs()}


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("numbers", [False, True], ids=["classes", "numbers"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "none"])
@pytest.mark.parametrize("tanh", [False, True], ids=["relu", "tanh"])
@pytest.mark.parametrize("depth", SIZES)
def test_gradient_and_curvature_are_those_of_autograd(depth, tanh, bias, numbers, batch):
    net = posterior(SIZES[depth], bias=bias, tanh=tanh, numbers=numbers)
    x, y = examples(SIZES[depth], batch, numbers)
    wanted = exact_gradients(net, x, y)
    shown = shown_gradients(net, x, y)
    for name, gradient in wanted.items():
        assert gradient.std.max() > 1e-3
        assert (shown[name].mean - gradient.mean).abs().max() < 1e-9
        assert (shown[name].std - gradient.std).abs().max() < 1e-9


def test_without_idle_constants_the_gradients_are_the_same(monkeypatch):
    monkeypatch.delattr(sys.modules[__name__], "idle")
    net = posterior(SIZES[2])
    x, y = examples(SIZES[2], 1)
    wanted = exact_gradients(net, x, y)
    shown = shown_gradients(net, x, y)
    for name, gradient in wanted.items():
        assert (shown[name].mean - gradient.mean).abs().max() < 1e-9
        assert (shown[name].std - gradient.std).abs().max() < 1e-9


# -- whole updates ----------------------------------------------------------------------------------------------------


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"memory": 50, "prior_std": 0.5},
    "prior at the start": {"memory": 50, "prior_std": "start"},
    "paper": {"memory": 50, "update": "paper", "max_step": 0.2},
    "some cut": {"memory": 50, "max_step": 0.02, "lr_std": 2.0, "prior_mean": 0.1},
    "widest": {"memory": 50, "max_std": 0.3, "lr_mean": 0.7},
}


@pytest.mark.filterwarnings("ignore:MESU does not bound the steps")  # of the paper's rule; the data here are tame
@pytest.mark.parametrize("narrowing", [1.0, 300.0])
@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("settings", SETTINGS)
def test_updates_are_those_of_the_rule_on_the_exact_gradients(settings, batch, depth, narrowing):
    net = posterior(SIZES[depth], init_std=None, narrowing=narrowing)  # each parameter starts with a sigma of its own
    x, y = examples(SIZES[depth], 3 * batch)
    optimizer = mesu.MESU(net, **SETTINGS[settings])
    twin = posterior(SIZES[depth], init_std=None, narrowing=narrowing)
    c = optimizer.constants(optimizer.param_groups[0])
    if settings != "paper":
        assert (c.narrow is not None) == (narrowing > 1)
    PosteriorEngine(net, optimizer, samples=3, batch=batch).learn(x, y)
    for rows in range(0, len(x), batch):
        known = curvature_constants(c) is not None
        gradients = (slopes_and_curvatures if known else exact_gradients)(
            twin, x[rows : rows + batch], y[rows : rows + batch]
        )
        for pair in twin.pairs():
            assert pair.start is not None
            own = scaled_constants(c, pair.start**-2)
            own = curvature_constants(own) if known else own
            q = Gaussian(pair.mean.detach(), pair.std.detach())
            new = sys.modules[type(own).__module__].step(q, gradients[pair.name], own)
            pair.mean.data, pair.std.data = new.mean, new.std
    for mine, theirs in zip(net.pairs(), twin.pairs(), strict=True):
        assert (mine.mean - theirs.mean).abs().max() < 1e-9
        assert (mine.std - theirs.std).abs().max() < 1e-9


def test_a_prior_at_the_start_is_reached_without_evidence():
    net = posterior(SIZES[2], init_std=None)
    x = np.zeros((500, 5))
    with torch.no_grad():
        for pair in net.pairs():
            pair.std.mul_(0.5)
            if pair.name == "0.weight":
                assert pair.start != 1
    PosteriorEngine(net, mesu.MESU(net, memory=10, prior_std="start"), 1).learn(x, np.zeros(500, int))
    first = next(net.pairs())
    assert float(first.std.detach().min()) == pytest.approx(first.start, rel=1e-6)
    assert float(first.std.detach().max()) == pytest.approx(first.start, rel=1e-6)


@pytest.mark.parametrize("settings", ["local", "weights"])
def test_other_estimators_take_the_prior_from_each_start_too(settings):
    net = posterior(SIZES[1], init_std=None)
    net.estimator = settings
    with torch.no_grad():
        for pair in net.pairs():
            pair.std.mul_(0.5)
    mesu.BayesianLearner(net, mesu.MESU(net, memory=10, prior_std="start"), samples=2).learn(
        np.zeros((500, 5)), np.zeros(500, int)
    )
    first = next(net.pairs())
    assert float(first.std.detach().min()) == pytest.approx(first.start, rel=1e-6)
    assert float(first.std.detach().max()) == pytest.approx(first.start, rel=1e-6)


def test_linear_regression_is_the_closed_form():
    # one weight w, y = w x + noise: conjugate, and the exact step without forgetting is Bayes' rule, however wide the start
    net = mesu.Bayesian(
        nn.Linear(1, 1, bias=False).double(),
        estimator="linear",
        likelihood="gaussian",
        noise_std=NOISE_STD,
        init_std=2.0,
        narrowing=1.0,
        seed=0,
    )
    (pair,) = net.pairs()
    precision, weighted = 2.0**-2, float(pair.mean.detach()) / 2.0**2
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 1))
    y = 1.5 * x + NOISE_STD * rng.normal(size=(40, 1))
    PosteriorEngine(net, mesu.MESU(net, memory=math.inf, max_step=None), 1).learn(x, y)
    precision += float((x**2).sum()) / NOISE_STD**2
    weighted += float((x * y).sum()) / NOISE_STD**2
    assert float(pair.std.detach()) == pytest.approx(precision**-0.5, rel=1e-10)
    assert float(pair.mean.detach()) == pytest.approx(weighted / precision, rel=1e-10)


# -- chunks, refusals, the disk ---------------------------------------------------------------------------------------


def values(net):
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


@pytest.mark.parametrize("max_step", [1.0, 0.05])  # most rows of the first layer are free, or most are cut
@pytest.mark.parametrize("inputs", [7, 16, 39])
@pytest.mark.parametrize("batch", [1, 2])
def test_chunks_change_nothing_at_all(batch, inputs, max_step):
    x, y = examples((inputs, 3), 60)
    results = []
    for cuts in ([], [2, 4, 30], list(range(2, 60, 2))):
        net = posterior((inputs, 33, 7, 3), dtype=torch.float32)
        noise = net.noise.state
        learner = mesu.BayesianLearner(net, mesu.MESU(net, memory=100, max_step=max_step), batch=batch)
        for part_x, part_y in zip(np.split(x, cuts), np.split(y, cuts), strict=True):
            learner.learn(part_x.astype(np.float32), part_y)
        results.append(values(net))
        assert torch.equal(net.noise.state, noise)  # nothing was drawn
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_the_number_of_samples_changes_nothing():
    x, y = examples((20, 3), 60)
    results = []
    for samples in (1, 10):
        net = posterior((20, 33, 3))
        mesu.BayesianLearner(net, mesu.MESU(net, memory=100), samples=samples).learn(x, y)
        results.append(values(net))
    assert torch.equal(*results)


@pytest.mark.parametrize(("batch", "lr_std"), [(1, 10.0), (2, 10.0), (1, 30.0)])
def test_a_sigma_that_turns_negative_on_the_way_refuses_the_chunk(batch, lr_std):
    x, y = examples((20, 3), 60)
    net = posterior((20, 33, 3))
    learner = mesu.BayesianLearner(
        net, mesu.MESU(net, memory=100, update="paper", lr_std=lr_std, max_step=None), batch=batch
    )
    learner.learn(x / 200, y)
    before = values(net)
    scale = np.full((60, 1), 0.005)
    scale[10] = 8  # one example that says a lot
    with pytest.raises(mesu.StepRefused, match="nothing changed"):
        learner.learn(x * scale, y)
    assert torch.equal(values(net), before)
    learner.learn(x / 200, y)
    assert torch.isfinite(values(net)).all()


def test_a_certain_network_has_no_negative_curvature():
    # p of one class is one to a rounding: the variance of the Jacobian under p must not be a difference of squares
    net = posterior((20, 33, 3), dtype=torch.float32)
    x, y = examples((20, 3), 1)
    shown = shown_gradients(net, 30 * x, y)
    assert all((gradient.std >= 0).all() for gradient in shown.values())


CHILD = """
import numba.core.event as event, sys
import numpy as np, torch
from torch import nn
import mesu
from mesu.engine import PosteriorEngine, loops
compiled = []
class Listener(event.Listener):
    def on_start(self, event): compiled.append(event.data["dispatcher"].py_func.__qualname__)
    def on_end(self, event): pass
event.register("numba:compile", Listener())
net = mesu.Bayesian(nn.Linear(4, 3), estimator="linear", narrowing=1.0, seed=0)
PosteriorEngine(net, mesu.MESU(net, memory=100), 1).learn(np.ones((3, 4)), np.array([0, 1, 2]))
print(sum(name.startswith("learn") for name in compiled))
"""


def test_a_second_process_loads_what_the_first_compiled(tmp_path):
    root = Path(mesu.__file__).parents[1]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(root)}
    counts = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True, check=True
        )
        counts.append(int(done.stdout))
    assert counts == [1, 0]


# -- what is run, and what is drawn -----------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["local", "weights"])
def test_only_the_linear_loop_takes_draws_narrower_than_sigma(estimator):
    net = mesu.Bayesian(nn.Linear(4, 3), estimator=estimator, narrowing=30, seed=0)
    reason = "its draws are narrower than its sigmas (narrowing=30), which only estimator='linear' compiles"
    assert why_not(net, mesu.MESU(net, memory=100)) == reason
    net = mesu.Bayesian(nn.Linear(4, 3), estimator="linear", narrowing=30, seed=0)
    assert why_not(net, mesu.MESU(net, memory=100)) is None


@pytest.mark.parametrize("likelihood", ["categorical", "gaussian", "bernoulli"])
def test_the_linear_loop_takes_the_likelihoods_that_it_knows(likelihood):
    net = mesu.Bayesian(nn.Linear(4, 3), estimator="linear", likelihood=likelihood, seed=0)
    reason = why_not(net, mesu.MESU(net, memory=100))
    assert reason is None if likelihood != "bernoulli" else "Bernoulli, has no compiled form" in str(reason)


def test_a_prior_at_unknown_starts_is_left_to_torch():
    net = posterior(SIZES[1])
    optimizer = mesu.MESU(net, memory=100, prior_std="start")
    assert why_not(net, optimizer) is None
    net._starts.pop("2.bias")
    assert "not known of 2.bias" in str(why_not(net, optimizer))
    assert why_not(net, mesu.MESU(net, memory=100)) is None


def test_predictions_are_drawn_narrower_than_what_is_believed():
    net = posterior((6, 5, 3), init_std=0.5, narrowing=40.0)
    twin = posterior((6, 5, 3), init_std=0.5)
    for mine, theirs in zip(net.pairs(), twin.pairs(), strict=True):
        owner, _, leaf = mine.name.rpartition(".")
        drawn = drawn_std(net.module.get_submodule(owner), leaf)
        assert drawn is not None
        theirs.std.data = drawn.detach().clone()
        assert theirs.std.max() < 0.5 * mine.std.min()
    x, _ = examples((6, 3), 70)
    before = values(net)
    draws = [PosteriorEngine(one, mesu.MESU(one, memory=10), 1).draw(x, samples=7, seed=3) for one in (net, twin)]
    assert np.array_equal(*draws)
    assert torch.equal(values(net), before)
