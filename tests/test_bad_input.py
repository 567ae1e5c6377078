"""Bad input is refused with a message that names it, before the posterior or its noise is touched."""

from contextlib import contextmanager
from math import inf, nan

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import mesu

NOT_FINITE = st.sampled_from([nan, inf, -inf])
NEGATIVE = st.floats(max_value=0, exclude_max=True, allow_nan=False)
NOT_POSITIVE = st.one_of(st.floats(max_value=0), NOT_FINITE)


def linear_net(**settings):
    return mesu.Bayesian(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), seed=0, **settings)


def flat_net(**settings):
    return mesu.Bayesian(nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), seed=0, **settings)


def image_net(**settings):
    return mesu.Bayesian(nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(12, 3)), seed=0, **settings)


@contextmanager
def refused(net, *words):
    """A `ValueError` whose message has all these words, and a network and noise that are bitwise as they were."""
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(ValueError, match=r"\w") as refusal:
        yield
    for word in words:
        assert str(word) in str(refusal.value)
    after = net.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert all(p.grad is None for p in net.parameters())


# -- data -------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["weights", "local"])
def estimator(request):
    return request.param


@pytest.mark.parametrize("bad", [nan, inf, -inf])
@pytest.mark.parametrize(
    ("make", "shape", "where"),
    [(linear_net, (3, 4), (1, 2)), (flat_net, (3, 4, 4), (2, 0, 1)), (image_net, (3, 2, 4, 4), (0, 1, 3, 3))],
)
def test_inputs_that_are_not_finite(make, shape, where, bad, estimator):
    net = make(estimator=estimator)
    x = torch.randn(shape)
    x[where] = bad
    with refused(net, bad, where, "drop or fill"):
        net.nll(x, torch.tensor([0, 1, 2]))
    with refused(net, bad, where, "drop or fill"):
        mesu.predict(net, x)


@pytest.mark.parametrize(
    ("make", "shape", "wanted"),
    [
        (linear_net, (3, 5), "4 features"),
        (linear_net, (3, 1), "4 features"),
        (linear_net, (3, 4, 2), "4 features"),
        (flat_net, (3, 5, 5), "16 features"),
        (flat_net, (3, 15), "16 features"),
        (image_net, (3, 1, 4, 4), "2 channels"),
        (image_net, (3, 3, 4, 4), "2 channels"),
    ],
)
@pytest.mark.parametrize("samples", [1, 4])
def test_inputs_of_the_wrong_width(make, shape, wanted, samples, estimator):
    net = make(estimator=estimator)
    with refused(net, shape, wanted):
        net.nll(torch.randn(shape), torch.tensor([0, 1, 2]), samples=samples)
    with refused(net, shape, wanted):
        mesu.predict(net, torch.randn(shape), samples=samples)


def test_images_of_the_wrong_size(estimator):
    # the channels fit, the layer behind them does not
    net = image_net(estimator=estimator)
    with refused(net, (3, 2, 6, 6)):
        net.nll(torch.randn(3, 2, 6, 6), torch.tensor([0, 1, 2]))


@pytest.mark.parametrize(("make", "shape"), [(linear_net, (3, 4)), (flat_net, (3, 4, 4)), (image_net, (3, 2, 4, 4))])
def test_other_failures_are_not_blamed_on_the_width(make, shape, estimator):
    with pytest.raises(RuntimeError, match=r"dtype|type"):
        make(estimator=estimator)(torch.randn(shape, dtype=torch.float64), samples=2)


@pytest.mark.parametrize(("label", "words"), [(3, ("label 3", "3 classes")), (99, ("99",)), (-1, ("-1",))])
@pytest.mark.parametrize("make", [linear_net, flat_net])
def test_labels_outside_the_head(make, label, words, estimator):
    net = make(estimator=estimator)
    x = torch.randn(3, 4) if make is linear_net else torch.randn(3, 4, 4)
    with refused(net, *words):
        net.nll(x, torch.tensor([0, label, 1]), samples=3)


@given(st.integers(-(2**31), 2**31).filter(lambda label: not 0 <= label < 3))
def test_any_label_outside_the_head(label):
    net = linear_net()
    with refused(net, label):
        net.nll(torch.randn(2, 4), torch.tensor([0, label]))


@pytest.mark.parametrize("labels", [torch.tensor([0.0, 1.0, 2.0]), torch.tensor([True, False, True])])
def test_labels_that_are_not_integers(labels, estimator):
    net = linear_net(estimator=estimator)
    with refused(net, labels.dtype, "y.long()", "gaussian"):
        net.nll(torch.randn(3, 4), labels)


def test_labels_with_an_axis_too_many():
    net = linear_net()
    with refused(net):
        net.nll(torch.randn(3, 4, 1).squeeze(-1), torch.tensor([0, 1]))
    with refused(net, "3 inputs", "1 targets"):
        net.nll(torch.randn(3, 4), torch.tensor([[0, 1, 2]]))


@pytest.mark.parametrize(("inputs", "targets"), [(0, 0), (3, 2), (2, 3), (0, 3), (3, 0)])
def test_empty_or_mismatched_batches(inputs, targets, estimator):
    net = linear_net(estimator=estimator)
    with refused(net, f"{inputs} inputs", f"{targets} targets"):
        net.nll(torch.randn(inputs, 4), torch.zeros(targets, dtype=torch.long))


def test_nothing_to_predict():
    net = linear_net()
    with refused(net, (0, 4)):
        mesu.predict(net, torch.zeros(0, 4))


def test_scalars_are_no_batch():
    net = linear_net()
    with refused(net):
        net.nll(torch.tensor(1.0), torch.tensor(1))


@pytest.mark.parametrize("samples", [0, -1, 1.5, "3"])
def test_samples_that_cannot_be_drawn(samples, estimator):
    net = linear_net(estimator=estimator)
    x = torch.randn(3, 4)
    with refused(net, repr(samples), "1 or more"):
        net(x, samples=samples)
    with refused(net, repr(samples), "1 or more"):
        net.nll(x, torch.tensor([0, 1, 2]), samples=samples)


@pytest.mark.parametrize("samples", [-1, 1.5, False])
def test_samples_that_cannot_be_predicted_with(samples):
    net = linear_net()
    with refused(net, repr(samples), "1 or more"):
        mesu.predict(net, torch.randn(3, 4), samples=samples)


@pytest.mark.parametrize("bad", [nan, inf])
def test_regression_targets_that_are_not_finite(bad, estimator):
    net = mesu.Bayesian(nn.Linear(4, 1), likelihood="gaussian", estimator=estimator, seed=0)
    with refused(net, bad, (1, 0), "drop or fill"):
        net.nll(torch.randn(2, 4), torch.tensor([[0.0], [bad]]))


def test_regression_targets_of_another_shape(estimator):
    net = mesu.Bayesian(nn.Linear(4, 1), likelihood="gaussian", estimator=estimator, seed=0)
    with refused(net, (2,), (2, 1), "reshape"):
        net.nll(torch.randn(2, 4), torch.zeros(2))


def test_a_refused_batch_does_not_change_what_comes_after():
    net, twin = linear_net(), linear_net()
    twin.load_state_dict(net.state_dict())
    x, y = torch.randn(3, 4), torch.tensor([0, 1, 2])
    for bad_x, bad_y in ((x * nan, y), (x[:, :3], y), (x, y + 1), (x[:0], y[:0]), (x, y.float())):
        with pytest.raises(ValueError, match=r"\w"):
            net.nll(bad_x, bad_y)
    assert torch.equal(net.nll(x, y), twin.nll(x, y))


# -- settings ---------------------------------------------------------------------------------------------------------

OPTIMISERS = {
    "mesu": lambda net, **k: mesu.MESU(net, **{"memory": 100, **k}),
    "bayes-by-backprop": lambda net, **k: mesu.BayesByBackprop(net, **{"lr": 0.1, **k}),
    "bayesian-synapse": lambda net, **k: mesu.BayesianSynapse(net, **{"tau": 100, **k}),
    "foo-vb": lambda net, **k: mesu.FOOVB(net, **k),
}
WITH_PRIOR = ("mesu", "bayes-by-backprop", "bayesian-synapse")


@given(NOT_POSITIVE, st.sampled_from(WITH_PRIOR))
def test_prior_std_must_be_positive(prior_std, name):
    net = linear_net()
    with refused(net, "prior_std", repr(prior_std), "greater than 0"):
        OPTIMISERS[name](net, prior_std=prior_std)


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False), st.sampled_from(WITH_PRIOR))
def test_any_positive_prior_std_is_taken_or_refused_by_name(prior_std, name):
    # its square may be 0 or infinite
    said = "prior_std"
    try:
        OPTIMISERS[name](linear_net(estimator="local"), prior_std=prior_std)
    except ValueError as refusal:
        said = str(refusal)
    assert "prior_std" in said


@given(NOT_FINITE, st.sampled_from(WITH_PRIOR))
def test_prior_mean_must_be_finite(prior_mean, name):
    net = linear_net()
    with refused(net, "prior_mean", repr(prior_mean), "finite"):
        OPTIMISERS[name](net, prior_mean=prior_mean)


@given(st.one_of(st.floats(max_value=1), st.just(nan)))
def test_memory_must_be_more_than_one_update(memory):
    net = linear_net()
    with refused(net, "memory must be greater than 1 update", repr(memory), "float('inf')"):
        mesu.MESU(net, memory=memory)


@given(st.floats(1.001, 1e6), st.floats(1, 1e3), st.sampled_from(["lr_mean", "lr_std"]))
def test_rates_must_be_below_the_memory(memory, factor, rate):
    net = linear_net()
    with refused(net, "memory must be greater than lr_mean and lr_std", repr(memory), repr(memory * factor)):
        mesu.MESU(net, memory=memory, **{rate: memory * factor})


@given(
    st.one_of(NEGATIVE, NOT_FINITE),
    st.sampled_from(
        [
            ("mesu", "lr_mean"),
            ("mesu", "lr_std"),
            ("foo-vb", "lr_mean"),
            ("foo-vb", "lr_std"),
            ("bayes-by-backprop", "lr"),
            ("bayes-by-backprop", "kl_weight"),
        ]
    ),
)
def test_rates_must_not_be_negative(value, where):
    name, rate = where
    net = linear_net()
    with refused(net, rate, repr(value), "0 or greater"):
        OPTIMISERS[name](net, **{rate: value})


@given(st.one_of(st.floats(max_value=0), st.just(nan)), st.sampled_from(list(OPTIMISERS)))
def test_max_step_must_be_positive(max_step, name):
    net = linear_net()
    with refused(net, "max_step", repr(max_step), "None switches it off"):
        OPTIMISERS[name](net, max_step=max_step)


@given(st.one_of(st.floats(max_value=0), st.sampled_from([nan, inf, "begin", [1]])))
def test_max_std_must_be_positive(max_std):
    net = linear_net()
    with refused(net, "max_std", repr(max_std), "'start'", "None for no limit"):
        mesu.MESU(net, memory=100, max_std=max_std)


@given(st.one_of(st.floats(max_value=2), st.just(nan)))
def test_tau_must_be_more_than_two_updates(tau):
    net = linear_net()
    with refused(net, "tau must be greater than 2", repr(tau)):
        mesu.BayesianSynapse(net, tau=tau)


@given(
    st.sampled_from([("memory", 1.0), ("prior_std", 0.0), ("lr_mean", -1.0), ("lr_std", nan), ("max_step", -0.5)]),
    st.booleans(),
)
def test_settings_spoilt_later_are_refused_at_the_step(setting, exact):
    name, value = setting
    net = linear_net(estimator="local")
    opt = mesu.MESU(net, memory=100, update="exact" if exact else "paper")
    for parameter in net.parameters():
        parameter.grad = torch.full_like(parameter, 0.01)
    opt.param_groups[0][name] = value
    before = [p.detach().clone() for p in net.parameters()]
    with pytest.raises(ValueError, match=name):
        opt.step()
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), before, strict=True))
