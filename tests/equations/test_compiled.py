"""One source, two ways to run it: every rule compiled for scalars gives what it gives on float64 tensors."""

from math import inf, isnan, nan

import pytest
import torch

from mesu.engine import compiled
from mesu.rules import POSTERIOR_RULES, WEIGHT_RULES, Gaussian, bayes_by_backprop, bayesian_synapse, mesu, newton

# mean, std, gradient of the mean, gradient of the std: both signs, none, far too large, not a number;
# none where a sum all but cancels, for compiled code may round it differently
POINTS = [
    (0.3, 0.05, 0.7, 0.2),
    (-1.2, 0.8, -3.0, -0.4),
    (0.0, 1.0, 0.0, 0.0),
    (4.0, 1e-6, 1e12, 1e12),
    (-5.0, 30.0, 1e-9, -1e12),
    (2.0, 1e-3, -40.0, 1e3),
    (0.5, 10.0, 0.0, 1e300),
    (0.5, 10.0, 0.0, -1e300),
    (0.1, 0.2, nan, nan),
]


def posterior_settings(name, max_step):
    if name == "bayes-by-backprop":
        return [bayes_by_backprop.constants(0.01, kl_weight=0.1, prior_mean=0.2, prior_std=0.7, max_step=max_step)]
    if name == "bayesian-synapse":
        return [bayesian_synapse.constants(50.0, prior_mean=0.2, prior_std=0.7, max_step=max_step)]
    if name == "newton":
        return [newton.constants(0.05, 100.0, prior_mean=0.2, prior_std=0.7, max_step=max_step)]
    forgetful = mesu.constants(300.0, prior_mean=0.2, prior_std=0.7, lr_mean=1.5, lr_std=120.0, max_step=max_step)
    return [forgetful, forgetful._replace(max_std=0.05), mesu.constants(inf, max_step=max_step)]


def assert_same(scalar, tensor):
    scalar, tensor = float(scalar), float(tensor)
    assert isinstance(tensor, float)
    assert (isnan(scalar) and isnan(tensor)) or scalar == pytest.approx(tensor, rel=1e-12, abs=1e-15)


def as_tensors(values):
    return [torch.tensor(value, dtype=torch.float64) for value in values]


@pytest.mark.parametrize("name", POSTERIOR_RULES)
def test_posterior_rules(name):
    rule, fast = POSTERIOR_RULES[name], compiled(POSTERIOR_RULES[name])
    for max_step in (None, 0.5, 0.02):
        for c in posterior_settings(name, max_step):
            for mean, std, g_mean, g_std in POINTS:
                scalar = fast(Gaussian(mean, std), Gaussian(g_mean, g_std), c)
                mu, sigma, g_mu, g_sigma = as_tensors((mean, std, g_mean, g_std))
                slow = rule(Gaussian(mu, sigma), Gaussian(g_mu, g_sigma), c)
                assert_same(scalar.mean, slow.mean)
                assert_same(scalar.std, slow.std)


# weight, gradient (a Fisher information when squared), then up to four numbers of state
WEIGHT_POINTS = [
    (0.3, 0.7, 0.0, 0.3, 0.0, 0.2),
    (-1.2, -3.0, 2.5, 0.4, 1.5, -0.3),
    (4.0, 0.0, 0.1, 4.0, -2.0, 1.5),
    (-5.0, 1e6, 1e-3, -4.0, 1e3, 20.0),
]
WEIGHT_SETTINGS = {
    "sgd": {"lr": 0.02},
    "ewc": {"lr": 0.02, "strength": 5.0},
    "ewc-online": {"lr": 0.02, "strength": 5.0, "decay": 0.2},
    "ewc-stream": {"lr": 0.02, "strength": 5.0, "decay": 0.2},
    "si": {"lr": 0.02, "strength": 0.5, "damping": 1e-3},
    "si-per-task": {"lr": 0.02, "strength": 0.5, "damping": 1e-3},
}


@pytest.mark.parametrize("name", WEIGHT_RULES)
def test_weight_rules(name):
    file = WEIGHT_RULES[name]
    c = file.constants(**WEIGHT_SETTINGS[name])
    size = len(file.State._fields)
    for w, g, *numbers in WEIGHT_POINTS:
        state = file.State(*numbers[:size])
        slow_w, slow_g, *slow_numbers = as_tensors((w, g, *numbers))
        slow_state = file.State(*slow_numbers[:size])

        new, after = compiled(file.step)(w, g, state, c)
        slow_new, slow_after = file.step(slow_w, slow_g, slow_state, c)
        assert_same(new, slow_new)
        for one, other in zip(after, slow_after, strict=True):
            assert_same(one, other)

        if hasattr(file, "consolidate"):
            fisher, slow_fisher = ((), ()) if name.startswith("si") else ((g * g,), (slow_g * slow_g,))
            after = compiled(file.consolidate)(w, state, *fisher, c)
            slow_after = file.consolidate(slow_w, slow_state, *slow_fisher, c)
            for one, other in zip(after, slow_after, strict=True):
                assert_same(one, other)


def test_every_rule_with_boundaries_is_covered():
    assert {name for name, file in WEIGHT_RULES.items() if hasattr(file, "consolidate")} == {
        "ewc",
        "ewc-online",
        "si",
        "si-per-task",
    }
