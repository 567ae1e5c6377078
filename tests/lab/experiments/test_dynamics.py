"""The dynamics experiment at small scale: sigma follows Proposition 5, and would not with another memory."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from mesu.lab.experiments.dynamics.experiment import Dynamics
from mesu.rules.dynamics import sigma_after

SMALL = Dynamics(steps=10_000, stages=12, memory=(1_000, inf))


def sigmas(settings, entry, seed):
    """Sigma of each weight at the end."""
    trial = settings.trial(entry, seed)
    rows = [row for index in range(settings.stages) for row in trial.stage(index)]
    return np.array([row.value for row in rows if row.measure == "std" and row.after_task == settings.stages - 1])


def expected(memory):
    """What the closed form says at the end."""
    curvature = np.array(SMALL.scales_of_inputs) ** 2
    return sigma_after(SMALL.steps, SMALL.first_std, curvature, memory, SMALL.prior_std)


@pytest.mark.parametrize("entry", SMALL.entries, ids=lambda entry: entry.label)
def test_sigma_ends_where_proposition_5_says(entry):
    mean = np.mean([sigmas(SMALL, entry, seed) for seed in range(3)], axis=0)
    # a seed scatters by a tenth or so; the other memory's sigmas are 1.5 to 6 times as large or small
    assert mean == pytest.approx(expected(entry.value), rel=0.2)
    other = expected(inf if entry.value == 1_000 else 1_000)
    assert (np.abs(np.log(mean / other)) > 0.3).all()


def test_the_closed_form_solves_the_paper_s_differential_equation():
    # sigma' = gamma/N sigma - gamma/N (N H + 1/sigma_p^2) sigma^3, stepped by hand
    memory, curvature, gamma, sigma = 500.0, 0.3, 0.5, 0.1
    for _ in range(200_000):
        sigma += 0.01 * gamma / memory * (sigma - (memory * curvature + 1 / 0.25) * sigma**3)
    assert sigma_after(2_000, 0.1, curvature, memory, 0.5, 2 * gamma) == pytest.approx(sigma, rel=1e-4)
    assert sigma_after(2_000, 0.1, curvature, inf, 0.5, 2 * gamma) == pytest.approx(
        sigma_after(2_000, 0.1, curvature, 1e12, 0.5, 2 * gamma), rel=1e-6
    )


def test_settings_that_cannot_run_are_refused():
    with pytest.raises(ValueError, match="stages=12"):
        replace(SMALL, steps=11).check()
