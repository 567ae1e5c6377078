"""The engine and the torch path are one: the same noise in, the same weights out; and chunks, refusals, noise."""

import copy
import itertools
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import nn

import mesu
from mesu import optim
from mesu.engine import EngineFallback, PosteriorEngine, WeightEngine, why_not
from mesu.engine.network import share_flat
from mesu.engine.noise import fill_normals
from mesu.learners.weights import fisher_diagonal

STEPS = 1000


def perceptron(sizes, bias=True, activation=nn.ReLU, dtype=torch.float64):
    layers = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs, bias=bias), activation()]
    return nn.Sequential(*layers[:-1]).to(dtype)


class FedNoise(mesu.posterior.Noise):
    """Noise from a list instead of a generator."""

    def feed(self, draws):
        self.draws = list(draws)

    def normal(self, shape, like=None):
        return self.draws.pop(0).view(shape).to(like.dtype)


def feed_update(fed, noise, estimator, sizes, samples, batch, weights):
    """Hand the engine's noise for one update to the torch path, in the order in which that asks for it."""
    e = torch.from_numpy(noise)
    if estimator == "weights":
        fed.feed(e[s * weights : (s + 1) * weights] for s in range(samples))
        return
    blocks, at = [], 0
    for units in sizes[1:]:
        blocks.append(e[at : at + samples * batch * units].view(samples, batch, units))
        at += samples * batch * units
    fed.feed(block[s] for s in range(samples) for block in blocks)


def both_ways(
    sizes, bias, estimator, make, *, activation=nn.ReLU, steps=STEPS, samples=3, batch=1, regression=False, dtype
):
    """Largest difference of means and stds after the same stream through the engine and the torch path."""
    likelihood = "gaussian" if regression else "categorical"
    net = mesu.Bayesian(
        perceptron(sizes, bias, activation, dtype),
        estimator=estimator,
        init_std=0.12,
        vectorize=False,
        seed=1,
        likelihood=likelihood,
        noise_std=2.0,
    )
    twin = copy.deepcopy(net)
    optimizer, other = make(net), make(twin)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(steps * batch, sizes[0])) / 2
    y = rng.normal(size=(len(x), sizes[-1])) if regression else rng.integers(0, sizes[-1], len(x))
    engine = PosteriorEngine(net, optimizer, samples, batch)
    weights = sum(pair.mean.numel() for pair in net.pairs())
    noise = rng.normal(size=(steps, engine.normals(weights)))
    engine.learn(x, y, noise=noise)
    twin.noise = FedNoise(0)
    x_torch, y_torch = torch.from_numpy(x).to(dtype), torch.from_numpy(y)
    for t in range(steps):
        feed_update(twin.noise, noise[t], estimator, sizes, samples, batch, weights)
        rows = slice(t * batch, (t + 1) * batch)
        target = y_torch[rows].to(dtype) if regression else y_torch[rows]
        twin.nll(x_torch[rows], target, samples=samples).backward()
        other.step()
        other.zero_grad()
    differences = [
        (a - b).abs().max().item()
        for mine, theirs in zip(net.pairs(), twin.pairs(), strict=True)
        for a, b in ((mine.mean, theirs.mean), (mine.std, theirs.std))
    ]
    moved = (next(net.pairs()).std - 0.12).abs().max().item()
    assert moved > 1e-3  # something was learned
    return max(differences)


RULES = {
    "exact": lambda net: mesu.MESU(net, memory=500, prior_std=0.5),
    "paper": lambda net: mesu.MESU(net, memory=500, prior_std=0.5, update="paper", max_step=0.5),
    "foo-vb": lambda net: mesu.FOOVB(net),
}
DEPTHS = {1: (6, 5, 3), 2: (6, 5, 4, 3), 3: (6, 5, 4, 5, 3), 4: (6, 5, 4, 5, 4, 3)}


@pytest.mark.parametrize("estimator", ["local", "weights"])
@pytest.mark.parametrize("rule", RULES)
def test_posterior_rules_learn_the_same_both_ways(rule, estimator):
    assert both_ways(DEPTHS[1], False, estimator, RULES[rule], dtype=torch.float64) < 1e-9


@pytest.mark.parametrize("estimator", ["local", "weights"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("depth", DEPTHS)
def test_any_depth_learns_the_same_both_ways(depth, bias, estimator):
    steps = STEPS if depth == 4 else 200
    assert both_ways(DEPTHS[depth], bias, estimator, RULES["exact"], steps=steps, dtype=torch.float64) < 1e-9


@pytest.mark.parametrize("estimator", ["local", "weights"])
def test_batches_tanh_and_regression_learn_the_same_both_ways(estimator):
    make = RULES["exact"]
    options = {"steps": 200, "dtype": torch.float64}
    assert both_ways((6, 5, 4, 3), True, estimator, make, batch=3, **options) < 1e-9
    assert both_ways((6, 5, 4, 3), True, estimator, make, activation=nn.Tanh, **options) < 1e-9
    assert both_ways((6, 5, 2), True, estimator, make, regression=True, **options) < 1e-9
    assert both_ways((6, 3), True, estimator, make, **options) < 1e-9


@pytest.mark.parametrize("estimator", ["local", "weights"])
def test_single_precision_agrees_within_rounding(estimator):
    assert both_ways((6, 5, 3), True, estimator, RULES["exact"], steps=200, dtype=torch.float32) < 2e-4


WEIGHT_RULES = {
    "sgd": lambda p: optim.SGD(p, 0.05),
    "ewc": lambda p: optim.EWC(p, 0.05, 2.0),
    "ewc-online": lambda p: optim.EWCOnline(p, 0.05, 2.0, 0.2),
    "ewc-stream": lambda p: optim.EWCStream(p, 0.05, 5.0, 0.2),
    "si": lambda p: optim.SI(p, 0.05, 0.1),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rule", WEIGHT_RULES)
def test_weight_rules_learn_the_same_both_ways_with_boundaries(rule, bias):
    net = perceptron((6, 5, 4, 3), bias)
    twin = copy.deepcopy(net)
    optimizer, other = WEIGHT_RULES[rule](list(net.parameters())), WEIGHT_RULES[rule](list(twin.parameters()))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(STEPS // 2, 6)), rng.integers(0, 3, STEPS // 2)
    engine = WeightEngine(net, optimizer)
    for _ in range(2):
        engine.learn(x, y)
        engine.boundary(x, y)
        for example, label in zip(torch.from_numpy(x).split(1), torch.from_numpy(y).split(1), strict=True):
            F.cross_entropy(twin(example), label).backward()
            other.step()
            other.zero_grad()
        if isinstance(other, optim.EWC):
            other.consolidate(fisher_diagonal(twin, torch.from_numpy(x), torch.from_numpy(y)))
        elif isinstance(other, optim.SI):
            other.consolidate()
    for mine, theirs in zip(net.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-9)
        for field in other.state[theirs]:
            assert torch.allclose(optimizer.state[mine][field], other.state[theirs][field], rtol=1e-9, atol=1e-9)


def stream(rows=60, inputs=20, classes=3):
    rng = np.random.default_rng(2)
    return rng.normal(size=(rows, inputs)).astype(np.float32), rng.integers(0, classes, rows)


def fresh(estimator="local", **options):
    torch.manual_seed(0)
    net = mesu.Bayesian(perceptron((20, 33, 3), dtype=torch.float32), estimator=estimator, seed=5)
    return net, mesu.BayesianLearner(net, mesu.MESU(net, memory=100, **options))


def values(net):
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


@pytest.mark.parametrize("estimator", ["local", "weights"])
def test_chunks_and_resuming_change_nothing_at_all(estimator):
    x, y = stream()
    whole, learner = fresh(estimator)
    learner.learn(x, y)
    for cuts in ([1, 2, 30], list(range(1, 60))):
        net, learner = fresh(estimator)
        for part_x, part_y in zip(np.split(x, cuts), np.split(y, cuts), strict=True):
            learner.learn(part_x, part_y)
        assert torch.equal(values(net), values(whole))
    net, learner = fresh(estimator)
    learner.learn(x[:25], y[:25])
    saved = pickle.loads(pickle.dumps(net.state_dict()))
    restored, learner = fresh(estimator)
    restored.load_state_dict(saved)
    learner.learn(x[25:], y[25:])
    assert torch.equal(values(restored), values(whole))


@pytest.mark.parametrize("rule", WEIGHT_RULES)
def test_chunks_change_nothing_for_weight_rules(rule):
    x, y = stream()
    results = []
    for cuts in ([], [1, 2, 30], list(range(1, 60))):
        torch.manual_seed(0)
        net = perceptron((20, 33, 3), dtype=torch.float32)
        engine = WeightEngine(net, WEIGHT_RULES[rule](list(net.parameters())))
        for part_x, part_y in zip(np.split(x, cuts), np.split(y, cuts), strict=True):
            engine.learn(part_x, part_y)
        results.append(values(net))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_weights_are_shared_not_copied():
    net, learner = fresh()
    mean = next(net.pairs()).mean
    learner.learn(*stream())
    before = mean.detach().clone()
    learner.learn(*stream())
    assert next(net.pairs()).mean is mean
    assert not torch.equal(mean, before)
    flat = share_flat([pair.mean for pair in net.pairs()])
    flat[:] = 7
    assert all((pair.mean == 7).all() for pair in net.pairs())


def test_copies_are_independent():
    net, learner = fresh()
    learner.learn(*stream())
    twin = copy.deepcopy(net)
    before = values(twin)
    learner.learn(*stream())
    assert torch.equal(values(twin), before)


BAD = {
    "nan": lambda x, y: (np.where(np.arange(x.size).reshape(x.shape) == 47, np.nan, x), y),
    "infinite": lambda x, y: (np.where(np.arange(x.size).reshape(x.shape) == 47, np.inf, x), y),
    "narrow": lambda x, y: (x[:, :-1], y),
    "label": lambda x, y: (x, np.where(np.arange(len(y)) == 50, 3, y)),
    "negative": lambda x, y: (x, y - 5),
    "float labels": lambda x, y: (x, y.astype(float)),
    "empty": lambda x, y: (x[:0], y[:0]),
    "short": lambda x, y: (x, y[:-1]),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_chunks_are_refused_before_anything_is_learned(kind):
    net, learner = fresh()
    learner.learn(*stream())
    before, noise = values(net), net.noise.state
    with pytest.raises(ValueError, match=r"\w"):
        learner.learn(*BAD[kind](*stream()))
    assert torch.equal(values(net), before)
    assert torch.equal(net.noise.state, noise)


def test_sigma_that_breaks_on_the_way_refuses_the_chunk():
    x, y = stream()
    net, learner = fresh(update="paper")
    before = values(net)
    with pytest.raises(mesu.StepRefused, match="max_step"):
        learner.learn(x * 1000, y)
    assert torch.equal(values(net), before)
    learner.learn(x, y)


@pytest.mark.parametrize("estimator", ["local", "weights"])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e6])
def test_strange_inputs_leave_finite_weights_and_positive_sigmas(scale, estimator):
    net, learner = fresh(estimator)
    before, refusal = values(net), None
    try:
        learner.learn(np.full((200, 20), scale, np.float32), np.zeros(200, int))
    except mesu.StepRefused as error:
        refusal = str(error)
    if refusal is not None:  # past single precision: refused whole, with the size of the inputs in the message
        assert scale > 1
        assert "scale the inputs down (the largest is 1e+06)" in refusal
        assert torch.equal(values(net), before)
    assert torch.isfinite(values(net)).all()
    assert all((pair.std > 0).all() for pair in net.pairs())


def test_networks_the_engine_cannot_run_fall_back_and_say_so():
    net = mesu.Bayesian(nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.ReLU(), nn.Linear(5, 3)), seed=0)
    with pytest.warns(EngineFallback, match="LayerNorm"):
        learner = mesu.BayesianLearner(net, mesu.MESU(net, memory=100))
    before = values(net)
    learner.learn(np.ones((3, 4), np.float32), np.array([0, 1, 2]))
    assert not torch.equal(values(net), before)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)), "follow each other"),
        (nn.Sequential(nn.Linear(3, 3), nn.ReLU()), "ends in an activation"),
        (nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)), "mixes"),
        (nn.Sequential(nn.Linear(3, 3, bias=False), nn.ReLU(), nn.Linear(3, 2)), "biases"),
        (nn.LSTM(3, 2), "LSTM"),
    ],
)
def test_reasons(module, reason):
    net = mesu.Bayesian(module, seed=0)
    assert reason in why_not(net, mesu.MESU(net, memory=10))


def test_deterministic_parts_and_groups_are_reasons_too():
    net = mesu.Bayesian(nn.Linear(3, 2), deterministic=["bias"], seed=0)
    assert "deterministic" in why_not(net, mesu.MESU(net, memory=10))
    net = mesu.Bayesian(nn.Linear(3, 2), seed=0)
    first, second = net.pairs()
    assert "groups" in why_not(net, mesu.MESU([{"params": [first]}, {"params": [second]}], memory=10))
    assert "several" in why_not(net, mesu.MESU([{"params": [first]}, {"params": [second]}], memory=10))
    assert "all of its parameters" in why_not(net, mesu.MESU([first], memory=10))
    assert "BayesByBackprop" in why_not(net, mesu.BayesByBackprop(net, lr=0.1))
    half = mesu.Bayesian(nn.Linear(3, 2), seed=0).half()
    assert "float16" in why_not(half, mesu.MESU(half, memory=10))


def normals(steps, count, seed=3):
    out = np.zeros((steps, count), np.float32)
    for step in range(steps):
        fill_normals(out[step], seed, step)
    return out


def test_noise_is_standard_normal():
    x = normals(20, 100_000).astype(np.float64)
    assert stats.kstest(x.ravel(), "norm").pvalue > 0.01
    n = x.size
    for moment, expected, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((x**moment).mean() - expected) < 4 * (spread / n) ** 0.5
    assert np.abs(x).max() > 4.9  # the tails are there


def test_noise_of_other_places_steps_and_seeds_is_unrelated():
    x = normals(1000, 300)
    for rows in (x, x.T, np.abs(x), np.abs(x).T):
        z = np.corrcoef(rows)[~np.eye(len(rows), dtype=bool)] * rows.shape[1] ** 0.5
        assert abs(z.std() - 1) < 0.02
        assert np.abs(z).max() < 6
    assert abs(np.corrcoef(x.ravel(), normals(1000, 300, seed=4).ravel())[0, 1]) < 4 / x.size**0.5
    assert np.array_equal(normals(2, 300), x[:2])


def test_compiled_predictions_have_the_networks_distribution():
    torch.manual_seed(0)
    net = mesu.Bayesian(perceptron((6, 5, 4, 3)), seed=1, init_std=0.3)
    engine = PosteriorEngine(net, mesu.MESU(net, memory=10), 1)
    x = np.random.default_rng(0).normal(size=(4, 6))
    draws = 20_000
    mine = torch.from_numpy(engine.draw(x, samples=draws))
    with torch.no_grad():
        theirs = net.sample(torch.from_numpy(x), samples=draws, estimator="weights")
    for power in (1, 2):
        a, b = mine**power, theirs**power
        error = ((a.var(0) + b.var(0)) / draws).sqrt()
        assert ((a.mean(0) - b.mean(0)).abs() < 5 * error).all()
    assert abs(np.corrcoef(mine[:, 0, 0], mine[:, 1, 0])[0, 1]) < 5 / draws**0.5  # rows are drawn on their own


def test_threads_do_not_show_in_predictions_and_nothing_changes():
    net, learner = fresh()
    x, _ = stream(rows=500)
    before, noise = values(net), net.noise.state
    results = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        results.append(learner.predict(x, samples=7).probs)
    torch.set_num_threads(1)
    assert torch.equal(*results)
    assert torch.equal(values(net), before)
    assert torch.equal(net.noise.state, noise)
    with pytest.raises(ValueError, match="nothing to predict"):
        learner.predict(x[:0], samples=2)
    with pytest.raises(ValueError, match="samples"):
        learner.predict(x, samples=0)


def test_seeds_learn_side_by_side_as_they_learn_alone():
    x, y = stream(rows=400)
    alone = []
    for seed in (0, 1):
        net = mesu.Bayesian(perceptron((20, 33, 3), dtype=torch.float32), init="mnist", seed=seed)
        learner = mesu.BayesianLearner(net, mesu.MESU(net, memory=100))
        alone.append((net, learner, copy.deepcopy(net)))
    twins = [mesu.BayesianLearner(twin, mesu.MESU(twin, memory=100)) for _, _, twin in alone]
    for _, learner, _ in alone:
        learner.learn(x, y)
    mesu.engine.learn_together(twins, [(x, y), (x, y)])
    for net, _, twin in alone:
        assert torch.equal(values(net), values(twin))
