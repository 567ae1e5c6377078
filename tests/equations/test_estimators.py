"""The two estimators are one posterior: the same predictions and expected gradients, less noise in the local one."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mesu

Z = 5.0  # standard errors; a chance of one in two million for each number compared


class Given:
    """Noise that is not random: always the number given."""

    state = None

    def __init__(self, number):
        self.number = number

    def normal(self, shape, like=None):
        return torch.full(shape, self.number, dtype=like.dtype)


def spread(net, low=0.1, high=0.6):
    """Give every sigma a size of its own."""
    generator = torch.Generator().manual_seed(7)
    for _, _, std in net.pairs():
        std.data = low + (high - low) * torch.rand(std.shape, generator=generator, dtype=std.dtype)
    return net


def small_net(estimator, **settings):
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)).double()
    return spread(mesu.Bayesian(module, estimator=estimator, **settings))


INPUTS = torch.tensor([[0.5, -1.2, 0.3, 2.0, 0.7], [-1.5, 0.4, 0.0, 0.2, -0.9]], dtype=torch.float64)
LABELS = torch.tensor([2, 0])


def moments(draws):
    """Mean and variance over the first axis, each with its standard error."""
    n = draws.shape[0]
    mean, var = draws.mean(0), draws.var(0)
    fourth = (draws - mean).pow(4).mean(0)
    return (mean, (var / n).sqrt()), (var, ((fourth - var**2) / n).sqrt())


def assert_equal_within_error(one, other):
    (a, a_error), (b, b_error) = one, other
    z = (a - b) / (a_error**2 + b_error**2).sqrt()
    assert z.abs().max() < Z, z


def test_predictions_have_the_same_distribution():
    draws = {}
    for seed, estimator in enumerate(("weights", "local")):
        with torch.no_grad():
            draws[estimator] = small_net(estimator, seed=seed)(INPUTS, samples=40_000)
    for quantity in (lambda t: t, lambda t: t.softmax(-1)):
        one, other = (moments(quantity(draws[name])) for name in ("weights", "local"))
        for which in (0, 1):  # mean, variance
            assert_equal_within_error(one[which], other[which])
            assert (one[which][1] < 0.05 * one[which][0].abs() + 0.01).all()  # the comparison says something


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer_has_its_closed_form_moments(bias):
    torch.manual_seed(2)
    net = spread(mesu.Bayesian(nn.Linear(5, 3, bias=bias).double(), estimator="local", seed=0))
    (_, mu, sigma), *rest = net.pairs()
    mean = INPUTS @ mu.T + (rest[0].mean if bias else 0.0)
    var = INPUTS**2 @ (sigma**2).T + (rest[0].std ** 2 if bias else 0.0)
    for e in (0.0, 1.0, -2.5):  # a drawn output is linear in its normal
        torch.testing.assert_close(net.sample(INPUTS, samples=1, noise=Given(e))[0], mean + var.sqrt() * e)
    with torch.no_grad():
        for estimator in ("local", "weights"):
            drawn = net.sample(INPUTS, samples=20_000, estimator=estimator)
            for measured, expected in zip(moments(drawn), (mean, var), strict=True):
                assert_equal_within_error(measured, (expected.detach(), torch.zeros(())))


@pytest.mark.parametrize("estimator", ["weights", "local"])
def test_cost_is_summed_over_the_batch_and_averaged_over_the_samples(estimator):
    net = small_net(estimator, seed=4)
    state = net.noise.state
    probs = net(INPUTS, samples=6).softmax(-1)
    by_hand = -sum(probs[s, row, label].log() for s in range(6) for row, label in enumerate(LABELS)) / 6
    net.noise.state = state
    assert net.nll(INPUTS, LABELS, samples=6).item() == pytest.approx(by_hand.item(), rel=1e-13)


def gradient_draws(estimator, seed, repeats=150, samples=150):
    """For each parameter, `repeats` independent estimates of its gradient, each the mean over `samples` draws."""
    net = small_net(estimator, seed=seed)
    found: dict[str, list] = {}
    for _ in range(repeats):
        net.zero_grad()
        net.nll(INPUTS, LABELS, samples=samples).backward()
        for name, mean, std in net.pairs():
            found.setdefault(name, []).append(mean.grad.clone())
            found.setdefault(name + "_std", []).append(std.grad.clone())
    return {name: torch.stack(grads) for name, grads in found.items()}


@pytest.fixture(scope="module")
def both_gradients():
    return gradient_draws("weights", seed=10), gradient_draws("local", seed=11)


def test_expected_gradients_are_the_same(both_gradients):
    weights, local = both_gradients
    assert len(weights) == 8  # weights and biases of two layers, means and stds
    for name in weights:
        assert_equal_within_error(moments(weights[name])[0], moments(local[name])[0])


def test_gradients_are_measured_well_enough_to_compare(both_gradients):
    for draws in both_gradients:
        for grads in draws.values():
            mean, error = moments(grads)[0]
            assert error.norm() < 0.1 * mean.norm()


def test_expected_gradient_is_the_slope_of_the_expected_cost():
    # the cost on frozen draws is a smooth function of mean and std: its finite differences know nothing of autograd
    net = small_net("local", seed=3)
    state = net.noise.state

    def cost():
        net.noise.state = state
        return net.nll(INPUTS, LABELS, samples=64)

    cost().backward()
    with torch.no_grad():
        for _, *parameters in net.pairs():
            for parameter in parameters:
                flat, grad = parameter.view(-1), parameter.grad.view(-1)
                for i in range(0, flat.numel(), 3):
                    kept, step = flat[i].item(), 1e-6
                    sides = []
                    for side in (kept + step, kept - step):
                        flat[i] = side
                        sides.append(cost().item())
                    flat[i] = kept
                    assert (sides[0] - sides[1]) / (2 * step) == pytest.approx(grad[i].item(), rel=1e-4, abs=1e-5)


def test_local_gradients_of_sigma_are_less_noisy(both_gradients):
    weights, local = both_gradients

    def ratio(name):
        return (local[name].var(0).sum() / weights[name].var(0).sum()).item()

    assert ratio("0.weight_std") < 0.5  # about a quarter; a variance from this many repeats is good to 12 %
    assert ratio("0.bias_std") < 0.5
    assert ratio("2.weight_std") < 0.9
    assert ratio("2.bias_std") < 1.3  # a bias of the last layer has no sum to gain from


CONVOLUTIONS = {
    "conv1d": (nn.Conv1d(2, 3, 3, stride=2, padding=1), (2, 2, 9)),
    "conv2d": (nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0)), (2, 2, 5, 4)),
    "conv2d-plain": (nn.Conv2d(2, 2, 2, bias=False), (1, 2, 3, 4)),
    "conv2d-groups": (nn.Conv2d(4, 4, 3, padding="same", dilation=2, groups=2), (1, 4, 4, 3)),
    "conv2d-circular": (nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), (1, 1, 3, 4)),
    "conv3d": (nn.Conv3d(1, 2, 2, stride=(1, 2, 1), padding=(0, 1, 0)), (2, 1, 3, 3, 3)),
}


def closed_form(layer, net, x):
    """A convolution is linear in its weights, out = J w, so its mean is J mu and its variance J^2 sigma^2."""
    mean, var = 0.0, 0.0
    plain = copy.deepcopy(layer).double()
    for name, mu, sigma in net.pairs():
        others = {other: torch.zeros_like(m) for other, m, _ in net.pairs() if other != name}

        def output(w, name=name, others=others):
            return torch.func.functional_call(plain, {**others, name: w}, (x,))

        jacobian = torch.func.jacrev(output)(mu.detach()).flatten(-mu.dim())
        mean = mean + jacobian @ mu.detach().flatten()
        var = var + jacobian**2 @ sigma.detach().flatten() ** 2
    return mean, var


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_have_the_moments_of_drawn_weights(name):
    layer, shape = CONVOLUTIONS[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    net = spread(mesu.Bayesian(copy.deepcopy(layer).double(), estimator="local", seed=0))
    mean, var = closed_form(layer, net, x)
    for e in (0.0, 1.0, -2.5):
        torch.testing.assert_close(net.sample(x, samples=1, noise=Given(e))[0], mean + var.sqrt() * e)
    with torch.no_grad():
        for estimator in ("local", "weights"):
            drawn = net.sample(x, samples=2500, estimator=estimator)
            for measured, expected in zip(moments(drawn), (mean, var), strict=True):
                assert_equal_within_error(measured, (expected, torch.zeros(())))


def test_an_input_of_zeros_has_a_gradient_of_zero():
    net = spread(mesu.Bayesian(nn.Linear(3, 2, bias=False).double(), estimator="local", seed=0))
    x = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    out = net(x, samples=4)
    out.sum().backward()
    assert (out.abs() < 1e-12).all()
    ((_, mean, std),) = net.pairs()
    assert (mean.grad == 0).all()
    assert (std.grad == 0).all()
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)), (6, 5)),
        (nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2)), (2, 1, 3, 4)),
        (nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Tanh()), (3, 5)),
    ],
)
def test_samples_at_once_and_one_by_one_are_equal(module, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    outs, grads = [], []
    for vectorize in (True, False):
        net = mesu.Bayesian(module.double(), estimator="weights", init_std=0.3, seed=9, vectorize=vectorize)
        out = net(x, samples=7)
        F.softplus(out).sum().backward()
        outs.append(out.detach())
        grads.append(torch.cat([p.grad.flatten() for p in net.parameters()]))
    assert outs[0].shape[:2] == (7, shape[0])
    assert outs[0].std(0).min() > 1e-4  # seven different networks
    torch.testing.assert_close(outs[0], outs[1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-11, atol=1e-11)


def test_every_example_sees_its_own_local_draws_and_shares_drawn_weights():
    # two copies of one input: under drawn weights they get the same output, under local draws independent ones
    x = INPUTS[:1].repeat(2, 1)
    with torch.no_grad():
        shared = small_net("weights", seed=0)(x, samples=2000)
        own = small_net("local", seed=0)(x, samples=2000)
    assert torch.equal(shared[:, 0], shared[:, 1])
    for output in own.unbind(-1):
        correlation = torch.corrcoef(output.T)[0, 1].item()
        assert abs(correlation) < Z / math.sqrt(2000)
