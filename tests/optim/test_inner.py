"""Rules that let another optimiser move the weights, by hand and beside plain descent."""

import copy

import pytest
import torch
from torch import nn

import mesu
from mesu import optim
from mesu.lab.experiments.cifar import experiment as experiment


def quadratic(optimizer, parameter, target):
    """One step on (w - target)^2 / 2."""
    optimizer.zero_grad()
    (0.5 * (parameter - target) ** 2).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("kind", [optim.SI, optim.SIPerTask])
def test_si_by_hand(kind):
    # from 0 towards 4 by halves: gradients -4, -2; steps 2, 1; path 4*2 + 2*1 = 10; moved 3, damping 1: 10 / (9 + 1) = 1
    w = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    si = kind([w], lr=0.5, strength=0.25, damping=1.0, inner=torch.optim.SGD)
    quadratic(si, w, 4.0)
    quadratic(si, w, 4.0)
    assert w.item() == pytest.approx(3.0)
    assert si.state[w]["path"].item() == pytest.approx(10.0)
    si.consolidate()
    assert si.state[w]["importance"].item() == pytest.approx(1.0)
    # towards 1, gradient 2 and no pull yet: w = 2, path 2; then gradient 1 + 2 * 0.25 * 1 * (2 - 3) = 0.5: w = 1.75, path 2.25
    quadratic(si, w, 1.0)
    quadratic(si, w, 1.0)
    assert w.item() == pytest.approx(1.75)
    assert si.state[w]["path"].item() == pytest.approx(2.25)
    si.consolidate()
    gain = 2.25 / (1.25**2 + 1)
    assert si.state[w]["importance"].item() == pytest.approx(1 + gain)
    # where the penalty is least: SI has moved all of it to here, an anchor for each task leaves the first at 3
    rest = 1.75 if kind is optim.SI else (3.0 + gain * 1.75) / (1 + gain)
    c = si.constants(si.param_groups[0])
    slope = si.file.penalised(torch.tensor([rest], dtype=torch.float64), torch.zeros(1), si.rule_state(w), c)
    assert slope.abs().item() < 1e-12


@pytest.mark.parametrize("kind", ["ewc", "ewc-online", "si", "si-per-task"])
def test_following_plain_descent_is_the_rule_itself(kind):
    make = {
        "ewc": lambda p, **more: optim.EWC(p, 0.1, 2.0, **more),
        "ewc-online": lambda p, **more: optim.EWCOnline(p, 0.1, 2.0, 0.5, **more),
        "si": lambda p, **more: optim.SI(p, 0.1, 2.0, **more),
        "si-per-task": lambda p, **more: optim.SIPerTask(p, 0.1, 2.0, **more),
    }[kind]
    ends = []
    for more in ({}, {"inner": torch.optim.SGD}):
        w = nn.Parameter(torch.tensor([0.0, 1.0], dtype=torch.float64))
        rule = make([w], **more)
        for target in (3.0, -1.0, 0.5):
            for _ in range(4):
                quadratic(rule, w, torch.tensor([target, 2 * target]))
            rule.consolidate(*([[torch.tensor([0.3, 0.7])]] if kind.startswith("ewc") else []))
        ends.append((w.detach().clone(), *rule.state[w].values()))
    for one, other in zip(*ends, strict=True):
        assert torch.allclose(one, other, rtol=1e-12)


def test_without_strength_it_is_adam_to_the_bit():
    ends = []
    for make in (lambda p: torch.optim.Adam(p, 0.1), lambda p: optim.EWC(p, 0.1, 0.0, inner=torch.optim.Adam)):
        w = nn.Parameter(torch.tensor([0.0, 1.0]))
        rule = make([w])
        for _ in range(5):
            quadratic(rule, w, 3.0)
        ends.append(w.detach().clone())
    assert torch.equal(*ends)


def test_a_gradient_that_is_not_finite_is_refused_before_the_inner_optimiser_sees_it():
    w = nn.Parameter(torch.zeros(2))
    rule = optim.EWC([w], 0.1, 1.0, inner=torch.optim.Adam)
    w.grad = torch.tensor([1.0, float("nan")])
    with pytest.raises(mesu.StepRefused, match="nothing changed"):
        rule.step()
    assert torch.equal(w, torch.zeros(2))
    assert not rule.inner.state  # type: ignore[union-attr]


def test_state_of_the_inner_optimiser_goes_along():
    def begun():
        w = nn.Parameter(torch.zeros(2))
        return w, optim.SI([w], 0.1, 1.0, inner=torch.optim.Adam)

    w, rule = begun()
    for _ in range(3):
        quadratic(rule, w, 3.0)
    saved, at = copy.deepcopy(rule.state_dict()), w.detach().clone()
    quadratic(rule, w, 3.0)
    again, other = begun()
    again.data.copy_(at)
    other.load_state_dict(saved)
    quadratic(other, again, 3.0)
    assert torch.equal(w, again)
    with pytest.raises(ValueError, match="inner"):
        optim.SI([nn.Parameter(torch.zeros(2))], 0.1, 1.0).load_state_dict(saved)
