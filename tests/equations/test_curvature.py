"""The step for a known curvature: Bayes' rule on a linear regression, its bounds, and the way through sigma's gradient."""

from math import inf

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import mesu
from mesu.engine import PosteriorEngine
from mesu.rules import Gaussian, curvature, mesu_paper
from mesu.rules import mesu as rule
from mesu.rules.curvature import gradient_of_sigma, may_be_cut, step, uncut_step
from mesu.rules.parts import curvature_constants, scaled_constants

NOISE = 0.5  # standard deviation of the noise of y = w x + noise
WIDTH = 40


def vector(generator, low, high, dtype=torch.float64):
    return (low + (high - low) * torch.rand(WIDTH, generator=generator, dtype=torch.float64)).to(dtype)


def weights(seed=0):
    """A posterior, its gradient and a curvature, of usual sizes."""
    generator = torch.Generator().manual_seed(seed)
    q = Gaussian(vector(generator, -1, 1), vector(generator, 0.01, 0.6))
    return q, Gaussian(vector(generator, -3, 3), vector(generator, 0, 20))


# -- Bayes' rule ------------------------------------------------------------------------------------------------------


def posterior_of(examples, memory, prior_mean, prior_std):
    """Mean and std of one weight, from natural parameters that decay by 1/N towards the prior's before every example."""
    precision, weighted = prior_std**-2, prior_mean * prior_std**-2
    for x, y in examples:
        keep = 1 - 1 / memory
        precision = keep * precision + (1 - keep) * prior_std**-2 + (x / NOISE) ** 2
        weighted = keep * weighted + (1 - keep) * prior_mean * prior_std**-2 + x * y / NOISE**2
    return weighted / precision, precision**-0.5


def regression(rows=60):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, generator=generator, dtype=torch.float64)
    return x, 1.5 * x + NOISE * torch.randn(rows, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("memory", [inf, 30.0, 1.5])
def test_it_is_bayes_rule_with_forgetting(memory):
    x, y = regression()
    c = rule.for_curvature(rule.constants(memory, prior_mean=0.4, prior_std=2.0))
    q = Gaussian(torch.tensor(0.4, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64))
    for a, b in zip(x, y, strict=True):
        q = step(q, Gaussian(a * (a * q.mean - b) / NOISE**2, (a / NOISE) ** 2), c)
    mean, std = posterior_of(zip(x.tolist(), y.tolist(), strict=True), memory, 0.4, 2.0)
    assert float(q.mean) == pytest.approx(mean, rel=1e-12)
    assert float(q.std) == pytest.approx(std, rel=1e-12)


@pytest.mark.parametrize("engine", [True, False], ids=["engine", "torch"])
@pytest.mark.parametrize("memory", [inf, 30.0])
def test_a_network_of_one_weight_is_the_closed_form(memory, engine):
    x, y = regression()
    module = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(module.weight, 0.4)
    options = {"likelihood": "gaussian", "noise_std": NOISE, "init_std": 2.0, "narrowing": 1.0, "seed": 0}
    net = mesu.Bayesian(module, estimator="linear", **options)
    opt = mesu.MESU(net, memory=memory, prior_mean=0.4, prior_std=2.0, max_step=None)
    if engine:
        PosteriorEngine(net, opt, 1).learn(x[:, None].numpy(), y[:, None].numpy())
    else:
        # torch draws labels for the curvature: give it the known one
        ((_, w, sigma),) = net.pairs()
        for a, b in zip(x, y, strict=True):
            w.grad = (a * (a * w.detach() - b) / NOISE**2).view_as(w)
            sigma.grad = (sigma.detach() * (a / NOISE) ** 2).view_as(w)
            opt.step()
    mean, std = posterior_of(zip(x.tolist(), y.tolist(), strict=True), memory, 0.4, 2.0)
    ((_, w, sigma),) = net.pairs()
    assert float(w.detach()) == pytest.approx(mean, rel=1e-12)
    assert float(sigma.detach()) == pytest.approx(std, rel=1e-12)


@pytest.mark.parametrize("times", [2, 5])
def test_a_rate_counts_the_example_that_many_times(times):
    q, g = weights()
    once = rule.for_curvature(rule.constants(inf))
    often = rule.for_curvature(rule.constants(inf, lr_std=times))
    std = q.std
    for _ in range(times):
        std = step(Gaussian(q.mean, std), g, once).std
    assert torch.allclose(step(q, g, often).std, std, rtol=1e-12)


def test_rates_and_prior_stand_where_the_equations_have_them():
    q, g = weights()
    c = rule.for_curvature(rule.constants(20.0, prior_mean=0.3, prior_std=0.7, lr_mean=0.5, lr_std=3.0))
    precision = (1 - 3 / 20) / q.std**2 + 3 / (20 * 0.7**2) + 3 * g.std
    new = step(q, g, c)
    assert torch.allclose(new.std, precision**-0.5, rtol=1e-12)
    slope = g.mean + (q.mean - 0.3) / (20 * 0.7**2)
    assert torch.allclose(new.mean, q.mean - 0.5 / precision * slope, rtol=1e-12)


# -- the way through sigma's gradient -----------------------------------------------------------------------------------


def through_sigma(q, g, c):
    return rule.step(q, Gaussian(g.mean, gradient_of_sigma(q.std, g.std)), c)


def test_without_forgetting_both_ways_are_one():
    q, g = weights()
    c = rule.constants(inf, max_step=0.3, narrowing=30.0)
    c = scaled_constants(c, 4.0)
    one, other = step(q, g, rule.for_curvature(c)), through_sigma(q, g, c)
    assert torch.allclose(one.std, other.std, rtol=1e-12)
    assert torch.allclose(one.mean, other.mean, rtol=1e-12)


@pytest.mark.parametrize("lr_std", [1.0, 0.2, 4.0])
def test_with_rates_and_forgetting_they_agree_where_an_example_says_little(lr_std):
    q, g = weights()
    c = rule.constants(200.0, prior_std=0.5, lr_std=lr_std)
    apart = []
    for share in (1e-4, 5e-5):
        h = share / q.std**2
        one, other = (step(q, Gaussian(g.mean, h), rule.for_curvature(c)), through_sigma(q, Gaussian(g.mean, h), c))
        assert torch.allclose(one.std, other.std, rtol=share * lr_std * (share + lr_std / 20), atol=0)
        apart.append((one.std - other.std).abs().max())
    # what is left is of second order: sigma^2 h times itself, or times the share that is forgotten
    assert apart[1] < 0.6 * apart[0]


def test_rules_without_the_part_are_given_sigmas_gradient():
    assert curvature_constants(mesu_paper.constants(50.0)) is None
    net = mesu.Bayesian(nn.Linear(3, 2).double(), estimator="linear", narrowing=1.0, seed=0)
    opt = mesu.MESU(net, memory=50, update="paper")
    before, h = [Gaussian(p.mean.detach().clone(), p.std.detach().clone()) for p in net.pairs()], 0.1
    for pair in net.pairs():
        pair.mean.grad, pair.std.grad = torch.ones_like(pair.mean), h * pair.std.detach()
    opt.step()
    for pair, q in zip(net.pairs(), before, strict=True):
        g = Gaussian(torch.ones_like(q.mean), gradient_of_sigma(q.std, torch.full_like(q.std, h)))
        wanted = mesu_paper.step(q, g, mesu_paper.constants(50.0))
        assert torch.allclose(pair.std, wanted.std, rtol=1e-12)
        assert torch.allclose(pair.mean, wanted.mean, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::mesu.LearningWarning")  # it says that it is negative
def test_a_negative_curvature_of_several_costs_counts_as_none():
    net = mesu.Bayesian(nn.Linear(3, 2).double(), estimator="linear", narrowing=1.0, seed=0)
    opt = mesu.MESU(net, memory=inf)
    before = [pair.std.detach().clone() for pair in net.pairs()]
    for pair in net.pairs():
        pair.mean.grad, pair.std.grad = torch.zeros_like(pair.mean), torch.full_like(pair.std, -3.0)
    opt.step()
    assert all(torch.equal(pair.std.detach(), std) for pair, std in zip(net.pairs(), before, strict=True))


# -- bounds -----------------------------------------------------------------------------------------------------------

DTYPES = {"single": torch.float32, "double": torch.float64}
MEMORIES = st.one_of(st.just(inf), st.floats(1e-9, 1e6).map(lambda above: 1.0 + above))


@st.composite
def constants(draw):
    memory = draw(MEMORIES)
    c = rule.constants(
        memory,
        prior_mean=draw(st.floats(-2, 2)),
        prior_std=draw(st.floats(1e-3, 1e3)),
        lr_mean=draw(st.floats(0, 0.999)) * min(memory, 100.0),
        lr_std=draw(st.floats(0, 0.999)) * min(memory, 100.0),
        max_step=draw(st.sampled_from([None, 0.01, 0.3, 1.0, 3.0])),
        max_std=draw(st.sampled_from([None, 0.5])),
        narrowing=draw(st.sampled_from([1.0, 30.0])),
    )
    return scaled_constants(c, draw(st.floats(1e-2, 1e4)))


@pytest.mark.parametrize("kind", DTYPES)
@settings(max_examples=300, deadline=None)
@given(c=constants(), std=st.floats(1e-12, 1e3), h=st.floats(0, 3e38), g=st.floats(-1e30, 1e30))
def test_sigma_is_positive_and_finite_for_every_finite_input(kind, c, std, h, g):
    dtype = DTYPES[kind]
    q = Gaussian(torch.tensor([0.1], dtype=dtype), torch.tensor([std], dtype=dtype))
    new = step(q, Gaussian(torch.tensor([g], dtype=dtype), torch.tensor([h], dtype=dtype)), rule.for_curvature(c))
    assert 0 < float(new.std) < inf
    if c.max_step is not None:
        assert torch.isfinite(new.mean).all()


@settings(max_examples=300, deadline=None)
@given(c=constants(), seed=st.integers(0, 10), size=st.floats(-4, 4))
def test_no_step_is_longer_than_its_bounds(c, seed, size):
    q, g = weights(seed)
    new = step(q, Gaussian(10**size * g.mean, 10**size * g.std), rule.for_curvature(c))
    tight = 1 + 1e-9
    if c.max_step is not None:
        drawn = q.std if c.narrow is None else (q.std**-2 + c.narrow) ** -0.5
        assert ((new.mean - q.mean).abs() <= tight * c.max_step * drawn + 1e-12).all()
        assert (new.std <= tight * (1 + c.max_step) * q.std).all()
        if c.max_std is None:
            assert (new.std >= (1 - c.max_step) * q.std / tight).all()
    if c.max_std is not None:
        assert (new.std <= c.max_std * tight).all()


@settings(max_examples=500, deadline=None)
@given(c=constants(), seed=st.integers(0, 10), size=st.floats(-8, 2), spread=st.floats(-3, 0))
def test_rows_that_may_not_be_cut_are_not(c, seed, size, spread):
    q, g = weights(seed)
    q, g = Gaussian(q.mean, 10**spread * q.std), Gaussian(10**size * g.mean, 10**size * g.std)
    k = rule.for_curvature(c)
    most = [Gaussian(*(float(part.abs().max()) for part in value)) for value in (q, g)]
    if not may_be_cut(*most, k):
        whole, free = step(q, g, k), uncut_step(q, g, k)
        assert torch.allclose(whole.mean, free.mean, rtol=1e-9, atol=1e-12)
        assert torch.allclose(whole.std, free.std, rtol=1e-9, atol=0)


def test_small_steps_of_usual_settings_are_not_cut():
    # else the engine would gain nothing
    for c in (
        rule.constants(1e4),
        rule.constants(1e4, max_step=0.3, narrowing=30.0),
        rule.constants(1e4, max_step=1.0),
    ):
        k = rule.for_curvature(scaled_constants(c, 4.0))
        assert not may_be_cut(Gaussian(1.0, 0.6), Gaussian(1e-3, 1e-3), k)
        assert c.max_step is None or may_be_cut(Gaussian(1.0, 0.6), Gaussian(10.0, 1e-3), k)
        assert may_be_cut(Gaussian(1.0, 0.6), Gaussian(1e-3, float("nan")), k)
    assert may_be_cut(Gaussian(1.0, 0.6), Gaussian(1e-3, 1e30), rule.for_curvature(rule.constants(1e4)))


def test_idle_constants_move_nothing():
    q, g = weights()
    nothing = Gaussian(0 * g.mean, 0 * g.std)
    c = rule.for_curvature(rule.idle(rule.constants(20.0, prior_mean=0.3, max_step=0.3, max_std=0.1)))
    assert isinstance(c, curvature.Constants)
    for move in (step, uncut_step):
        assert torch.equal(move(q, nothing, c).mean, q.mean)
        assert torch.equal(move(q, nothing, c).std, q.std)
