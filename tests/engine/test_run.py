"""The engine and the torch path are one: the same noise in, the same weights out; and chunks, refusals, noise."""

import copy
import itertools
import pickle

import numba
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import nn

import mesu
from mesu import optim
from mesu.engine import EngineFallback, PosteriorEngine, WeightEngine, why_not
from mesu.engine import predict_rows as predicting
from mesu.engine.kernels import exponential
from mesu.engine.layout import share_flat
from mesu.engine.noise import fill_normals
from mesu.learners.plain import fisher_diagonal

STEPS = 1000


def perceptron(sizes, bias=True, activation=nn.ReLU, dtype=torch.float64):
    """A network of these widths; of two widths, the bare layer."""
    layers = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs, bias=bias), activation()]
    return (nn.Sequential(*layers[:-1]) if len(layers) > 2 else layers[0]).to(dtype)


def lively(net):
    """Torch's own start lets a signal fade to a thirtieth over four layers; at twice the size it arrives."""
    with torch.no_grad():
        for p in net.parameters():
            p *= 2
    return net


def teacher(sizes, rows, regression=False):
    """Examples with something to learn, some of them all zeros, in numbers that single precision holds exactly."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, sizes[0])).astype(np.float32) / 2
    x[::50] = 0
    y = np.tanh(x @ rng.normal(size=(sizes[0], sizes[-1])) + 0.3 * rng.normal(size=(rows, sizes[-1])))
    return x, y.astype(np.float32) if regression else y.argmax(1)


def apart(some, others):
    """The largest difference between two lists of tensors."""
    return max((a.double() - b.double()).abs().max().item() for a, b in zip(some, others, strict=True))


def agree_within_rounding(mine, theirs, exact):
    """Whether two results in single precision differ by no more than torch's own rounding, a few times over.

    Its own is how far it is from double precision. And 1,000 roundings of numbers of size one are the most in any case.
    """
    return apart(mine, theirs) < min(5 * apart(theirs, exact), STEPS * 2**-24)


class FedNoise(mesu.posterior.bayesian.Noise):
    """Noise from a list instead of a generator."""

    state = None  # nothing to go back to

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


def learn_in_torch(net, optimizer, sizes, x, y, noise, samples, batch, at_once):
    """Learn with the noise that the engine was given, the samples one after the other or `at_once`, which is quicker."""
    dtype = next(net.parameters()).dtype
    weights = sum(pair.mean.numel() for pair in net.pairs())
    x, y = torch.from_numpy(x).to(dtype), torch.from_numpy(y)
    y = y.to(dtype) if y.is_floating_point() else y
    net.noise, net.vectorize = FedNoise(0), at_once
    copies = samples if at_once and net.estimator == "local" else 1  # drawn rows are independent: a batch of copies
    for examples, targets, normals in zip(x.split(batch), y.split(batch), noise, strict=True):
        feed_update(net.noise, normals, net.estimator, sizes, samples // copies, batch * copies, weights)
        examples, targets = torch.cat([examples] * copies), torch.cat([targets] * copies)
        (net.nll(examples, targets, samples=samples // copies) / copies).backward()
        optimizer.step()
        optimizer.zero_grad()


def three_ways(module, sizes, estimator, make, *, samples=2, batch=1, regression=False, at_once=False):
    """Means and stds after 1,000 updates with the same noise: of engine, of torch, and of the engine in double precision."""
    likelihood = "gaussian" if regression else "categorical"
    options = {"estimator": estimator, "init_std": 0.12, "likelihood": likelihood, "noise_std": 0.7, "seed": 1}
    net = mesu.Bayesian(module, **options)
    mine, theirs, exact = copy.deepcopy(net), copy.deepcopy(net), copy.deepcopy(net).double()
    x, y = teacher(sizes, STEPS * batch, regression)
    engine = PosteriorEngine(mine, make(mine), samples, batch)
    normals = engine.normals(sum(pair.mean.numel() for pair in net.pairs()))
    noise = np.random.default_rng(1).normal(size=(STEPS, normals)).astype(np.float32)
    engine.learn(x, y, noise=noise)
    PosteriorEngine(exact, make(exact), samples, batch).learn(x, y, noise=noise)
    learn_in_torch(theirs, make(theirs), sizes, x, y, noise, samples, batch, at_once)
    for before, after in zip(net.pairs(), theirs.pairs(), strict=True):  # examples have moved every layer:
        assert (after.mean - before.mean).abs().max() > 0.04
        assert (after.std - before.std).abs().max() > 0.006  # of 0.12
        assert after.std.max() > 1.005 * after.std.min()  # forgetting alone would keep all sigmas equal
    return [list(one.parameters()) for one in (mine, theirs, exact)]


RATES = {"lr_mean": 0.9, "lr_std": 1.1}
SETTINGS = {"memory": 500, "prior_mean": 0.1, "prior_std": 0.5, **RATES}
BOUND = 0.2
RULES = {
    "exact": lambda net: mesu.MESU(net, **SETTINGS),
    "paper": lambda net: mesu.MESU(net, update="paper", max_step=0.2, **SETTINGS),
    "bounded": lambda net: mesu.MESU(net, max_std=BOUND, **SETTINGS),
    "paper, bounded": lambda net: mesu.MESU(net, update="paper", max_step=0.2, max_std=BOUND, **SETTINGS),
    "foo-vb": lambda net: mesu.FOOVB(net, **RATES),
}
# Hidden layers; widths that leave a part of a vector.
DEPTHS = {0: (7, 3), 1: (7, 6, 3), 2: (7, 6, 9, 3), 3: (7, 6, 9, 11, 3), 4: (7, 6, 9, 11, 6, 3)}
WIDTHS = {
    "wide": (21, 33, 16, 7),  # vectors of sixteen, whole and in part
    "vast": (
        9,
        150,
        70,
        3,
    ),  # panels of 64 and a part of one; more units than a tile has rows, and than a word has bits
    "long": (9, 1040, 20, 3),  # rows so long that fewer units are taken together
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("estimator", ["local", "weights"])
@pytest.mark.parametrize("rule", RULES)
def test_posterior_rules_learn_the_same_both_ways(rule, estimator, depth, bias):
    module = lively(perceptron(DEPTHS[depth], bias))
    mine, theirs, _ = three_ways(module, DEPTHS[depth], estimator, RULES[rule], at_once=estimator == "local")
    assert apart(mine, theirs) < 1e-9
    if "bounded" in rule:
        stds = [p.detach() for p in theirs if float(p.detach().min()) > 0]
        assert max(float(std.max()) for std in stds) == pytest.approx(BOUND)  # the bound was met


class Newton(optim.PosteriorOptimizer):
    """The Newton form, for which the library has a rule and no optimiser."""

    file = mesu.rules.newton


OTHER_RULES = {
    "bayes-by-backprop": lambda net: mesu.BayesByBackprop(net, lr=0.02, weight=0.01, prior_std=0.5),
    "bayesian-synapse": lambda net: mesu.BayesianSynapse(net, tau=500, prior_mean=0.1, prior_std=0.2, max_step=0.5),
    "newton": lambda net: Newton(net, {"gamma": 0.0018, "memory": 500, "prior_mean": 0.1, "prior_std": 0.5}),
}


@pytest.mark.parametrize("estimator", ["local", "weights"])
@pytest.mark.parametrize("rule", OTHER_RULES)
def test_every_posterior_rule_learns_the_same_both_ways(rule, estimator):
    module = lively(perceptron(DEPTHS[2]))
    mine, theirs, _ = three_ways(module, DEPTHS[2], estimator, OTHER_RULES[rule], at_once=estimator == "local")
    assert apart(mine, theirs) < 1e-9


def test_a_posterior_rule_without_idle_constants_learns_the_same_both_ways(monkeypatch):
    monkeypatch.delattr(mesu.rules.newton, "idle")
    module = lively(perceptron(DEPTHS[2]))
    mine, theirs, _ = three_ways(module, DEPTHS[2], "local", OTHER_RULES["newton"], at_once=True)
    assert apart(mine, theirs) < 1e-9


@pytest.mark.parametrize("estimator", ["local", "weights"])
def test_a_bound_below_the_start_holds_from_the_first_update_both_ways(estimator):
    def make(net):
        return mesu.MESU(net, max_std=0.1, **SETTINGS)  # sigma starts from 0.12

    mine, theirs, _ = three_ways(
        lively(perceptron(DEPTHS[1])), DEPTHS[1], estimator, make, at_once=estimator == "local"
    )
    assert apart(mine, theirs) < 1e-9


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("estimator", ["local", "weights"])
def test_a_single_layer_learns_the_same_both_ways(estimator, bias):
    mine, theirs, _ = three_ways(perceptron(DEPTHS[0], bias), DEPTHS[0], estimator, RULES["exact"])
    assert apart(mine, theirs) < 1e-9


@pytest.mark.parametrize(
    ("width", "estimator", "samples", "batch"),
    [
        *(("wide", "local", samples, 1) for samples in (1, 3, 10, 16, 17)),
        ("wide", "local", 22, 6),  # more rows than a word has bits, and a part of a third word
        ("wide", "weights", 10, 1),
        ("vast", "local", 10, 1),
        ("long", "local", 2, 1),
    ],
)
def test_wide_layers_and_many_rows_learn_the_same_both_ways(width, estimator, samples, batch):
    sizes = WIDTHS[width]
    module = lively(perceptron(sizes))
    once = samples > 1 and batch == 1
    mine, theirs, _ = three_ways(module, sizes, estimator, RULES["exact"], samples=samples, batch=batch, at_once=once)
    assert apart(mine, theirs) < 1e-9


@pytest.mark.parametrize("estimator", ["local", "weights"])
@pytest.mark.parametrize(
    ("activation", "options"),
    [(nn.ReLU, {"batch": 6}), (nn.Tanh, {}), (nn.ReLU, {"batch": 6, "regression": True})],
    ids=["batches", "tanh", "regression"],
)
def test_batches_tanh_and_regression_learn_the_same_both_ways(activation, options, estimator):
    module = lively(perceptron(DEPTHS[2], True, activation))
    mine, theirs, _ = three_ways(module, DEPTHS[2], estimator, RULES["exact"], **options)
    assert apart(mine, theirs) < 1e-9


@pytest.mark.parametrize(("depth", "bias"), [(1, False), (3, True)])
@pytest.mark.parametrize("estimator", ["local", "weights"])
@pytest.mark.parametrize("rule", RULES)
def test_posterior_rules_agree_within_rounding_in_single_precision(rule, estimator, depth, bias):
    module = lively(perceptron(DEPTHS[depth], bias, dtype=torch.float32))
    assert agree_within_rounding(*three_ways(module, DEPTHS[depth], estimator, RULES[rule], at_once=True))


@numba.njit
def exponentials(x):
    out = np.empty_like(x)
    for j in range(x.size):
        out[j] = exponential(x[j])
    return out


def test_single_precision_exponentials_are_right_to_a_rounding_of_theirs_and_of_their_argument():
    x = np.append(-np.geomspace(1e-6, 87, 100_000), 0).astype(np.float32)
    error = exponentials(x) / np.exp(x.astype(np.float64)) - 1
    assert (np.abs(error) <= 2**-23 * (1 - x)).all()
    assert exponentials(np.float32([-1e30]))[0] < 1e-37


WEIGHT_RULES = {
    "sgd": lambda p: optim.SGD(p, 0.03),
    "ewc": lambda p: optim.EWC(p, 0.03, 2.0),
    "ewc-online": lambda p: optim.EWCOnline(p, 0.03, 2.0, 0.2),
    "ewc-stream": lambda p: optim.EWCStream(p, 0.03, 1.0, 0.2),
    "si": lambda p: optim.SI(p, 0.03, 0.1),
    "si-per-task": lambda p: optim.SIPerTask(p, 0.03, 0.1),
}


def learn_weights_in_torch(net, optimizer, x, y, batch):
    """Learn a task and consolidate."""
    x, y = torch.from_numpy(x).to(next(net.parameters()).dtype), torch.from_numpy(y)
    for examples, labels in zip(x.split(batch), y.split(batch), strict=True):
        F.cross_entropy(net(examples), labels, reduction="sum").backward()
        optimizer.step()
        optimizer.zero_grad()
    if isinstance(optimizer, optim.EWC):
        optimizer.consolidate(fisher_diagonal(net, x, y))
    elif isinstance(optimizer, optim.SI):
        optimizer.consolidate()


def weights_three_ways(net, sizes, make, batch=1):
    """Weights and what the rule remembers of them after two tasks of 500 updates, as in `three_ways`."""
    mine, theirs, exact = copy.deepcopy(net), copy.deepcopy(net), copy.deepcopy(net).double()
    optimizers = [make(list(one.parameters())) for one in (mine, theirs, exact)]
    x, y = teacher(sizes, STEPS // 2 * batch)
    for labels in (y, (y + 1) % sizes[-1]):
        for one, optimizer in ((mine, optimizers[0]), (exact, optimizers[2])):
            engine = WeightEngine(one, optimizer, batch)
            engine.learn(x, labels)
            engine.boundary(x, labels)
        learn_weights_in_torch(theirs, optimizers[1], x, labels, batch)
    for before, after in zip(net.parameters(), theirs.parameters(), strict=True):
        assert (after - before).abs().max() > 0.04
    return [
        [value for p in one.parameters() for value in (p, *optimizer.state[p].values())]
        for one, optimizer in zip((mine, theirs, exact), optimizers, strict=True)
    ]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("rule", WEIGHT_RULES)
def test_weight_rules_learn_the_same_both_ways_with_boundaries(rule, depth, bias):
    net = lively(perceptron(DEPTHS[depth], bias))
    mine, theirs, _ = weights_three_ways(net, DEPTHS[depth], WEIGHT_RULES[rule])
    assert apart(mine, theirs) < 1e-9


def test_a_weight_rule_without_idle_constants_learns_the_same_both_ways(monkeypatch):
    monkeypatch.delattr(mesu.rules.si, "idle")
    net = lively(perceptron(DEPTHS[1]))
    mine, theirs, _ = weights_three_ways(net, DEPTHS[1], WEIGHT_RULES["si"])
    assert apart(mine, theirs) < 1e-9


@pytest.mark.parametrize("rule", WEIGHT_RULES)
def test_weight_rules_learn_batches_with_tanh_and_wide_layers_the_same_both_ways(rule):
    net = lively(perceptron(WIDTHS["wide"], activation=nn.Tanh))
    mine, theirs, _ = weights_three_ways(net, WIDTHS["wide"], WEIGHT_RULES[rule], batch=6)
    assert apart(mine, theirs) < 1e-9


@pytest.mark.parametrize(("depth", "bias"), [(1, False), (3, True)])
@pytest.mark.parametrize("rule", WEIGHT_RULES)
def test_weight_rules_agree_within_rounding_in_single_precision(rule, depth, bias):
    net = lively(perceptron(DEPTHS[depth], bias, dtype=torch.float32))
    assert agree_within_rounding(*weights_three_ways(net, DEPTHS[depth], WEIGHT_RULES[rule]))


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
def test_after_a_refusal_learning_goes_on_as_if_nothing_had_been(estimator):
    x, y = stream()
    (one, refused), (other, spared) = fresh(estimator, max_step=None), fresh(estimator, max_step=None)
    for learner in (refused, spared):
        learner.learn(x, y)
    with pytest.raises(mesu.StepRefused):
        refused.learn(x * np.float32(1e20), y)
    for learner in (refused, spared):
        learner.learn(x, y)
    assert torch.equal(values(one), values(other))


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


def test_weights_that_the_optimiser_leaves_alone_stay():
    net = perceptron((4, 5, 3))
    assert why_not(net, optim.SGD(net.parameters(), 0.1)) is None
    assert why_not(net, optim.SGD(net[2].parameters(), 0.1)) == "the optimiser does not move all of its parameters"
    net[0].requires_grad_(False)
    assert why_not(net, optim.SGD(net.parameters(), 0.1)) == "some of its parameters are frozen"


def test_deterministic_parts_and_groups_are_reasons_too():
    net = mesu.Bayesian(nn.Linear(3, 2), deterministic=["bias"], seed=0)
    assert "deterministic" in why_not(net, mesu.MESU(net, memory=10))
    net = mesu.Bayesian(nn.Linear(3, 2), seed=0)
    first, second = net.pairs()
    assert "groups" in why_not(net, mesu.MESU([{"params": [first]}, {"params": [second]}], memory=10))
    assert "several" in why_not(net, mesu.MESU([{"params": [first]}, {"params": [second]}], memory=10))
    assert "all of its parameters" in why_not(net, mesu.MESU([first], memory=10))
    assert "Adam" in why_not(net, torch.optim.Adam(net.parameters()))
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


def test_how_many_rows_are_predicted_at_a_time_does_not_show(monkeypatch):
    net = mesu.Bayesian(perceptron((6, 5, 4, 3)), seed=1, init_std=0.3)
    engine = PosteriorEngine(net, mesu.MESU(net, memory=10), 1)
    x = np.random.default_rng(0).normal(size=(131, 6))
    many = engine.draw(x, samples=7)
    monkeypatch.setattr(predicting, "ROOM", 1)
    assert predicting.scratch((6, 5, 4, 3), 7, np.float64).block == predicting.LEAST
    assert np.array_equal(engine.draw(x, samples=7), many)


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
