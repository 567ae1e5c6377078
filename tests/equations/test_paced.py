"""The rule of deep networks: its step in closed form, what it is for large and for no evidence, and compiled for scalars."""

from math import inf, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.equations.cases import means, powers, sigmas, signed

from mesu.engine import compiled
from mesu.rules import Gaussian, curvature, mesu, paced

AT_ONCE = {"momentum": 0.0}


def numbers(*values, dtype=torch.float64):
    return [torch.tensor([float(value)], dtype=dtype) for value in values]


def stepped(mean, std, g, h, c, velocity=0.0, dtype=torch.float64):
    mean, std, g, h, velocity = numbers(mean, std, g, h, velocity, dtype=dtype)
    return paced.step(Gaussian(mean, std), Gaussian(g, h), paced.State(velocity), c)


def constants(start, memory=inf, **settings):
    return paced.scaled(paced.constants(memory, **settings), torch.tensor([start], dtype=torch.float64))


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_a_step_in_closed_form(momentum):
    mean, std, g, h, memory, start = 0.4, 0.2, -0.05, 3.0, 50.0, 9.0
    new, state = stepped(mean, std, g, h, constants(start, memory, momentum=momentum, pace=0.2), 0.02)
    precision = (1 - 1 / memory) / std**2 + start / memory + h
    evidence = precision - start
    move = g / (evidence + sqrt(evidence) / (0.2 / sqrt(start))) + mean * start / memory / precision
    velocity = momentum * 0.02 - (1 - momentum) * move
    assert float(new.std) == pytest.approx(precision**-0.5, rel=1e-12)
    assert float(state.velocity) == pytest.approx(velocity, rel=1e-12)
    assert float(new.mean) == pytest.approx(mean + velocity, rel=1e-12)


@given(mean=means, std=sigmas, g=signed(-6, 3), h=powers(-6, 6), memory=powers(1, 6))
def test_sigma_follows_bayes_rule_as_with_bounded_steps(mean, std, g, h, memory):
    mean, std, g, h = numbers(mean, std, g, h)
    q, with_h = Gaussian(mean, std), Gaussian(g, h)
    ours, _ = paced.step(q, with_h, paced.initial(q), constants(4.0, memory))
    theirs = curvature.step(q, with_h, mesu.for_curvature(mesu.scaled(mesu.constants(memory, prior_std="start"), 4.0)))
    torch.testing.assert_close(ours.std, theirs.std, rtol=1e-12, atol=0)


def test_with_much_evidence_it_is_least_squares():
    """One weight, y = w x + noise: with no pace to keep, a flat prior, no forgetting and no momentum."""
    draw = np.random.default_rng(0)
    x, noise = draw.normal(size=40), draw.normal(size=40)
    y = 1.7 * x + noise
    c, new = constants(1e-12, pace=1e9, **AT_ONCE), Gaussian(*numbers(0.3, 1e6))
    state = paced.initial(new)
    for one, target in zip(x, y, strict=True):
        new, state = paced.step(new, Gaussian(one * (new.mean * one - target), torch.tensor([one**2])), state, c)
    assert float(new.mean) == pytest.approx((x * y).sum() / (x * x).sum(), rel=1e-6)
    assert float(new.std) == pytest.approx((x * x).sum() ** -0.5, rel=1e-6)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("start", [1e-2, 1.0, 100.0])
def test_typical_gradients_of_any_size_move_all_layers_alike(size, start):
    """The t-th by pace * sigma_0 / sqrt(t), less the little that the evidence takes off."""
    g, c = size * sqrt(start), constants(start, pace=0.01, **AT_ONCE)
    q, state = Gaussian(*numbers(0.0, start**-0.5)), paced.State(*numbers(0.0))
    for t in range(1, 6):
        before = float(q.mean)
        q, state = paced.step(q, Gaussian(*numbers(-g, g**2)), state, c)
        wanted = 0.01 / (sqrt(t) + 0.01 * t * size)
        assert (float(q.mean) - before) * sqrt(start) == pytest.approx(wanted, rel=1e-7)


def test_no_step_is_longer_than_its_bound():
    for g in (1e3, -1e3, 1e30):
        new, _ = stepped(0.0, 0.5, g, 1e-12, constants(4.0, **AT_ONCE))
        assert abs(float(new.mean)) == pytest.approx(paced.FURTHEST * 0.5, rel=1e-9)


def test_moves_add_up_with_momentum():
    """Under the same move again and again, the mean goes 1 - momentum^t of it at the t-th step."""
    c = constants(1.0, momentum=0.8)._replace(lr_std=0.0)
    q, state = Gaussian(*numbers(0.0, 1.0)), paced.State(*numbers(0.0))
    for t in range(1, 6):
        before = float(q.mean)
        q, state = paced.step(q, Gaussian(*numbers(1e9, 0.0)), state, c)
        assert float(q.mean) - before == pytest.approx(-paced.FURTHEST * (1 - 0.8**t), rel=1e-9)


def test_weights_that_nothing_reaches_only_forget():
    new, _ = stepped(0.7, 0.5, 0.0, 0.0, constants(4.0, 100.0, **AT_ONCE))
    assert float(new.std) == pytest.approx(0.5, rel=1e-12)
    assert float(new.mean) == pytest.approx(0.7 * (1 - 1 / 100), rel=1e-12)
    new, _ = stepped(0.7, 0.5, 0.0, 0.0, constants(4.0, **AT_ONCE))
    assert (float(new.mean), float(new.std)) == (0.7, 0.5)


def test_the_memory_holds_as_many_updates_as_it_says():
    c = constants(4.0, 20.0)
    q, state = Gaussian(*numbers(0.0, 0.5)), paced.State(*numbers(0.0))
    for _ in range(400):
        q, state = paced.step(q, Gaussian(*numbers(0.1, 2.0)), state, c)
    assert float(q.std) == pytest.approx((4 + 20 * 2.0) ** -0.5, rel=1e-6)  # the prior, and twenty examples


@given(
    mean=st.floats(-1e3, 1e3),
    std=powers(-6, 3),
    g=signed(-30, 30),
    h=st.one_of(st.just(0.0), powers(-30, 30)),
    start=powers(-6, 6),
    lr=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_nothing_breaks_it_in_single_precision(mean, std, g, h, start, lr):
    c = paced.scaled(paced.constants(1000.0, lr_mean=lr, lr_std=lr), torch.tensor([start]))
    new, state = stepped(mean, std, g, h, c, dtype=torch.float32)
    assert torch.isfinite(new.mean + new.std + state.velocity).all()
    assert float(new.std) > 0
    furthest = paced.FURTHEST * lr / start**0.5 + abs(mean) * lr * max(1.0, std**2 * start) / 1000
    assert abs(float(state.velocity)) <= 0.5001 * furthest + 1e-30


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pace": 0.0}, r"pace must be a finite number greater than 0, got 0\.0"),
        ({"momentum": 1.0}, r"momentum must be at least 0 and less than 1, got 1\.0"),
        ({"momentum": -0.1}, r"momentum must be at least 0 and less than 1, got -0\.1"),
        ({"memory": 0.5}, r"memory .* got 0\.5"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        paced.constants(**{"memory": 100, **settings})


def test_compiled_for_scalars_it_is_the_same():
    fast = compiled(paced.step)
    for memory in (inf, 300.0):
        given = paced.constants(memory, prior_mean=0.2, lr_mean=1.5, lr_std=0.5)
        of_scalars, c = paced.scaled(given, 9.0), paced.scaled(given, torch.tensor([9.0], dtype=torch.float64))
        for mean, std, g, h in [
            (0.3, 0.05, 0.7, 0.2),
            (-1.2, 0.8, -3.0, 40.0),
            (0.0, 1.0, 0.0, 0.0),
            (4.0, 1e-6, 1e12, 1e12),
        ]:
            new, state = fast(Gaussian(mean, std), Gaussian(g, h), paced.State(0.01), of_scalars)
            wanted, after = stepped(mean, std, g, h, c, 0.01)
            for one, other in zip((*new, *state), (*wanted, *after), strict=True):
                assert one == pytest.approx(float(other), rel=1e-12, abs=1e-15)
