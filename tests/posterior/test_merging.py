"""Merged posteriors: Bayes' rule on everybody's evidence, what was forgotten forgotten once, no sigma without a bound."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import mesu
from mesu.posterior import likelihood as likelihoods
from mesu.posterior.merging import kept, merged
from mesu.rules.gaussian import Gaussian

COLUMNS, OUTPUTS, NOISE = 4, 2, 0.7


class Signs(likelihoods.GaussianNoise):
    """Draws targets one standard deviation away: the estimated curvature is then the exact one, not one around it."""

    def sample(self, out, noise):
        return out + self.noise_std * torch.sign(noise.uniform(out))


def net(bias=False, outputs=OUTPUTS, likelihood=None, **settings):
    torch.manual_seed(0)
    linear = nn.Linear(COLUMNS, outputs, bias=bias).double()
    return mesu.Bayesian(linear, likelihood=likelihood or Signs(NOISE), seed=0, **{"input_scale": 1.0, **settings})


def rows(count, seed):
    """Each row has one column that is not zero: the posterior of a linear regression is then diagonal."""
    draw = np.random.default_rng(seed)
    x = np.zeros((count, COLUMNS))
    x[np.arange(count), draw.integers(COLUMNS, size=count)] = draw.normal(size=count)
    return torch.from_numpy(x), torch.from_numpy(draw.normal(size=(count, OUTPUTS)))


def learn(network, batches, **settings):
    optimizer = mesu.MESU(network, max_step=None, **settings)
    for x, y in batches:
        network.nll(x, y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return network


def one_by_one(x, y):
    return [(x[i : i + 1], y[i : i + 1]) for i in range(len(x))]


def weights(network):
    (pair,) = network.pairs()
    return pair.mean.detach().numpy(), pair.std.detach().numpy()


def test_without_forgetting_it_is_the_one_that_saw_everything_and_the_closed_form():
    base = learn(net(), one_by_one(*rows(20, 0)), memory=float("inf"))
    shards = [rows(count, seed) for seed, count in enumerate((30, 7, 0, 51), 1)]
    workers = [learn(copy.deepcopy(base), one_by_one(*shard), memory=float("inf")) for shard in shards]
    found = weights(mesu.merge(base, workers))
    x, y = (torch.cat(parts) for parts in zip(*shards, strict=True))
    np.testing.assert_allclose(
        found, weights(learn(copy.deepcopy(base), one_by_one(x, y), memory=float("inf"))), rtol=1e-12
    )
    mean, std = weights(base)
    precision = std**-2 + (x.numpy() ** 2).sum(0) / NOISE**2
    np.testing.assert_allclose(found[1], precision**-0.5, rtol=1e-12)
    np.testing.assert_allclose(found[0], (std**-2 * mean + y.numpy().T @ x.numpy() / NOISE**2) / precision, rtol=1e-12)


@pytest.mark.parametrize("prior", [{"prior_std": 0.4, "prior_mean": 0.3}, {"prior_std": "start"}])
def test_with_forgetting_it_is_the_one_that_took_their_rows_as_batches(prior):
    """Time passes once: the base is forgotten over 60 updates, not over 180. The last worker begins 20 updates late."""
    settings = {"memory": 40.0, **prior}
    base = learn(net(), one_by_one(*rows(20, 0)), **settings)
    optimizer = mesu.MESU(base, **settings)
    shards = [rows(60, seed) for seed in (1, 2, 3)]
    shards[2] = tuple(part[20:] for part in shards[2])
    workers = [learn(copy.deepcopy(base), one_by_one(*shard), **settings) for shard in shards]
    batches = []
    for i in range(60):
        here = [(x[i - 60 + len(x)], y[i - 60 + len(x)]) for x, y in shards if i >= 60 - len(x)]
        batches.append(tuple(torch.stack(parts) for parts in zip(*here, strict=True)))
    found = mesu.merge(base, workers, optimizer, updates=[60, 60, 40])
    np.testing.assert_allclose(weights(found), weights(learn(copy.deepcopy(base), batches, **settings)), rtol=1e-11)


def test_rates_other_than_one_forget_at_their_rate():
    settings = {"memory": 40.0, "prior_std": 0.4, "lr_mean": 2.0, "lr_std": 2.0}
    base = learn(net(), one_by_one(*rows(20, 0)), **settings)
    shards = [rows(30, seed) for seed in (1, 2)]
    workers = [learn(copy.deepcopy(base), one_by_one(*shard), **settings) for shard in shards]
    batches = [
        (torch.cat([a, c]), torch.cat([b, d]))
        for (a, b), (c, d) in zip(*(one_by_one(*shard) for shard in shards), strict=True)
    ]
    found = mesu.merge(base, workers, mesu.MESU(base, **settings), updates=30)
    np.testing.assert_allclose(weights(found), weights(learn(copy.deepcopy(base), batches, **settings)), rtol=1e-11)


def test_one_worker_is_the_worker_and_idle_ones_are_the_base():
    base = learn(net(), one_by_one(*rows(20, 0)), memory=50.0)
    worker = learn(copy.deepcopy(base), one_by_one(*rows(30, 1)), memory=50.0)
    optimizer = mesu.MESU(base, memory=50.0)
    np.testing.assert_allclose(weights(mesu.merge(base, [worker], optimizer, 30)), weights(worker), rtol=1e-12)
    idle = [copy.deepcopy(base) for _ in range(3)]
    np.testing.assert_allclose(weights(mesu.merge(base, idle, optimizer, 0)), weights(base), rtol=1e-12)
    np.testing.assert_allclose(
        weights(mesu.merge(base, [worker, copy.deepcopy(base)], optimizer, [30, 0])), weights(worker), rtol=1e-12
    )


def test_nothing_that_was_given_changes():
    base = learn(net(), one_by_one(*rows(20, 0)), memory=50.0)
    workers = [learn(copy.deepcopy(base), one_by_one(*rows(9, seed)), memory=50.0) for seed in (1, 2)]
    before = [np.copy(weights(network)) for network in (base, *workers)]
    mesu.merge(base, workers)
    for network, then in zip((base, *workers), before, strict=True):
        np.testing.assert_array_equal(weights(network), then)


def test_a_sigma_is_never_wider_than_the_widest_that_is_merged():
    base = Gaussian(np.array([1.0, 1.0]), np.array([0.1, 0.1]))
    workers = [
        Gaussian(np.array([2.0, 1.5]), np.array([0.3, 0.08])),
        Gaussian(np.array([4.0, 0.5]), np.array([0.2, 0.07])),
    ]
    prior = Gaussian(0.0, 1.0)
    found, clipped = merged(base, workers, [1.0, 1.0], prior)  # precisions 11 + 25 - 100 are none
    np.testing.assert_array_equal(clipped, [True, False])
    np.testing.assert_allclose(found.std, [0.3, (156.25 + 1 / 0.0049 - 100) ** -0.5])
    np.testing.assert_allclose(found.mean[0], (2 / 0.09 + 4 / 0.04) / (1 / 0.09 + 1 / 0.04))


def test_the_average_never_leaves_the_workers():
    base = Gaussian(np.array([0.0]), np.array([1.0]))
    workers = [Gaussian(np.array([1.0]), np.array([0.99]))] * 4
    prior = Gaussian(0.0, 1.0)
    added, _ = merged(base, workers, [1.0] * 4, prior)
    average, _ = merged(base, workers, [1.0] * 4, prior, means="average")
    precision = 4 * 0.99**-2 - 3
    np.testing.assert_allclose(added.mean, 4 * 0.99**-2 / precision)  # 3.8: four times nearly the same step
    np.testing.assert_allclose(average.mean, 1.0)
    np.testing.assert_array_equal(average.std, added.std)


def test_clipped_sigmas_are_warned_of():
    base = net()
    wide = copy.deepcopy(base)
    (pair,) = wide.pairs()
    pair.std.data[0, 0] *= 3
    with pytest.warns(mesu.LearningWarning, match=r"12\.50% of the weights"):
        found = mesu.merge(base, [wide, copy.deepcopy(wide)])
    np.testing.assert_allclose(weights(found)[1], weights(wide)[1])


def test_weights_that_are_not_in_the_posterior_are_averaged():
    torch.manual_seed(0)
    base = mesu.Bayesian(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), deterministic=["0"], likelihood="gaussian")
    workers = [copy.deepcopy(base) for _ in range(2)]
    for worker, value in zip(workers, (1.0, 4.0), strict=True):
        worker.module[0].weight.data.fill_(value)
    np.testing.assert_allclose(mesu.merge(base, workers).module[0].weight.detach(), 2.5)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: net(outputs=3), "shape"),
        (lambda: net(bias=True), "shape"),
        (lambda: net(likelihood=Signs(1.0)), "noise_std is 1.0 there, and 0.7 in the base"),
        (lambda: net(likelihood="categorical"), "likelihood is 'Categorical'"),
        (lambda: net(estimator="local", init_scale=3.0), "estimator is 'local'"),
        (lambda: net(input_scale=8.0), "other sigmas than the base"),
    ],
)
def test_networks_that_did_not_begin_as_the_base_are_refused(other, message):
    with pytest.raises(ValueError, match=message):
        mesu.merge(net(), [net(), other()])


def test_what_is_missing_is_asked_for():
    base = net()
    with pytest.raises(ValueError, match="nothing to merge"):
        mesu.merge(base, [])
    with pytest.raises(ValueError, match="how many updates"):
        mesu.merge(base, [net()], mesu.MESU(base, memory=10.0))
    with pytest.raises(ValueError, match="one for each of 1 posteriors, got 2"):
        mesu.merge(base, [net()], mesu.MESU(base, memory=10.0), updates=[1, 2])
    with pytest.raises(ValueError, match="moves no weight of the base"):
        mesu.merge(base, [net()], mesu.MESU(net(), memory=10.0), updates=1)
    with pytest.raises(ValueError, match="'sum' or 'average'"):
        mesu.merge(base, [net()], means="mean")
    with pytest.raises(TypeError, match="got Linear"):
        mesu.merge(nn.Linear(1, 1), [nn.Linear(1, 1)])


def test_what_is_kept_of_a_base():
    assert kept(10, float("inf")) == 1
    np.testing.assert_allclose(kept(10, 20.0), 0.95**10)
    np.testing.assert_allclose(kept(10, 20.0, 2.0), 0.9**10)
