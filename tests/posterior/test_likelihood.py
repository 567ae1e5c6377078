"""Costs against sums written out and torch's own, and targets that no likelihood can score."""

from importlib.metadata import EntryPoint
from math import log, pi

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mesu
from mesu.learners.plain import fisher_diagonal
from mesu.posterior.likelihood import (
    LIKELIHOODS,
    Bernoulli,
    Categorical,
    GaussianNoise,
    HeteroscedasticGaussian,
    Poisson,
    named,
    register,
)
from mesu.posterior.noise import Noise
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
        ValueError,
        match=r"'categorical', 'gaussian', 'bernoulli', 'heteroscedastic', 'poisson', or an object with .*, got 'laplace'",
    ):
        mesu.Bayesian(nn.Linear(2, 2), likelihood="laplace", estimator="local")


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


# -- labels that are left out, weighed and smoothed --------------------------------------------------------------------

OPTIONS = {
    "left out": {"ignore_index": -100},
    "left out above": {"ignore_index": 255},
    "weighed": {"class_weights": [0.5, 2.0, 0.0, 1.0]},
    "smoothed": {"label_smoothing": 0.3},
    "all": {"ignore_index": -1, "class_weights": torch.tensor([0.5, 2.0, 3.0, 1.0]), "label_smoothing": 0.3},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_the_cost_are_torchs(name):
    options = OPTIONS[name]
    out, y = torch.randn(6, 5, 4), torch.tensor([0, 3, 2, 1, 1])
    if "ignore_index" in options:
        y[2] = options["ignore_index"]
    likelihood = Categorical(**options)
    likelihood.check(y)
    theirs = {"weight": torch.as_tensor(options["class_weights"])} if "class_weights" in options else {}
    theirs |= {key: value for key, value in options.items() if key != "class_weights"}
    wanted = torch.stack([F.cross_entropy(o, y, reduction="sum", **theirs) for o in out]).mean()
    assert torch.allclose(likelihood.nll(out, y), wanted)


def test_labels_that_are_left_out_are_looked_at_no_further():
    likelihood = Categorical(ignore_index=255)
    out, y = torch.randn(2, 3, 4), torch.tensor([255, 3, 255], dtype=torch.uint8)
    likelihood.check(y)
    assert torch.isfinite(likelihood.nll(out, y))
    with pytest.raises(ValueError, match=r"label 4 .* 4 classes"):
        likelihood.nll(out, torch.tensor([255, 4, 255]))
    with pytest.raises(ValueError, match=r"got -3: for rows without a label, .*Categorical\(ignore_index=-3\)"):
        likelihood.check(torch.tensor([0, -3, 255]))
    net = mesu.Bayesian(nn.Linear(4, 3), likelihood=Categorical(ignore_index=-1), seed=0)
    cost = net.nll(torch.randn(2, 4), torch.tensor([-1, -1]))
    cost.backward()
    assert cost.item() == 0
    assert all((pair.mean.grad == 0).all() and (pair.std.grad == 0).all() for pair in net.pairs())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"class_weights": [1.0, -1.0]}, "class_weights must be one number for each class, none negative"),
        ({"class_weights": [[1.0, 1.0]]}, "class_weights must be one number for each class"),
        ({"class_weights": [0.0, 0.0]}, "not all 0"),
        ({"class_weights": [1.0, float("nan")]}, "class_weights must"),
        ({"label_smoothing": 1.0}, r"label_smoothing must be 0 or greater and below 1, got 1\.0"),
        ({"label_smoothing": -0.1}, "label_smoothing must"),
        ({"ignore_index": 0.5}, r"ignore_index must be a whole number or None, got 0\.5"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        Categorical(**options)


def test_there_is_a_weight_for_each_class():
    net = mesu.Bayesian(nn.Linear(4, 3), likelihood=Categorical(class_weights=[1.0, 2.0]), seed=0)
    before = net.noise.state
    with pytest.raises(ValueError, match="there are 2 class_weights for 3 classes"):
        net.nll(torch.randn(2, 4), torch.tensor([0, 1]))
    assert torch.equal(net.noise.state, before)


@pytest.mark.filterwarnings("ignore::mesu.LearningWarning")  # nothing is learned here
def test_an_example_of_weight_two_is_evidence_as_if_it_came_twice():
    x, y = torch.randn(5, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 1, 0])
    twice = torch.cat([x, x[y == 1]]), torch.cat([y, y[y == 1]])
    means, stds = [], []
    for likelihood, (rows, labels) in ((Categorical(class_weights=[1.0, 2.0, 1.0]), (x, y)), (Categorical(), twice)):
        net = mesu.Bayesian(nn.Linear(4, 3).double(), likelihood=likelihood, seed=0)
        net.load_state_dict(
            {k: torch.full_like(v, 0.5) if v.is_floating_point() else v for k, v in net.state_dict().items()}
        )
        found = []
        for _ in range(2000):
            net.zero_grad()
            net.nll(rows, labels).backward()
            found.append(net.module.weight_std.grad.clone())
        means.append(net.module.weight.grad)
        stds.append(torch.stack(found).mean(0))
    assert torch.allclose(*means)
    assert torch.allclose(*stds, rtol=0.05)


# -- a mean and its noise ----------------------------------------------------------------------------------------------


def test_heteroscedastic_cost_is_torchs_log_density():
    out, y = torch.randn(5, 4, 6), torch.randn(4, 3)
    wanted = -torch.distributions.Normal(out[..., :3], out[..., 3:].exp()).log_prob(y).sum() / 5
    assert torch.allclose(HeteroscedasticGaussian().nll(out, y), wanted)
    pictures, targets = torch.randn(5, 4, 2, 3, 3), torch.randn(4, 1, 3, 3)
    wanted = -torch.distributions.Normal(pictures[:, :, :1], pictures[:, :, 1:].exp()).log_prob(targets).sum() / 5
    assert torch.allclose(HeteroscedasticGaussian().nll(pictures, targets), wanted)


def test_heteroscedastic_split_by_hand():
    out = torch.tensor([[[1.0, 0.0]], [[3.0, log(3)]]])
    found = HeteroscedasticGaussian().summarise(out)
    assert isinstance(found, RegressionPrediction)
    # means 1 and 3; noise variances 1 and 9
    assert [float(each) for each in (found.mean, found.epistemic, found.aleatoric, found.total)] == pytest.approx(
        [2, 1, 5, 6]
    )


def test_heteroscedastic_outputs_are_two_for_each_target():
    for out, y, words in (
        (torch.zeros(2, 4, 3), torch.zeros(4, 1), "there must be two for each target"),
        (torch.zeros(2, 4), torch.zeros(4, 1), "there must be two for each target"),
        (torch.zeros(2, 4, 2), torch.zeros(4), r"\(4,\) do not match the network's outputs \(4, 2\).*y\[:, None\]"),
        (torch.zeros(2, 4, 2), torch.zeros(4, 2), "two outputs for each target"),
    ):
        with pytest.raises(ValueError, match=words):
            HeteroscedasticGaussian().nll(out, y)
    with pytest.raises(ValueError, match="nan at index"):
        HeteroscedasticGaussian().check(torch.tensor([[float("nan")]]))


def test_the_noise_of_targets_is_learned():
    x = torch.linspace(-1, 1, 2000)[torch.randperm(2000)][:, None]
    y = 2 * x + torch.exp(x - 1) * torch.randn(2000, 1)
    net = mesu.Bayesian(nn.Linear(1, 2), likelihood="heteroscedastic", seed=0)
    opt = mesu.MESU(net, memory=100_000)
    for rows, targets in zip(x.split(4), y.split(4), strict=True):
        net.nll(rows, targets).backward()
        opt.step()
        opt.zero_grad()
    at = torch.tensor([[-1.0], [0.0], [1.0]])
    found = mesu.predict(net, at)
    assert torch.allclose(found.mean, 2 * at, atol=0.2)
    assert torch.allclose(found.aleatoric.sqrt(), torch.exp(at - 1), rtol=0.2)
    assert (found.epistemic < 0.05 * found.aleatoric).all()


# -- counts ------------------------------------------------------------------------------------------------------------


def test_poisson_cost_is_torchs_log_probability():
    out, y = torch.randn(5, 4, 3), torch.randint(9, (4, 3))
    wanted = -torch.distributions.Poisson(out.exp()).log_prob(y).sum() / 5
    assert torch.allclose(Poisson().nll(out, y), wanted)
    assert torch.allclose(Poisson().nll(out, y.float()), wanted)


def test_poisson_split_by_hand():
    found = Poisson().summarise(torch.tensor([[[log(2)]], [[log(4)]]]))
    # rates 2 and 4: a count scatters by its rate, and the rates by 1
    assert [float(each) for each in (found.mean, found.epistemic, found.aleatoric, found.total)] == pytest.approx(
        [3, 1, 3, 4]
    )


@pytest.mark.parametrize("bad", [-1.0, 0.5, float("nan"), float("inf")])
def test_poisson_refuses_what_is_no_count(bad):
    with pytest.raises(ValueError, match=rf"counts must be whole and 0 or greater, got {bad} at index \(0, 1\)"):
        Poisson().check(torch.tensor([[1.0, bad]]))
    with pytest.raises(ValueError, match="got -2"):
        Poisson().check(torch.tensor([-2]))
    with pytest.raises(ValueError, match=r"\(4,\) do not match the network's outputs \(4, 1\)"):
        Poisson().nll(torch.zeros(3, 4, 1), torch.zeros(4))


@pytest.mark.parametrize("rate", [0.3, 40.0, 1e12])
def test_counts_are_drawn_with_their_rate(rate):
    counts = Poisson().sample(torch.full((40_000,), log(rate), dtype=torch.float64), Noise(0))
    assert torch.equal(counts, counts.round())
    assert float(counts.mean()) == pytest.approx(rate, rel=5 / (40_000 * rate) ** 0.5 + 1e-12)
    assert float(counts.var()) == pytest.approx(rate, rel=0.05)


def test_counts_are_learned():
    x = torch.linspace(-1, 1, 2000)[torch.randperm(2000)][:, None]
    y = torch.poisson((1 + x).exp())
    net = mesu.Bayesian(nn.Linear(1, 1), likelihood="poisson", seed=0)
    assert net.estimator == "linear"
    learner = mesu.BayesianLearner(net, mesu.MESU(net, memory=100_000), engine=False)
    learner.learn(x.numpy(), y.numpy())
    found = learner.predict(torch.tensor([[-1.0], [0.0], [1.0]]).numpy())
    assert torch.allclose(found.mean, torch.tensor([[0.0], [1.0], [2.0]]).exp(), rtol=0.15)


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


def test_a_plain_network_learns_and_consolidates_with_weighed_labels():
    net, x, y = nn.Linear(4, 3), torch.randn(12, 4), torch.randint(3, (12,))
    likelihood = Categorical(class_weights=[1.0, 3.0, 0.5])
    one, other = (fisher_diagonal(net, x, y, each)[0] for each in (likelihood, Categorical()))
    assert not torch.allclose(one, other)
    only = y == 1
    threefold = fisher_diagonal(net, x[only], y[only], likelihood)[0], fisher_diagonal(net, x[only], y[only])[0]
    assert torch.allclose(threefold[0], 9 * threefold[1], rtol=1e-5)
    opt = mesu.EWC(net.parameters(), lr=0.01, strength=1.0)
    with pytest.warns(mesu.EngineFallback, match="weighs, smooths or leaves out labels"):
        learner = mesu.WeightLearner(net, opt, batch=12, likelihood=likelihood)
    before = net.weight.detach().clone()
    slope = torch.autograd.grad(likelihood.nll(net(x)[None], y), net.weight)[0]
    learner.learn(x.numpy(), y.numpy())
    assert torch.allclose(net.weight, before - 0.01 * slope)
