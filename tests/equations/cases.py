"""Weights, gradients and settings of any size, and how a result is compared with one worked in sixty digits."""

from dataclasses import dataclass
from math import inf, log10

import mpmath
import torch
from hypothesis import strategies as st

from mesu.rules import Gaussian, mesu

real = mpmath.MPContext()
real.dps = 60
R = real.mpf
LARGEST_H = 1e9  # the exact form keeps |sigma * g_sigma * lr_std / 2| below this; equations hold up to there


def powers(low, high):
    """Numbers spread evenly over the orders of magnitude between 10^low and 10^high."""
    return st.floats(low, high).map(lambda e: 10.0**e)


def signed(low, high):
    """Zero, or a number of either sign between 10^low and 10^high in size."""
    return st.one_of(st.just(0.0), st.builds(lambda s, x: s * x, st.sampled_from([-1.0, 1.0]), powers(low, high)))


sigmas = powers(-6, 3)
means = signed(-6, 3)
gradients = st.one_of(signed(-30, 12), signed(-3, 4))  # of any size, and of the size that decides something
prior_stds = powers(-3, 3)
rates = st.one_of(st.sampled_from([0.0, 1.0]), powers(-6, log10(200)))
trust = st.one_of(st.none(), powers(-3, 1))


@dataclass(frozen=True)
class Case:
    """One weight, its gradients and the settings of a posterior rule."""

    mu: float
    sigma: float
    g_mu: float
    g_sigma: float
    memory: float
    prior_mean: float
    prior_std: float
    lr_mean: float
    lr_std: float
    max_step: float | None

    def constants(self):
        return mesu.constants(
            self.memory, self.prior_mean, self.prior_std, self.lr_mean, self.lr_std, max_step=self.max_step
        )

    def exact_numbers(self):
        """mu, sigma, g_mu, g_sigma, 1/N, mp, sp, lr_mean, lr_std in sixty digits."""
        forget = R(0) if self.memory == inf else 1 / R(self.memory)
        others = (self.mu, self.sigma, self.g_mu, self.g_sigma)
        return *map(R, others), forget, R(self.prior_mean), R(self.prior_std), R(self.lr_mean), R(self.lr_std)


@st.composite
def cases(draw, rate=rates, memory=None, max_step=trust):
    lr_mean, lr_std = draw(rate), draw(rate)
    # at least 1 % above the rates: nearer, 1 - lr/N loses digits in any float
    smallest = max(1.5, 1.01 * max(lr_mean, lr_std))
    window = st.one_of(st.just(inf), powers(log10(smallest) + 1e-6, 15)) if memory is None else memory
    return Case(
        mu=draw(means),
        sigma=draw(sigmas),
        g_mu=draw(gradients),
        g_sigma=draw(gradients),
        memory=draw(window),
        prior_mean=draw(means),
        prior_std=draw(prior_stds),
        lr_mean=lr_mean,
        lr_std=lr_std,
        max_step=draw(max_step),
    )


def tensor(x):
    return torch.tensor([x], dtype=torch.float64)


def moved(rule, case, constants):
    """The rule's new mean and std, from float64 tensors."""
    new = rule(
        Gaussian(tensor(case.mu), tensor(case.sigma)), Gaussian(tensor(case.g_mu), tensor(case.g_sigma)), constants
    )
    assert new.mean.dtype == new.std.dtype == torch.float64
    return new.mean.item(), new.std.item()


def total(*terms):
    """A sum and the sum of the sizes of its terms: rounding is a share of the latter."""
    return sum(terms, R(0)), sum(map(abs, terms), R(0))


def close(actual, expected, size, share=1e-13):
    assert abs(R(actual) - expected) <= share * size, (actual, float(expected), float(size))


def close_within(actual, old, reach, expected, size, share=1e-13):
    """`actual` is `expected`, or lies `reach` away from `old` in its direction if that is nearer (None: no limit)."""
    step = expected - old
    if reach is None or abs(step) <= reach:
        close(actual, expected, size, share)
    elif abs(step) - reach > share * size:
        close(actual, old + real.sign(step) * reach, abs(old) + reach, 1e-15)


def agree(actual, case, mean, std, share=1e-13):
    """Both new values are those of the equations, clipped to +-max_step * sigma where that is set."""
    reach = None if case.max_step is None else R(case.max_step) * R(case.sigma)
    close_within(actual[0], R(case.mu), reach, *mean, share)
    close_within(actual[1], R(case.sigma), reach, *std, share)


def by_eq_9_and_10(case):
    """Eq. 9 and 10 of the paper, each line multiplied by its rate."""
    mu, s, g_mu, g_s, forget, mp, sp, lr_mean, lr_std = case.exact_numbers()
    mean = total(
        mu, -lr_mean * s**2 * g_mu, lr_mean * s**2 * forget / sp**2 * mp, -lr_mean * s**2 * forget / sp**2 * mu
    )
    std = total(s, -lr_std * s**2 / 2 * g_s, lr_std * forget * s / 2, -lr_std * forget * s**3 / (2 * sp**2))
    return mean, std


def inside_limit(case):
    return abs(case.sigma * case.g_sigma * case.lr_std / 2) < LARGEST_H


any_memory = st.one_of(st.just(inf), powers(log10(1.001), 15))
weights = signed(-6, 3)
importances = st.one_of(st.just(0.0), powers(-9, 6))
strengths = st.one_of(st.just(0.0), powers(-9, 4))
decays = st.one_of(st.sampled_from([0.0, 1.0]), powers(-6, 0))
