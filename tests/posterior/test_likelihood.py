"""Costs against sums written out and torch's own, and targets that no likelihood can score."""

from importlib.metadata import EntryPoint
from math import log, pi

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mesu
from mesu.learners.plain import fisher_diagonal
from mesu.posterior.likelihood import LIKELIHOODS, Bernoulli, Categorical, GaussianNoise, named, register
from mesu.posterior.results import MultiLabelPrediction, Prediction, RegressionPrediction


def test_cross_entropy_is_summed_over_the_batch_and_averaged_over_the_samples():
    out = torch.tensor([[[0.0, log(3)], [log(4), 0.0]], [[0.0, 0.0], [0.0, log(9)]]])
    y = torch.tensor([1, 0])
    # probabilities of the labels: 3/4, 4/5 in the first draw; 1/2, 1/10 in the second
    wanted = -(log(3 / 4) + log(4 / 5) + log(1 / 2) + log(1 / 10)) / 2
    assert float(Categorical().nll(out, y)) == pytest.approx(wanted, rel=1e-6)


def test_cross_entropy_is_torchs_mean_over_draws():
    out, y = torch.randn(6, 5, 4), torch.tensor([0, 3, 2, 1, 1])
    wanted = torch.stack([F.cross_entropy(o, y, reduction="sum") for o in out]).mean()
    assert torch.allclose(Categorical().nll(out, y), wanted)


def test_labels_along_a_sequence():
    out, y = torch.randn(3, 2, 4, 5), torch.randint(4, (2, 5))
    wanted = torch.stack([F.cross_entropy(o, y, reduction="sum") for o in out]).mean()
    assert torch.allclose(Categorical().nll(out, y), wanted)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_any_integer_is_a_label(dtype):
    out, y = torch.randn(3, 2, 4), torch.tensor([3, 0])
    Categorical().check(y.to(dtype))
    assert torch.equal(Categorical().nll(out, y.to(dtype)), Categorical().nll(out, y))


def test_gaussian_cost_by_hand():
    out = torch.tensor([[[1.0], [2.0]], [[3.0], [2.0]]])
    y = torch.tensor([[1.0], [4.0]])
    # squared errors 0, 4 and 4, 4, noise_std 2: divided by 2 * 4; four log densities over two draws
    wanted = (12 / 8) / 2 + 2 * (log(2) + 0.5 * log(2 * pi))
    assert float(GaussianNoise(2.0).nll(out, y)) == pytest.approx(wanted, rel=1e-6)


def test_gaussian_cost_is_torchs_log_density():
    out, y = torch.randn(5, 4, 2), torch.randn(4, 2)
    wanted = -torch.distributions.Normal(out, 0.3).log_prob(y).sum() / 5
    assert torch.allclose(GaussianNoise(0.3).nll(out, y), wanted)


def test_gaussian_refuses_targets_of_another_shape():
    # [4] against [4, 1] would broadcast to 16 errors
    with pytest.raises(ValueError, match=r"\(4,\).*\(4, 1\).*y\[:, None\]"):
        GaussianNoise().nll(torch.zeros(3, 4, 1), torch.zeros(4))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_gaussian_refuses_targets_that_are_not_finite(bad):
    with pytest.raises(ValueError, match=rf"{bad} at index \(1, 0\) \(1 of 2 values"):
        GaussianNoise().check(torch.tensor([[0.0], [bad]]))


@pytest.mark.parametrize("noise_std", [0.0, -1.0, float("nan"), float("inf")])
def test_noise_std_must_be_positive(noise_std):
    with pytest.raises(ValueError, match=f"noise_std .* got {noise_std!r}"):
        mesu.Bayesian(nn.Linear(2, 1), likelihood="gaussian", noise_std=noise_std, estimator="local")


@pytest.mark.parametrize("y", [torch.tensor([1.0]), torch.tensor([True]), torch.tensor([1j])])
def test_categorical_refuses_what_is_not_an_integer(y):
    with pytest.raises(ValueError, match=r"integers.*y\.long\(\)"):
        Categorical().check(y)


def test_categorical_refuses_a_negative_label():
    with pytest.raises(ValueError, match="-3"):
        Categorical().check(torch.tensor([0, -3, 2]))


def test_categorical_refuses_a_label_outside_the_head():
    with pytest.raises(ValueError, match=r"label 4 .* 3 classes \(0 to 2\)"):
        Categorical().nll(torch.zeros(2, 2, 3), torch.tensor([0, 4]))


def test_categorical_refuses_outputs_without_classes():
    with pytest.raises(ValueError, match="classifier must give"):
        Categorical().nll(torch.zeros(2, 3), torch.tensor([0, 1, 0]))


def test_names():
    assert isinstance(named("categorical", 1.0), Categorical)
    assert named("gaussian", 0.5).noise_std == 0.5
    own = GaussianNoise(3.0)
    assert named(own, 1.0) is own
    with pytest.raises(
        ValueError, match=r"'categorical', 'gaussian', 'bernoulli', or an object with .*, got 'poisson'"
    ):
        mesu.Bayesian(nn.Linear(2, 2), likelihood="poisson", estimator="local")


@pytest.mark.parametrize("estimator", ["weights", "local"])
def test_network_cost_is_the_likelihood_of_its_own_draws(estimator):
    x, y = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    net, twin = (mesu.Bayesian(nn.Linear(4, 3), estimator=estimator, seed=5) for _ in range(2))
    twin.load_state_dict(net.state_dict())
    assert torch.equal(net.nll(x, y, samples=7), Categorical().nll(twin(x, samples=7), y))


def test_network_cost_of_a_regression():
    x, y = torch.randn(5, 4), torch.randn(5, 1)
    net = mesu.Bayesian(nn.Linear(4, 1), likelihood="gaussian", noise_std=0.2, seed=5, estimator="local")
    state = net.noise.state
    cost = net.nll(x, y, samples=7)
    net.noise.state = state
    assert torch.equal(cost, GaussianNoise(0.2).nll(net(x, samples=7), y))


def test_wrong_gaussian_shape_leaves_the_noise_alone():
    net = mesu.Bayesian(nn.Linear(4, 1), likelihood="gaussian", seed=5, estimator="local")
    state = net.noise.state
    with pytest.raises(ValueError, match="reshape the targets"):
        net.nll(torch.randn(5, 4), torch.randn(5))
    assert torch.equal(net.noise.state, state)


# -- several labels ---------------------------------------------------------------------------------------------------


def test_bernoulli_cost_by_hand():
    out = torch.tensor([[[0.0, log(3)]], [[log(4), 0.0]]])
    # probabilities of having the first label and not the second: 1/2 * 1/4, and 4/5 * 1/2
    wanted = -(log(1 / 2) + log(1 / 4) + log(4 / 5) + log(1 / 2)) / 2
    for y in (torch.tensor([[1, 0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([[True, False]])):
        assert float(Bernoulli().nll(out, y)) == pytest.approx(wanted, rel=1e-6)


def test_bernoulli_split_by_hand():
    p = torch.tensor([[[0.9, 0.5]], [[0.1, 0.5]]], dtype=torch.float64)
    found = Bernoulli().summarise(torch.logit(p))
    certain = -(0.9 * log(0.9) + 0.1 * log(0.1))
    assert found.probs.flatten().tolist() == pytest.approx([0.5, 0.5])
    assert found.total.flatten().tolist() == pytest.approx([log(2), log(2)])
    assert found.aleatoric.flatten().tolist() == pytest.approx([certain, log(2)])
    assert found.epistemic.flatten().tolist() == pytest.approx([log(2) - certain, 0.0], abs=1e-12)
    assert found.uncertainty.total is found.total
    assert Bernoulli().summarise(torch.tensor([[[2.0, -1.0]]])).labels.tolist() == [[True, False]]


def test_one_yes_or_no_is_a_choice_of_two():
    scores, y = torch.randn(7, 5, 1, dtype=torch.float64), torch.tensor([1, 0, 0, 1, 1])
    two = torch.cat([torch.zeros_like(scores), scores], 2)
    assert torch.allclose(Bernoulli().nll(scores, y[:, None]), Categorical().nll(two, y))
    one, other = Bernoulli().summarise(scores), Categorical().summarise(two)
    assert torch.allclose(one.probs[:, 0], other.probs[:, 1])
    for part, whole in zip(one.uncertainty, other.uncertainty, strict=True):
        assert torch.allclose(part[:, 0], whole)


def test_bernoulli_refuses_what_is_no_label():
    for bad in (2, -1, 0.5, float("nan")):
        with pytest.raises(ValueError, match=rf"0 or 1, got {bad} at index \(0, 1\)"):
            Bernoulli().check(torch.tensor([[1, bad]]))
    with pytest.raises(ValueError, match=r"\(4,\) do not match the network's outputs \(4, 1\)"):
        Bernoulli().nll(torch.zeros(3, 4, 1), torch.zeros(4))


def several_labels(rows=600):
    x = torch.randn(rows, 3)
    return x, (x > 0).long()


def test_several_labels_are_learned():
    net = mesu.Bayesian(nn.Linear(3, 3), likelihood="bernoulli", seed=0, estimator="local")
    learner = mesu.BayesianLearner(net, mesu.MESU(net, memory=10_000), samples=4, engine=False)
    x, y = several_labels()
    learner.learn(x.numpy(), y.numpy())
    found = learner.predict(x.numpy(), samples=20)
    assert isinstance(found, MultiLabelPrediction)
    assert float((found.labels == y.bool()).float().mean()) > 0.95
    plain = nn.Linear(3, 3)
    learner = mesu.WeightLearner(plain, torch.optim.SGD(plain.parameters(), 0.1), engine=False, likelihood="bernoulli")
    learner.learn(x.numpy(), y.numpy())
    assert float((learner.predict(x.numpy()).labels == y.bool()).float().mean()) > 0.95
    with pytest.raises(ValueError, match="0 or 1, got 7"):
        learner.learn(x.numpy(), 7 * y.numpy())


# -- likelihoods of others --------------------------------------------------------------------------------------------


class Laplace:
    """Absolute errors: a likelihood from outside."""

    def __init__(self, noise_std=1.0):
        self.noise_std = noise_std

    def check(self, y):
        if not y.is_floating_point():
            raise ValueError(f"targets must be numbers, got {y.dtype}")

    def nll(self, out, y):
        return (out - y).abs().sum() / self.noise_std / out.shape[0]

    def summarise(self, out):
        return out.median(0).values


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(LIKELIHOODS, "_registered", dict(LIKELIHOODS._registered))
    return register


def test_the_built_in_ones_summarise():
    out = torch.randn(5, 4, 3)
    for own, kind in ((Categorical(), Prediction), (GaussianNoise(0.5), RegressionPrediction)):
        assert type(own.summarise(out)) is kind
    assert torch.equal(GaussianNoise(0.5).summarise(out).aleatoric, torch.full((4, 3), 0.25))


def test_a_likelihood_from_outside_costs_and_predicts():
    net = mesu.Bayesian(nn.Linear(4, 1), likelihood=Laplace(), seed=5, estimator="local")
    x, y = torch.randn(50, 4), torch.randn(50, 1)
    state = net.noise.state
    cost = net.nll(x, y, samples=7)
    net.noise.state = state
    assert torch.equal(cost, (net(x, samples=7) - y).abs().sum() / 7)
    whole = mesu.predict(net, x, samples=9)
    assert whole.shape == (50, 1)
    assert torch.allclose(mesu.predict(net, x, samples=9, chunk=7), whole)
    with pytest.raises(ValueError, match="targets must be numbers"):
        net.nll(x, y.long())
    plain = nn.Linear(4, 1)
    assert torch.equal(mesu.predict(plain, x, likelihood=Laplace()), plain(x))


def test_a_likelihood_has_a_name(registry):
    registry("laplace")(Laplace)
    assert named("laplace", 0.3).noise_std == 0.3  # it has such a parameter
    net = mesu.Bayesian(nn.Linear(4, 1), likelihood="laplace", noise_std=2.0, seed=5, estimator="local")
    assert (type(net.likelihood), net.likelihood.noise_std) == (Laplace, 2.0)
    with pytest.raises(ValueError, match="already likelihood 'laplace'"):
        registry("laplace")(Bernoulli)


def test_an_entry_point_names_a_likelihood(monkeypatch):
    point = EntryPoint("theirs", f"{Bernoulli.__module__}:Bernoulli", "mesu.likelihoods")
    monkeypatch.setattr("mesu.registry.entry_points", lambda group: [point] if group == point.group else [])
    assert isinstance(named("theirs"), Bernoulli)


def test_what_is_no_likelihood_is_refused():
    class Half:
        check = nll = print

    for wrong, words in (
        (Half(), "must have the methods check, nll and summarise, and Half has no summarise"),
        (3, "int has no check"),
        (Laplace, "must be an object, got the class Laplace: call it first"),
    ):
        with pytest.raises(TypeError, match=words):
            mesu.Bayesian(nn.Linear(4, 1), likelihood=wrong, estimator="local")


@pytest.mark.parametrize("result", [3.0, (torch.zeros(2), torch.zeros(2)), RegressionPrediction(1, 2, 3, 4)])
def test_a_result_that_cannot_be_joined_is_refused(result):
    likelihood = Laplace()
    likelihood.summarise = lambda out: result
    net = mesu.Bayesian(nn.Linear(4, 1), likelihood=likelihood, seed=5, estimator="local")
    with pytest.raises(
        TypeError, match=f"summarise gives a {type(result).__name__}: it must give a tensor, or a dataclass"
    ):
        mesu.predict(net, torch.zeros(2, 4))


def test_a_plain_network_under_a_likelihood_of_ones_own_learns_and_consolidates():
    net, x, y = nn.Linear(4, 1), torch.randn(12, 4), torch.randn(12, 1)
    fisher = fisher_diagonal(net, x, y, GaussianNoise(0.5))
    # the gradient of (f - y)^2 / 2 s^2 with respect to the weights is x (f - y) / s^2
    error = (net(x) - y).detach() / 0.25
    assert torch.allclose(fisher[0], ((error * x) ** 2).mean(0, keepdim=True))
    assert torch.allclose(fisher[1], (error**2).mean(0))
    opt = mesu.EWC(net.parameters(), lr=0.01, strength=1.0)
    with pytest.warns(mesu.EngineFallback, match="its likelihood is GaussianNoise"):
        learner = mesu.WeightLearner(net, opt, likelihood=GaussianNoise(0.5))
    before = net.weight.detach().clone()
    learner.learn(x.numpy(), y.numpy())
    assert not torch.equal(net.weight, before)
    learner.boundary(x.numpy(), y.numpy())
    assert isinstance(learner.predict(x.numpy()), RegressionPrediction)
