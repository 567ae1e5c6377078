"""The MNIST experiments at small scale: the true Hessian is true, sigma finds it, and without forgetting MESU is FOO-VB."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mesu.lab.data import mnist
from mesu.lab.data.catalogue import data_sets
from mesu.lab.data.finding import where
from mesu.lab.experiments.hessian.experiment import Hessian, agreement, true_diagonal
from mesu.lab.experiments.vanishing.experiment import Vanishing


def needs(*names):
    """Skip where a data set would have to be fetched."""
    missing = [name for name in names if where(data_sets[name]) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not on this machine: {', '.join(missing)} (mesu data get)")


def test_the_true_diagonal_is_autograd_s():
    rng = np.random.default_rng(0)
    first, last, x = rng.normal(size=(5, 7)), rng.normal(size=(3, 5)), rng.normal(size=(40, 7))

    def loss(weights):
        h = torch.relu(torch.from_numpy(x @ first.T))
        return F.cross_entropy(h @ weights.T, torch.zeros(40, dtype=torch.long))  # curvature does not see the label

    whole = torch.autograd.functional.hessian(loss, torch.from_numpy(last))
    expected = torch.einsum("kjkj->kj", whole).numpy()
    assert true_diagonal(first, last, x) == pytest.approx(expected, rel=1e-9)


def test_agreement_is_pearson_s_and_a_slope():
    truth = np.array([1.0, 2.0, 4.0, 0.0])
    assert agreement(3 * truth, truth) == pytest.approx({"pearson": 1.0, "slope": 1.0, "resolved": 0.75})
    assert agreement(truth**2, truth)["slope"] == pytest.approx(2.0)
    assert np.isnan(agreement(np.ones(4), truth)["pearson"])


def test_the_slope_is_of_weights_that_can_be_told_from_the_prior():
    truth, estimate = np.array([1e-9, 1.0, 2.0, 4.0]), np.array([1.0, 1.0, 2.0, 4.0])
    assert agreement(estimate, truth)["slope"] < 0.2
    assert agreement(estimate, truth, resolution=1e-6) == pytest.approx(
        {"pearson": np.corrcoef(estimate, truth)[0, 1], "slope": 1.0, "resolved": 0.75}
    )


@needs("mnist")
def test_sigma_finds_the_curvature():
    settings = Hessian(steps=(1_000,), steps_per_stage=1_000, truth_samples=20)
    values = {row.measure: row.value for row in settings.trial("mesu", 0).stage(0)}
    assert 0.94 < values["pearson_at_mean_1000"] < 0.99  # .964; the paper has .957
    assert 0.94 < values["pearson_1000"] < 0.99


@needs("mnist")
def test_the_truth_of_a_certain_posterior_is_that_of_its_means():
    trial = Hessian(truth_samples=10).trial("mesu", 0)
    unsure = trial.truth(0)
    for pair in trial.model.net.pairs():
        pair.std.data.fill_(1e-7)
    at_mean = true_diagonal(*trial.weights(), mnist().x_train) * 32
    assert trial.truth(0) == pytest.approx(at_mean, rel=1e-4)
    assert unsure != pytest.approx(at_mean, rel=0.5)


@needs("mnist", "fashion-mnist")
def test_without_forgetting_mesu_is_foo_vb_and_with_it_sigma_is_held():
    settings = Vanishing(epochs=1, epochs_per_stage=1)
    ends = {}
    for contestant in ("mesu-180000", "mesu-1e+15", "foo-vb"):
        ends[contestant] = {row.measure: row.value for row in settings.trial(contestant, 0).stage(0)}
        assert ends[contestant]["accuracy"] > 0.93
        assert ends[contestant]["fashion_auroc"] > 0.85
        assert ends[contestant]["ood_auroc"] > 0.99
        assert 0.98 < ends[contestant]["coarse_auroc"] < ends[contestant]["ood_auroc"]
    endless, memory = ends["mesu-1e+15"]["layer_std"], ends["mesu-180000"]["layer_std"]
    assert ends["foo-vb"]["layer_std"] == pytest.approx(endless, rel=0.01)  # .0789 and .0787
    assert memory == pytest.approx(0.0591, rel=0.01)  # a narrow prior, 0.06, already pulls
