"""What keeps a network from learning is told once, with the remedy; a network that learns is left in peace."""

import copy
import threading
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mesu
from mesu import health
from mesu.learners import BayesianLearner

DRAW = torch.Generator().manual_seed(0)
X = torch.randn(512, 12, generator=DRAW)
Y = (X[:, :4] + 0.3 * torch.randn(512, 4, generator=DRAW)).argmax(1)


def made(seed=0, memory=10_000.0, **settings):
    torch.manual_seed(seed)
    net = mesu.Bayesian(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4)), seed=seed, **settings)
    return net, mesu.MESU(net, memory=memory)


def learn(net, opt, cost, times, batch=32):
    for step in range(times):
        some = torch.arange(step * batch, (step + 1) * batch) % 512
        cost(net, X[some], Y[some]).backward()
        opt.step()
        opt.zero_grad()


def told(action):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", mesu.LearningWarning)
        action()
    return [str(each.message) for each in seen if each.category is mesu.LearningWarning]


def nll(net, x, y):
    return net.nll(x, y)


def mean(net, x, y):
    return F.cross_entropy(net(x), y)


def total(net, x, y):
    return F.cross_entropy(net(x), y, reduction="sum")


def divided(net, x, y):
    return net.nll(x, y) / len(x)


def of_samples(reduction, samples=4):
    def cost(net, x, y):
        out = net(x, samples=samples)
        return F.cross_entropy(out.flatten(0, 1), y.repeat(samples), reduction=reduction) / (
            1 if reduction == "mean" else samples
        )

    return cost


@pytest.mark.parametrize("estimator", ["linear", "local", "weights"])
def test_who_learns_is_left_in_peace(estimator):
    net, opt = made(estimator=estimator)
    learn(net, opt, nll, 1010)
    assert float((net.at_mean(X).argmax(1) == Y).float().mean()) > 0.8


@pytest.mark.parametrize("cost", [total, of_samples("sum"), lambda net, x, y: 0.1 * total(net, x, y)])
def test_a_sum_of_one_s_own_is_left_in_peace(cost):
    net, opt = made(estimator="local")
    learn(net, opt, cost, 110)


@pytest.mark.parametrize(
    ("estimator", "cost"),
    [("local", mean), ("weights", mean), ("local", of_samples("mean")), ("linear", divided), ("local", divided)],
)
def test_the_mean_of_a_batch_is_told_from_its_sum(estimator, cost):
    net, opt = made(estimator=estimator)
    words = told(lambda: learn(net, opt, cost, 20))
    assert len(words) == 1
    assert "divided by the number of examples" in words[0]
    assert "net.nll(x, y)" in words[0]


@pytest.mark.parametrize("cost", [mean, total])
def test_the_default_learns_from_nll_alone(cost):
    net, opt = made()
    words = told(lambda: learn(net, opt, cost, 20))
    assert len(words) == 1
    assert "estimator='linear' learns from the cost net.nll(x, y) alone" in words[0]


def test_several_costs_of_nll_add_up_without_a_word():
    net, opt = made()
    learn(net, opt, lambda net, x, y: net.nll(x[:16], y[:16]) + 0.5 * net.nll(x[16:], y[16:]), 12)


@pytest.mark.parametrize(("settings", "wanted"), [({"estimator": "local"}, "size 25"), ({"input_scale": 40.0}, "2")])
def test_inputs_far_from_the_size_that_the_start_is_for(settings, wanted):
    net, _ = made(**settings)
    words = told(lambda: [net.nll(256 * X, Y), net.nll(256 * X, Y)])
    assert len(words) == 1
    assert "inputs are of size 25" in words[0]
    assert "input_scale=2.6e+02" in words[0]
    assert not told(lambda: made(**settings)[0].nll(X * (3 if wanted == "size 25" else 60), Y))


def test_inputs_that_change_their_size_later():
    net, opt = made()
    learn(net, opt, lambda net, x, y: net.nll(256 * x, y), 9)  # the first batch told
    words = told(lambda: learn(net, opt, nll, 1))
    assert len(words) == 1
    assert "far from the first batch's, 256" in words[0]


@pytest.mark.parametrize("part", [nn.LayerNorm(12), nn.Embedding(9, 12)])
def test_what_the_network_makes_of_its_inputs_is_its_own_affair(part):
    module = nn.Sequential(part, nn.Flatten(), nn.Linear(12 if isinstance(part, nn.LayerNorm) else 36, 4))
    net = mesu.Bayesian(module, estimator="local", seed=0)
    x = 1000 * X if isinstance(part, nn.LayerNorm) else torch.randint(9, (512, 3), generator=DRAW)
    net.nll(x, Y)


def test_a_prior_far_above_the_start():
    used = (torch.arange(12) < 4) * 1.0  # the columns that tell the labels: of the others nothing is learned

    def cost(net, x, y):
        return net.nll(used * x, y)

    net, _ = made()
    words = told(lambda: learn(net, mesu.MESU(net, memory=200, prior_std=20.0), cost, 1000))
    assert len(words) == 1
    assert "half of the sigmas of '0.weight' are more than 4 times as wide as they began (0.866" in words[0]
    assert "prior_std=20 is what they relax to: leave it out, or take prior_std='start'" in words[0]
    net, opt = made(memory=200)  # the default
    learn(net, opt, cost, 1000)
    assert float(next(net.pairs()).std.detach().max()) <= 0.867


def test_sigmas_that_noise_has_widened():
    net, _ = made(estimator="local")
    opt = mesu.MESU(net, memory=1e6, prior_std=0.1)
    with torch.no_grad():
        net.module.get_parameter("0.weight_std").mul_(30)
    health.counted(opt, 99)
    words = told(lambda: learn(net, opt, nll, 1))
    assert len(words) == 1
    assert "half of the sigmas of '0.weight' are more than 4 times as wide" in words[0]
    assert "max_std='start'" in words[0]


def test_steps_that_are_cut():
    net = mesu.Bayesian(nn.Linear(12, 1), likelihood="gaussian", seed=0)
    opt = mesu.MESU(net, memory=1e4)

    def cost(net, x, y):
        return net.nll(x, 1e6 * x[:, :1] + 1e6)

    words = told(lambda: learn(net, opt, cost, 100))
    assert len(words) == 1
    assert "100% of the weights still move as far as max_step=0.3 lets them" in words[0]
    assert "noise_std" in words[0]


def test_a_short_limit_is_somebody_s_choice():
    net, _ = made(estimator="local")
    opt = mesu.MESU(net, memory=1e4, max_step=0.001)
    learn(net, opt, nll, 100)


@pytest.mark.parametrize("engine", [None, False])
@pytest.mark.parametrize(("memory", "short"), [(12, True), (1000, False)])
def test_a_memory_that_holds_nothing(memory, short, engine):
    net, opt = made(memory=memory)
    learner = BayesianLearner(net, opt, engine=engine)
    rows, labels = X.numpy(), Y.numpy()
    words = told(lambda: [learner.learn(rows[:250], labels[:250]) for _ in range(8)])
    assert len(words) == short
    if short:
        assert "memory=12 updates is too short: after 1,000 updates" in words[0]
        assert "mesu.memory_for" in words[0]


@pytest.mark.parametrize("engine", [None, False])
def test_answers_that_are_all_the_same(engine):
    net, opt = made(memory=1e6)
    net.module.get_parameter("2.bias").data[1] += 1e6  # nothing brings it back
    learner = BayesianLearner(net, opt, engine=engine, batch=4)
    words = told(lambda: learner.learn(np.tile(X.numpy(), (2, 1)), np.tile(Y.numpy(), 2)))
    stuck = [each for each in words if "answers" in each]
    assert len(stuck) == 1
    assert "the last 64 answers were all class 1, which" in stuck[0]


def test_labels_that_are_all_the_same_have_one_answer():
    net, opt = made()
    learner = BayesianLearner(net, opt, engine=False, batch=4)
    learner.learn(np.tile(X.numpy(), (2, 1)), np.zeros(1024, int))


def test_each_is_told_once_from_any_thread():
    net, _ = made(estimator="local")
    start = threading.Barrier(8)

    def one():
        start.wait()
        health.warn_once(net, "kind", "said")

    def all_of_them():
        threads = [threading.Thread(target=one) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert told(all_of_them) == ["said"]
    assert told(lambda: health.warn_once(copy.deepcopy(net), "kind", "again")) == []
    assert told(lambda: health.warn_once(net, "other", "another")) == ["another"]


def test_when_it_is_looked_at():
    looks = [number for number in range(1, 3001) if health.is_look(number)]
    assert looks == [1, 10, 100, 1000, 2000, 3000]
    assert [health.next_look(number) for number in (0, 1, 5, 99, 100, 1000, 9_999, 25_000)] == [
        *(1, 10, 10, 100, 1000, 10_000, 10_000, 30_000)
    ]
