"""The estimator "linear": its gradients against autograd's exact Gauss-Newton diagonal, for every kind of layer."""

import itertools
import threading

import pytest
import torch
from tests.posterior.networks import NETWORKS
from torch import nn
from torch.func import functional_call, jacrev

import mesu
from mesu.posterior import Bernoulli, Categorical, GaussianNoise, HeteroscedasticGaussian, Noise, Poisson
from mesu.posterior.layers import recording
from mesu.posterior.likelihood import drawn_cost
from mesu.posterior.linear import cost_with_curvature

CLASSES = {
    "mlp": lambda: (nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)), torch.randn(2, 3)),
    "in-place": lambda: (
        nn.Sequential(nn.Linear(3, 9, bias=False), nn.ReLU(inplace=True), nn.Linear(9, 3)),
        torch.randn(2, 3),
    ),
    "sequence": lambda: (nn.Sequential(nn.Linear(2, 3), nn.Flatten(), nn.Linear(12, 3)), torch.randn(2, 4, 2)),
    "places as rows": lambda: (  # twice as many rows as examples: the two of an example are not independent
        nn.Sequential(
            nn.Unflatten(1, (2, 2)), nn.Flatten(0, 1), nn.Linear(2, 3), nn.Tanh(), nn.Unflatten(0, (2, 2))
        ).extend([nn.Flatten(), nn.Linear(6, 3)]),
        torch.randn(2, 4),
    ),
    "conv": lambda: (
        nn.Sequential(nn.Conv2d(1, 2, 2), nn.GroupNorm(1, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)),
        torch.randn(2, 1, 3, 3),
    ),
    "recurrent": lambda: (Last(nn.LSTM(2, 3, batch_first=True)), torch.randn(2, 4, 2)),
    "embedding": lambda: (
        nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(6, 3)),
        torch.randint(5, (2, 3)),
    ),
}


class Queried(nn.Module):
    """Attention of a sequence to itself."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x, x, x)[0]


class Last(nn.Module):
    """The last output of a recurrent layer."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0][:, -1]


def posterior(module, **settings):
    return mesu.Bayesian(module.double(), estimator="linear", seed=0, **settings)


def curvature(pair):
    """The curvature h behind sigma's gradient, which is sigma h."""
    return pair.std.grad / pair.std.detach()


def jacobian(net, x):
    """Outputs differentiated by each covered mean: name -> [B, C, weights]."""
    means = {pair.name: pair.mean.detach() for pair in net.pairs()}
    slopes = jacrev(lambda weights: functional_call(net.module, weights, (x,)))(means)
    return {name: slope.flatten(2) for name, slope in slopes.items()}


def gauss_newton(net, x, curvature):
    """The exact diagonal of sum_b G_b^T Lambda_b G_b, with Lambda [B, C, C]."""
    return {
        name: torch.einsum("bcw,bcd,bdw->w", slope, curvature, slope).view_as(net.module.get_parameter(name))
        for name, slope in jacobian(net, x).items()
    }


class Fixed:
    """The categorical likelihood with labels that are not drawn but given."""

    def __init__(self, labels):
        self.labels = labels

    def nll(self, out, y):
        return Categorical().nll(out, y)

    def sample(self, out, noise):
        return self.labels


@pytest.mark.parametrize("name", CLASSES)
def test_over_all_labels_the_curvature_is_the_exact_gauss_newton_diagonal(name):
    torch.manual_seed(0)
    module, x = CLASSES[name]()
    net = posterior(module)
    x = x.double() if x.is_floating_point() else x
    y = torch.tensor([2, 0])
    p = net.at_mean(x).softmax(1).detach()
    found = {pair.name: 0.0 for pair in net.pairs()}
    for labels in itertools.product(range(3), repeat=2):  # every pair of labels, with its probability
        share = float(p[0, labels[0]] * p[1, labels[1]])
        net.zero_grad()
        pairs = list(net.pairs())
        with recording() as calls:
            out = net.at_mean(x)
        cost_with_curvature(Fixed(torch.tensor(labels)), out, y, pairs, 1, net.noise, calls).backward()
        for pair in pairs:
            found[pair.name] = found[pair.name] + share * curvature(pair)
    exact = gauss_newton(net, x, torch.diag_embed(p) - p[:, :, None] * p[:, None, :])
    for pair in net.pairs():
        assert torch.allclose(found[pair.name], exact[pair.name], atol=1e-9, rtol=1e-9), pair.name
        plain = torch.autograd.grad(nn.functional.cross_entropy(net.at_mean(x), y, reduction="sum"), pair.mean)[0]
        assert torch.allclose(pair.mean.grad, plain, atol=1e-12)


OPTIONS = {"ignore_index": 7, "class_weights": [0.5, 2.0, 3.0, 1.0], "label_smoothing": 0.2}


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (Categorical(), 2),
        (Categorical(class_weights=[0.5, 2.0, 3.0, 1.0]), 1),
        (Categorical(label_smoothing=0.3), 1),
        (Categorical(**OPTIONS), 2),
        (Categorical(**OPTIONS), 7),
        (GaussianNoise(0.5), [0.1, 2.0, -1.0, 0.0]),
        (Bernoulli(), [1, 0, 0, 1]),
        (HeteroscedasticGaussian(), [0.1, 2.0]),
        (Poisson(), [1, 0, 2, 3]),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, (int, list)) else str(value),
)
def test_drawn_labels_have_the_curvature_of_their_likelihood(likelihood, y):
    # the covariance of the slope at the outputs, over many labels drawn for the same scores
    scores = torch.tensor([0.3, -1.0, 1.2, 0.1], dtype=torch.float64)
    out = scores.expand(200_000, 4).clone().requires_grad_()
    y = torch.tensor(y)
    drawn = drawn_cost(likelihood, out, y.expand(len(out), *y.shape), Noise(0))
    slopes = torch.autograd.grad(drawn, out)[0]

    def cost(scores):
        return likelihood.nll(scores[None, None], y[None])

    exact = torch.autograd.functional.hessian(cost, scores)  # for most likelihoods the same for all targets
    if isinstance(likelihood, HeteroscedasticGaussian):  # for this one, its mean over them
        exact = torch.diag(torch.cat([torch.exp(-2 * scores[2:]), torch.full((2,), 2.0, dtype=torch.float64)]))
    assert torch.allclose(slopes.mean(0), torch.zeros(4, dtype=torch.float64), atol=0.03)
    assert torch.allclose(slopes.T @ slopes / len(slopes), exact, rtol=0.02, atol=0.03)


def test_over_all_labels_weighed_and_smoothed_costs_have_their_exact_gauss_newton_diagonal():
    class Given(Categorical):
        """Its drawn labels are given."""

        def sample(self, out, noise):
            return self.labels

    torch.manual_seed(0)
    likelihood = Given(ignore_index=-100, class_weights=[0.5, 2.0, 3.0], label_smoothing=0.2)
    net = posterior(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)))
    x, y = torch.randn(3, 3).double(), torch.tensor([2, -100, 0])
    p = net.at_mean(x).softmax(1).detach()
    pairs = list(net.pairs())
    for calls_are_recorded in (True, False):  # with the examples kept apart, and by the square of the sum over them
        found = {pair.name: 0.0 for pair in pairs}
        for labels in itertools.product(range(3), repeat=3):
            likelihood.labels = torch.tensor(labels)
            net.zero_grad()
            with recording() as calls:
                out = net.at_mean(x)
            calls = calls if calls_are_recorded else None
            cost_with_curvature(likelihood, out, y, pairs, 1, net.noise, calls).backward()
            share = float(p[range(3), labels].prod())
            for pair in pairs:
                found[pair.name] = found[pair.name] + share * curvature(pair)

        def cost(row, label):
            return likelihood.nll(row[None, None], label[None])

        each = [
            torch.autograd.functional.hessian(lambda row, t=t: cost(row, t), s)
            for s, t in zip(net.at_mean(x), y, strict=True)
        ]
        exact = gauss_newton(net, x, torch.stack(each))
        for pair in pairs:
            assert torch.allclose(found[pair.name], exact[pair.name], atol=1e-9, rtol=1e-9), pair.name


def test_a_likelihood_derived_from_one_is_asked_for_its_own_cost():
    class Tempered(Categorical):
        def nll(self, out, y):
            return 3 * super().nll(out, y)

    class Rooted(Tempered):
        def drawn_nll(self, out, y, noise):
            return 3**0.5 * super().drawn_nll(out, y, noise)

    out, y = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    plain = drawn_cost(Categorical(), out, y, Noise(0))
    assert torch.allclose(drawn_cost(Tempered(), out, y, Noise(0)), 3 * plain)
    assert torch.allclose(drawn_cost(Rooted(), out, y, Noise(0)), 3**0.5 * plain)


def test_labels_are_drawn_on_the_axis_of_the_classes():
    out = torch.full((4, 3, 2, 5), -50.0)
    out[:, 1] = 50.0
    assert torch.equal(Categorical().sample(out, Noise(0)), torch.ones(4, 2, 5, dtype=torch.int64))


@pytest.mark.parametrize("name", NETWORKS)
def test_any_network_gets_curvatures_that_are_not_negative(name):
    build, inputs = NETWORKS[name]
    torch.manual_seed(0)
    x, *more = inputs()
    module = build()
    if more:
        module = Queried(module)
    elif isinstance(module, nn.RNNBase):
        module = Last(module)
    net = mesu.Bayesian(module, estimator="linear", seed=0)
    out = net.at_mean(x)
    y = torch.zeros(out.shape[0], *out.shape[2:], dtype=torch.int64)
    net.nll(x, y).backward()
    touched = [pair for pair in net.pairs() if pair.mean.grad is not None]
    assert touched
    assert all(bool((pair.std.grad >= 0).all()) for pair in touched)
    mesu.MESU(net, memory=100).step()
    assert all(bool((pair.std > 0).all()) for pair in net.pairs())


def test_the_cost_is_that_of_the_means_and_draws_leave_the_gradient_of_the_means_alone():
    torch.manual_seed(0)
    net = posterior(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)))
    x, y = torch.randn(5, 3).double(), torch.tensor([0, 1, 2, 1, 0])
    cost = net.nll(x, y)
    assert float(cost.detach()) == float(nn.functional.cross_entropy(net.at_mean(x).detach(), y, reduction="sum"))
    cost.backward()
    first = [pair.mean.grad.clone() for pair in net.pairs()]
    net.zero_grad()
    net.nll(x, y, samples=7).backward()
    assert all(torch.equal(a, pair.mean.grad) for a, pair in zip(first, net.pairs(), strict=True))


def test_more_labels_give_a_steadier_curvature():
    torch.manual_seed(0)
    net = posterior(nn.Linear(3, 3))
    x, y = torch.randn(4, 3).double(), torch.tensor([0, 1, 2, 1])

    def spread(labels):
        found = []
        for _ in range(200):
            net.zero_grad()
            net.nll(x, y, samples=labels).backward()
            found.append(next(net.pairs()).std.grad.clone())
        return float(torch.stack(found).std(0).mean())

    assert spread(16) == pytest.approx(spread(1) / 4, rel=0.15)


def test_without_gradients_it_is_the_cost_alone():
    net = posterior(nn.Linear(3, 3))
    x, y = torch.randn(4, 3).double(), torch.tensor([0, 1, 2, 1])
    before = net.noise.state
    with torch.no_grad():
        assert not net.nll(x, y).requires_grad
    assert torch.equal(net.noise.state, before)


def test_a_likelihood_that_cannot_sample_takes_draws_by_default_and_is_refused_by_name():
    class Absolute:
        def check(self, y):
            pass

        def nll(self, out, y):
            return (out - y).abs().sum() / len(out)

        def summarise(self, out):
            return out.mean(0)

    fallen_back = mesu.Bayesian(nn.Linear(2, 1), likelihood=Absolute())
    assert (fallen_back.estimator, fallen_back.narrowing, fallen_back.init_scale) == ("local", 1.0, 1.0)
    net = mesu.Bayesian(nn.Linear(2, 1), likelihood=Absolute(), estimator="linear")
    with pytest.raises(TypeError, match=r"Absolute has no sample\(out, noise\)"):
        net.nll(torch.randn(3, 2), torch.randn(3, 1))


def test_on_a_linear_model_one_step_is_bayes_rule():
    noise, x, y, sigma, mean = 0.5, 1.7, 2.0, 0.8, 0.3

    class Known(GaussianNoise):
        """Its drawn residuals have exactly the size of the noise, so that one label gives the exact curvature."""

        def sample(self, out, drawn_with):
            return out + self.noise_std

    module = nn.Linear(1, 1, bias=False).double()
    net = mesu.Bayesian(module, estimator="linear", likelihood=Known(noise), init_std=sigma)
    (pair,) = net.pairs()
    with torch.no_grad():
        pair.mean.fill_(mean)
    net.nll(torch.tensor([[x]], dtype=torch.float64), torch.tensor([[y]], dtype=torch.float64)).backward()
    mesu.MESU(net, memory=float("inf"), max_step=None).step()
    precision = 1 / sigma**2 + x**2 / noise**2
    assert float(pair.std.detach()) == pytest.approx(precision**-0.5, rel=1e-12)
    assert float(pair.mean.detach()) == pytest.approx((mean / sigma**2 + x * y / noise**2) / precision, rel=1e-12)


def test_linear_layers_keep_the_examples_apart():
    torch.manual_seed(0)
    net = posterior(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)))
    x, labels = torch.randn(5, 3).double(), torch.tensor([0, 1, 2, 1, 0])
    with recording() as calls:
        out = net.at_mean(x)
    pairs = list(net.pairs())
    cost_with_curvature(Fixed(labels), out, labels, pairs, 1, net.noise, calls).backward()
    for pair in pairs:
        squares = [
            torch.autograd.grad(Categorical().nll(net.at_mean(row[None])[None], label[None]), pair.mean)[0].square()
            for row, label in zip(x, labels, strict=True)
        ]
        assert torch.allclose(curvature(pair), sum(squares), rtol=1e-9), pair.name


def test_a_layer_that_is_called_twice_is_not_taken_for_one_call():
    torch.manual_seed(0)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            return self.layer(self.layer(x).tanh())

    net = posterior(Twice())
    x, labels = torch.randn(1, 3).double(), torch.tensor([2])
    with recording() as calls:
        out = net.at_mean(x)
    pairs = list(net.pairs())
    cost_with_curvature(Fixed(labels), out, labels, pairs, 1, net.noise, calls).backward()
    for pair in pairs:
        slope = torch.autograd.grad(Categorical().nll(net.at_mean(x)[None], labels), pair.mean)[0]
        assert torch.allclose(curvature(pair), slope.square(), rtol=1e-9)


def test_costs_add_up():
    torch.manual_seed(0)
    net = posterior(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)))
    x, y = torch.randn(6, 3).double(), torch.tensor([0, 1, 2, 1, 0, 2])
    found = []
    for cuts in ([6], [2, 4]):
        net.zero_grad()
        for rows, labels in zip(x.split(cuts), y.split(cuts), strict=True):
            with recording() as calls:
                out = net.at_mean(rows)
            cost_with_curvature(Fixed(labels), out, labels, list(net.pairs()), 1, net.noise, calls).backward()
        found.append([curvature(pair).clone() for pair in net.pairs()])
    assert all(torch.allclose(a, b, rtol=1e-12) for a, b in zip(*found, strict=True))


def test_frozen_weights_are_left_alone():
    net = posterior(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)))
    net.module[0].requires_grad_(False)
    before = [pair.std.clone() for pair in net.pairs()]
    net.nll(torch.randn(5, 3).double(), torch.tensor([0, 1, 2, 1, 0])).backward()
    mesu.MESU(net, memory=100).step()
    same = [torch.equal(a, pair.std) for a, pair in zip(before, net.pairs(), strict=True)]
    assert same == [True, True, False, False]


def test_a_rule_of_ones_own_is_run_on_the_default_network():
    class Still(mesu.MESU):
        def rule(self, q, g, group):
            return q

    net = mesu.Bayesian(nn.Linear(3, 3), seed=0)
    before = [pair.mean.clone() for pair in net.pairs()]
    net.nll(torch.randn(5, 3), torch.tensor([0, 1, 2, 1, 0])).backward()
    Still(net, memory=100).step()
    assert all(torch.equal(a, pair.mean) for a, pair in zip(before, net.pairs(), strict=True))


def test_another_thread_may_predict_while_this_one_trains():
    torch.manual_seed(0)
    net = mesu.Bayesian(nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5)), seed=0)
    twin = mesu.Bayesian(nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5)), seed=0)
    twin.load_state_dict(net.state_dict())
    x, y, done, failed = torch.randn(32, 20), torch.randint(5, (32,)), threading.Event(), []

    def ask():
        try:
            while not done.is_set():
                mesu.predict(net, x, samples=3)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for network in (net, twin):  # the twin learns alone, after the other thread has ended
            opt = mesu.MESU(network, memory=1000)
            for _ in range(50):
                network.nll(x, y).backward()
                opt.step()
                opt.zero_grad()
            done.set()
            thread.join()
    finally:
        done.set()
        thread.join()
    assert not failed
    assert all(torch.equal(a.mean, b.mean) for a, b in zip(net.pairs(), twin.pairs(), strict=True))


def test_the_slope_of_every_sigma_grows_with_that_of_the_cost():
    torch.manual_seed(0)
    net = posterior(nn.Linear(3, 3))
    x, y = torch.randn(4, 3).double(), torch.tensor([0, 1, 2, 1])
    found = []
    for factor in (1, 3):
        net.zero_grad()
        net.noise = Noise(1)
        (factor * net.nll(x, y)).backward()
        found.append([pair.std.grad.clone() for pair in net.pairs()])
    for once, thrice in zip(*found, strict=True):
        assert torch.allclose(3 * once, thrice)
        assert float(once.sum()) > 0
