"""The contract checks: every rule of the library keeps every contract, and each contract catches a rule that breaks it."""

import sys
import types

import pytest

from mesu import rules
from mesu.testing import CONTRACTS, ContractBroken, check_rule

PRIOR = {"prior_mean": 0.2, "prior_std": 0.7}
CONSOLIDATING = {"lr": 0.02, "strength": 5.0}
BUILT_IN = {
    "mesu": (rules.mesu, {"memory": 300.0, "lr_mean": 1.5, "lr_std": 3.0, **PRIOR}, True),
    "mesu, bounded": (rules.mesu, {"memory": 300.0, "max_step": 0.5, "max_std": 2.0, **PRIOR}, True),
    "mesu-paper": (rules.mesu_paper, {"memory": 300.0, "lr_std": 2.0, **PRIOR}, False),
    "mesu-paper, bounded": (rules.mesu_paper, {"memory": 300.0, "max_step": 0.5, **PRIOR}, True),
    "foo-vb": (rules.foovb, {"lr_mean": 0.5, "lr_std": 2.0}, True),
    "newton": (rules.newton, {"gamma": 0.01, "memory": 100.0, **PRIOR}, False),
    "bayes-by-backprop": (rules.bayes_by_backprop, {"lr": 0.01, "kl_weight": 0.1, **PRIOR}, False),
    "bayesian-synapse": (rules.bayesian_synapse, {"tau": 50.0, **PRIOR}, False),
    "sgd": (rules.sgd, {"lr": 0.02}, False),
    "ewc": (rules.ewc, CONSOLIDATING, False),
    "ewc-online": (rules.ewc_online, {**CONSOLIDATING, "decay": 0.2}, False),
    "ewc-stream": (rules.ewc_stream, {**CONSOLIDATING, "decay": 0.2}, False),
    "si": (rules.si, {**CONSOLIDATING, "damping": 1e-3}, False),
    "si-per-task": (rules.si_per_task, {**CONSOLIDATING, "damping": 1e-3}, False),
}
WEIGHT = """
from typing import Any, NamedTuple
import math
import torch
from mesu.rules import checks, sgd

class Constants(NamedTuple):
    lr: float

class State(NamedTuple):
    velocity: Any

def constants(lr):
    return Constants(checks.non_negative("lr", lr))

def idle(c):
    return c._replace(lr=0.0)

def initial(w):
    return State(0.0 * w)

def step(w, g, state, c):
    velocity = 0.5 * state.velocity + g
    return w - c.lr * velocity, State(velocity)

def consolidate(w, state, c):
    return State(0.1 * state.velocity)
"""
POSTERIOR = """
from typing import NamedTuple
from mesu.rules import Gaussian, checks, curvature
from mesu.rules.primitives import between, root

class Constants(NamedTuple):
    lr: float

def constants(lr):
    return Constants(checks.non_negative("lr", lr))

def idle(c):
    return c._replace(lr=0.0)

def keeps_positive(reach, c):
    return c.lr * reach < 1.0

def step(q, g, c):
    h = between(c.lr * q.std * g.std, -1e9, 1e9)
    return Gaussian(q.mean - c.lr * q.std * q.std * between(g.mean, -1e9, 1e9), q.std * (1.0 - h))
"""


# the same, with a step for a known curvature
CURVED = (
    POSTERIOR
    + """
def for_curvature(c):
    return curvature.Constants(c.lr, 2.0 * c.lr, 1.0, 0.0, 0.0, 0.0, None, None, None)
"""
)


@pytest.fixture
def module():
    """Makes a module of a text, some of it replaced."""
    made = []

    def make(text, *replacements):
        for old, new in replacements:
            assert text.count(old) == 1
            text = text.replace(old, new)
        name = f"rule_under_test_{len(made)}"
        made.append(name)
        sys.modules[name] = types.ModuleType(name)
        exec(text, vars(sys.modules[name]))
        return sys.modules[name]

    yield make
    for name in made:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_rule_of_the_library_keeps_every_contract(name):
    rule, settings, always_sound = BUILT_IN[name]
    check_rule(rule, settings, always_sound=always_sound)


def test_no_rule_of_the_library_is_left_out():
    checked = {rule for rule, _, _ in BUILT_IN.values()}
    assert checked >= set(rules.WEIGHT_RULES.values())
    assert {rule.step for rule in checked} >= {
        step for name, step in rules.POSTERIOR_RULES.items() if name != "mesu-exact-plain"
    }  # which is FOO-VB's


@pytest.mark.parametrize("text", [WEIGHT, POSTERIOR, CURVED])
def test_the_rules_that_are_broken_below_are_sound(module, text):
    check_rule(module(text), {"lr": 0.1})


STEP = "return w - c.lr * velocity, State(velocity)"
SIGMA = "q.std * (1.0 - h))"
BREAKS = [
    (
        "parts",
        WEIGHT,
        "class Constants(NamedTuple):\n    lr: float",
        "Constants = sgd.Constants",
        "those of mesu.rules.sgd",
    ),
    ("parts", WEIGHT, "def initial", "def start", "needs initial"),
    ("parts", WEIGHT, "def step(w, g, state, c)", "def step(w, g)", "takes 2 arguments"),
    ("parts", WEIGHT, "Constants(checks", "sgd.Constants(checks", "not its own Constants"),
    ("parts", WEIGHT, 'Constants(checks.non_negative("lr", lr))', "Constants(str(lr))", "every constant is a number"),
    ("settings", WEIGHT, 'checks.non_negative("lr", lr)', "float(lr)", "takes lr=nan"),
    (
        "settings",
        WEIGHT,
        'checks.non_negative("lr", lr)',
        "lr * 1.0 if lr == lr else checks.finite('lr', lr)",
        "TypeError",
    ),
    ("settings", WEIGHT, 'checks.non_negative("lr", lr)', 'checks.non_negative("rate", lr)', "does not name 'lr'"),
    ("pure", WEIGHT, STEP, "w -= c.lr * velocity; return 1.0 * w, State(velocity)", "changes its arguments"),
    ("pure", WEIGHT, STEP, "return w - c.lr * torch.rand_like(w), State(velocity)", "another result"),
    ("pure", WEIGHT, "State(0.1 * state.velocity)", "State(state.velocity.mul_(0.1))", "consolidate changes"),
    ("elementwise", WEIGHT, STEP, "return w - c.lr * velocity / velocity.norm(), State(velocity)", "among others"),
    ("elementwise", WEIGHT, STEP, "return w.sum() - c.lr * velocity.sum(), State(velocity)", "shapes"),
    (
        "precision",
        WEIGHT,
        STEP,
        "return w.double() - c.lr * velocity, State(velocity)",
        "torch.float64 for torch.float32",
    ),
    ("precision", WEIGHT, STEP, "return (w + 1e9) - 1e9 - c.lr * velocity, State(velocity)", "far from double"),
    ("zero gradient", WEIGHT, STEP, "return w - c.lr * (g / (g * g) ** 0.5), State(velocity)", "NaN or infinity"),
    ("zero gradient", POSTERIOR, SIGMA, "q.std * (h - 0.1))", "not positive"),
    ("sound", WEIGHT, STEP, "return w - c.lr * (g + 1.0) ** 0.5, State(velocity)", "NaN or infinity"),
    ("state", WEIGHT, "State(0.0 * w)", "State(0.0)", "velocity of initial has shape ()"),
    ("state", WEIGHT, "return State(0.1 * state.velocity)", "return (0.1 * state.velocity,)", "not its State"),
    ("compiled", WEIGHT, STEP, "return w - c.lr * torch.tanh(velocity), State(velocity)", "compiled form"),
    ("compiled", WEIGHT, STEP, "return w - c.lr * velocity.tanh(), State(velocity)", "cannot be compiled"),
    (
        "compiled",
        WEIGHT,
        STEP,
        "return w - c.lr * (velocity if isinstance(w, torch.Tensor) else g), State(velocity)",
        "form",
    ),
    ("idle", WEIGHT, "c._replace(lr=0.0)", "c._replace(lr=1e-3)", "move a weight"),
    ("idle", WEIGHT, "c._replace(lr=0.0)", "sgd.Constants(0.0)", "must return Constants"),
    ("idle", POSTERIOR, "q.std * (1.0 - h))", "root(q.std * q.std + 1e-3) * (1.0 - h))", "move a weight"),
    ("keeps positive", POSTERIOR, "c.lr * reach < 1.0", "True", "makes one negative"),
    ("curvature", CURVED, "2.0 * c.lr", "c.lr", "narrows sigma by"),
    ("curvature", CURVED, "2.0 * c.lr, 1.0,", "2.0 * c.lr, 0.99,", "made of idle ones it moves"),
]


@pytest.mark.parametrize(("contract", "text", "old", "new", "problem"), BREAKS)
def test_a_broken_rule_is_caught_by_the_contract_that_it_breaks(module, contract, text, old, new, problem):
    rule = module(text, (old, new))
    with pytest.raises(ContractBroken) as caught:
        check_rule(rule, {"lr": 0.1})
    assert caught.value.contract == contract
    assert problem in str(caught.value)
    assert rule.__name__ in str(caught.value)


def test_every_contract_has_a_rule_that_breaks_it():
    assert {contract for contract, *_ in BREAKS} == CONTRACTS.keys()


def test_a_rule_that_says_that_no_gradient_breaks_it_must_stand_them_all(module):
    with pytest.raises(ContractBroken, match=r"sound.*not positive") as caught:
        check_rule(module(POSTERIOR), {"lr": 0.1}, always_sound=True)
    assert caught.value.contract == "sound"


def test_compiled_code_that_gives_other_numbers_is_caught(module):
    rule = module(
        WEIGHT, (STEP, "return w - c.lr * velocity * ((g > 0) + (g > 0)), State(velocity)")
    )  # True + True is 2 for scalars only
    with pytest.raises(ContractBroken, match="on tensors") as caught:
        check_rule(rule, {"lr": 0.1})
    assert caught.value.contract == "compiled"


def test_a_step_without_bounds_that_is_not_the_step_is_caught(module, monkeypatch):
    monkeypatch.setattr(rules.curvature, "may_be_cut", lambda q, g, c: False)
    check_rule(rules.mesu, {"memory": 50.0})
    with pytest.raises(ContractBroken, match="uncut_step is not the step") as caught:
        check_rule(rules.mesu, {"memory": 50.0, "max_step": 0.01})
    assert caught.value.contract == "curvature"


def test_a_rule_that_raises_is_named(module):
    with pytest.raises(ContractBroken, match="rule_under_test_0 breaks the contract 'state': it raises NameError"):
        check_rule(module(WEIGHT, (STEP, "return nothing")), {"lr": 0.1})


def test_a_posterior_rule_that_remembers_is_not_checked_and_that_is_said():
    with pytest.raises(ContractBroken, match="posterior rules that remember more than mean and sigma are not checked"):
        check_rule(rules.paced, {"memory": 100.0})
