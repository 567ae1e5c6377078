"""The Hessian experiment at small scale: the true Hessian is true, and sigma finds it."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mesu.lab.data import mnist
from mesu.lab.data.catalogue import data_sets
from mesu.lab.data.finding import where
from mesu.lab.entry import Entry
from mesu.lab.experiments.hessian.experiment import Hessian, agreement, importance, true_diagonal


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
    values = {row.measure: row.value for row in settings.trial(Entry("mesu"), 0).stage(0)}
    assert 0.94 < values["pearson_at_mean_1000"] < 0.99  # .964; the paper has .957
    assert 0.94 < values["pearson_1000"] < 0.99


@needs("mnist")
def test_the_truth_of_a_certain_posterior_is_that_of_its_means():
    trial = Hessian(truth_samples=10).trial(Entry("mesu"), 0)
    unsure = trial.truth(0)
    for pair in trial.model.net.pairs():
        pair.std.data.fill_(1e-7)
    at_mean = true_diagonal(*trial.weights(), mnist().x_train) * 32
    assert trial.truth(0) == pytest.approx(at_mean, rel=1e-4)
    assert unsure != pytest.approx(at_mean, rel=0.5)


@needs("mnist")
def test_si_finds_the_curvature_with_the_published_rate_and_damping():
    settings = Hessian(steps=(500, 1_000), steps_per_stage=1_000)
    trial = settings.trial(Entry("si"), 0)
    first = {row.measure: row.value for row in trial.stage(0)}
    path, moved = (tensor.clone() for tensor in trial.path_and_way())
    second = {row.measure: row.value for row in trial.stage(1)}
    assert 0.97 < second["pearson_1000"] < 1.0  # .984; with a rate of 0.002 and a damping of 1 it is .905
    assert first["pearson_restarted_500"] == first["pearson_500"]  # the first path begins at the start
    now, far = trial.path_and_way()
    since = importance(now - path, far, settings.si_damping)
    truth = true_diagonal(*trial.weights(), mnist().x_train)
    assert second["pearson_restarted_1000"] == pytest.approx(np.corrcoef(since.ravel(), truth.ravel())[0, 1])
    assert not torch.equal(moved, far)


@needs("mnist")
def test_si_s_path_at_the_last_comparison_survives_a_checkpoint():
    settings = Hessian(steps=(100, 200), steps_per_stage=1_000)
    trial, other = (settings.trial(Entry("si"), 0) for _ in range(2))
    list(trial.stage(0))
    other.restore(trial.tensors())
    assert list(trial.stage(1)) == list(other.stage(1))
