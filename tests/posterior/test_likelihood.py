"""Costs against sums written out and torch's own, and targets that no likelihood can score."""

from math import log, pi

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mesu
from mesu.posterior.likelihood import Categorical, GaussianNoise, named


def test_cross_entropy_is_summed_over_the_batch_and_averaged_over_the_samples():
    out = torch.tensor([[[0.0, log(3)], [log(4), 0.0]], [[0.0, 0.0], [0.0, log(9)]]])
    y = torch.tensor([1, 0])
    # probabilities of the labels: 3/4, 4/5 in the first draw; 1/2, 1/10 in the second
    wanted = -(log(3 / 4) + log(4 / 5) + log(1 / 2) + log(1 / 10)) / 2
    assert float(Categorical().nll(out, y)) == pytest.approx(wanted, rel=1e-6)


def test_cross_entropy_is_torchs_mean_over_draws():
    out, y = torch.randn(6, 5, 4), torch.tensor([0, 3, 2, 1, 1])
    wanted = torch.stack([F.cross_entropy(o, y, reduction="sum") for o in out]).mean()
    assert torch.allclose(Categorical().nll(out, y), wanted)


def test_labels_along_a_sequence():
    out, y = torch.randn(3, 2, 4, 5), torch.randint(4, (2, 5))
    wanted = torch.stack([F.cross_entropy(o, y, reduction="sum") for o in out]).mean()
    assert torch.allclose(Categorical().nll(out, y), wanted)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_any_integer_is_a_label(dtype):
    out, y = torch.randn(3, 2, 4), torch.tensor([3, 0])
    Categorical().check(y.to(dtype))
    assert torch.equal(Categorical().nll(out, y.to(dtype)), Categorical().nll(out, y))


def test_gaussian_cost_by_hand():
    out = torch.tensor([[[1.0], [2.0]], [[3.0], [2.0]]])
    y = torch.tensor([[1.0], [4.0]])
    # squared errors 0, 4 and 4, 4, noise_std 2: divided by 2 * 4; four log densities over two draws
    wanted = (12 / 8) / 2 + 2 * (log(2) + 0.5 * log(2 * pi))
    assert float(GaussianNoise(2.0).nll(out, y)) == pytest.approx(wanted, rel=1e-6)


def test_gaussian_cost_is_torchs_log_density():
    out, y = torch.randn(5, 4, 2), torch.randn(4, 2)
    wanted = -torch.distributions.Normal(out, 0.3).log_prob(y).sum() / 5
    assert torch.allclose(GaussianNoise(0.3).nll(out, y), wanted)


def test_gaussian_refuses_targets_of_another_shape():
    # [4] against [4, 1] would broadcast to 16 errors
    with pytest.raises(ValueError, match=r"\(4,\).*\(4, 1\).*y\[:, None\]"):
        GaussianNoise().nll(torch.zeros(3, 4, 1), torch.zeros(4))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_gaussian_refuses_targets_that_are_not_finite(bad):
    with pytest.raises(ValueError, match=rf"{bad} at index \(1, 0\) \(1 of 2 values"):
        GaussianNoise().check(torch.tensor([[0.0], [bad]]))


@pytest.mark.parametrize("noise_std", [0.0, -1.0, float("nan"), float("inf")])
def test_noise_std_must_be_positive(noise_std):
    with pytest.raises(ValueError, match=f"noise_std .* got {noise_std!r}"):
        mesu.Bayesian(nn.Linear(2, 1), likelihood="gaussian", noise_std=noise_std)


@pytest.mark.parametrize("y", [torch.tensor([1.0]), torch.tensor([True]), torch.tensor([1j])])
def test_categorical_refuses_what_is_not_an_integer(y):
    with pytest.raises(ValueError, match=r"integers.*y\.long\(\)"):
        Categorical().check(y)


def test_categorical_refuses_a_negative_label():
    with pytest.raises(ValueError, match="-3"):
        Categorical().check(torch.tensor([0, -3, 2]))


def test_categorical_refuses_a_label_outside_the_head():
    with pytest.raises(ValueError, match=r"label 4 .* 3 classes \(0 to 2\)"):
        Categorical().nll(torch.zeros(2, 2, 3), torch.tensor([0, 4]))


def test_categorical_refuses_outputs_without_classes():
    with pytest.raises(ValueError, match="classifier must give"):
        Categorical().nll(torch.zeros(2, 3), torch.tensor([0, 1, 0]))


def test_names():
    assert isinstance(named("categorical", 1.0), Categorical)
    assert named("gaussian", 0.5).noise_std == 0.5
    own = GaussianNoise(3.0)
    assert named(own, 1.0) is own
    with pytest.raises(ValueError, match="'categorical' or 'gaussian', got 'poisson'"):
        mesu.Bayesian(nn.Linear(2, 2), likelihood="poisson")


@pytest.mark.parametrize("estimator", ["weights", "local"])
def test_network_cost_is_the_likelihood_of_its_own_draws(estimator):
    x, y = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    net, twin = (mesu.Bayesian(nn.Linear(4, 3), estimator=estimator, seed=5) for _ in range(2))
    twin.load_state_dict(net.state_dict())
    assert torch.equal(net.nll(x, y, samples=7), Categorical().nll(twin(x, samples=7), y))


def test_network_cost_of_a_regression():
    x, y = torch.randn(5, 4), torch.randn(5, 1)
    net = mesu.Bayesian(nn.Linear(4, 1), likelihood="gaussian", noise_std=0.2, seed=5)
    state = net.noise.state
    cost = net.nll(x, y, samples=7)
    net.noise.state = state
    assert torch.equal(cost, GaussianNoise(0.2).nll(net(x, samples=7), y))


def test_wrong_gaussian_shape_leaves_the_noise_alone():
    net = mesu.Bayesian(nn.Linear(4, 1), likelihood="gaussian", seed=5)
    state = net.noise.state
    with pytest.raises(ValueError, match="reshape the targets"):
        net.nll(torch.randn(5, 4), torch.randn(5))
    assert torch.equal(net.noise.state, state)
