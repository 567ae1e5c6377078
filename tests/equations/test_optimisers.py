"""Every optimiser of a posterior moves by its rule."""

import pytest
import torch
from tests.equations.cases import tensor

import mesu as library
from mesu.rules import Gaussian, bayes_by_backprop, bayesian_synapse, foovb, mesu


@pytest.mark.parametrize("max_step", [None, 0.3])
@pytest.mark.parametrize(
    ("optimizer", "settings", "rule"),
    [
        (library.MESU, {"memory": 10.0, "prior_mean": 0.2, "prior_std": 0.7}, mesu.exact),
        (library.MESU, {"memory": 10.0, "lr_mean": 2.0, "lr_std": 0.5, "update": "paper"}, mesu.paper),
        (library.FOOVB, {"lr_mean": 0.5, "lr_std": 2.0}, foovb.step),
        (library.BayesByBackprop, {"lr": 0.1, "kl_weight": 0.2, "prior_std": 0.7}, bayes_by_backprop.step),
        (library.BayesianSynapse, {"tau": 10.0, "prior_mean": 0.2, "prior_std": 0.7}, bayesian_synapse.step),
    ],
)
def test_an_optimiser_moves_by_its_rule(optimizer, settings, rule, max_step):
    start, slope = Gaussian(tensor(0.3), tensor(0.8)), Gaussian(tensor(1.5), tensor(0.9))
    file = {library.FOOVB: foovb, library.BayesByBackprop: bayes_by_backprop, library.BayesianSynapse: bayesian_synapse}
    constants = {name: value for name, value in settings.items() if name != "update"}
    expected = rule(start, slope, file.get(optimizer, mesu).constants(**constants, max_step=max_step))
    mean, std = (torch.nn.Parameter(value.clone()) for value in start)
    mean.grad, std.grad = slope
    optimizer([(mean, std)], **settings, max_step=max_step).step()
    assert (mean.item(), std.item()) == (expected.mean.item(), expected.std.item())
