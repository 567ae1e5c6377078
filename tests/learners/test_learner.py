"""What every learner refuses when it is made."""

import pytest
from torch import nn

import mesu


def test_a_learner_refuses_the_optimiser_of_another_network():
    net, other = (mesu.Bayesian(nn.Linear(2, 2), seed=0) for _ in range(2))
    with pytest.raises(ValueError, match="moves no parameter of this network"):
        mesu.BayesianLearner(net, mesu.MESU(other, memory=100))
    plain, stranger = nn.Linear(2, 2), nn.Linear(2, 2)
    with pytest.raises(ValueError, match="moves no parameter of this network"):
        mesu.WeightLearner(plain, mesu.optim.SGD(stranger.parameters(), 0.1))


@pytest.mark.parametrize("settings", [{"samples": 0}, {"batch": 0}, {"samples": 1.5}, {"batch": "8"}])
def test_a_learner_counts_in_whole_numbers(settings):
    net = mesu.Bayesian(nn.Linear(2, 2), seed=0)
    ((name, value),) = settings.items()
    with pytest.raises(ValueError, match=f"{name} must be a whole number, 1 or more, got {value!r}"):
        mesu.BayesianLearner(net, mesu.MESU(net, memory=100), **settings)
