"""Predictions of wrapped networks: those of the posterior inside, or refused, and never without epistemic uncertainty."""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

import mesu
from mesu.posterior.wrapped import unwrapped


def perceptron():
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def posterior(**settings):
    return mesu.Bayesian(perceptron(), seed=0, **settings)


@pytest.fixture
def alone():
    """A process group of this process alone, as DDP needs one."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


WRAPPERS = {
    "compiled": lambda net: torch.compile(net, backend="eager"),
    "averaged": AveragedModel,
    "parallel": nn.DataParallel,
    "distributed": nn.parallel.DistributedDataParallel,
    "twice": lambda net: nn.DataParallel(torch.compile(net, backend="eager")),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapped_posterior_predicts_as_the_posterior(name, alone):
    net, x = posterior(), torch.randn(6, 4)
    wrapped = WRAPPERS[name](net)
    expected, found = mesu.predict(net, x, samples=9), mesu.predict(wrapped, x, samples=9)
    assert torch.equal(found.probs, expected.probs)
    assert torch.equal(found.epistemic, expected.epistemic)
    assert (found.epistemic > 1e-3).all()
    assert wrapped.training
    assert all(part.training for part in net.modules())


def test_a_wrapped_posterior_keeps_its_likelihood(alone):
    net = posterior(likelihood="gaussian", noise_std=0.5)
    for wrap in WRAPPERS.values():
        assert isinstance(mesu.predict(wrap(net), torch.randn(6, 4), samples=9), mesu.RegressionPrediction)


def test_an_optimiser_takes_a_wrapped_posterior(alone):
    for wrap in (WRAPPERS["compiled"], WRAPPERS["parallel"], WRAPPERS["distributed"]):
        net = posterior()
        opt = mesu.MESU(wrap(net), memory=100)
        assert [id(p) for p in opt.param_groups[0]["params"][::2]] == [id(pair.mean) for pair in net.pairs()]


class Lightning(nn.Module):
    """What a training framework makes its users write."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)


@pytest.mark.parametrize(
    ("wrap", "where"),
    [
        (Lightning, "'net'"),
        (lambda net: nn.DataParallel(Lightning(net)), "'net'"),
        (lambda net: nn.Sequential(nn.Flatten(), net, nn.Softmax(1)), "'1'"),
        (lambda net: Lightning(nn.Sequential(nn.Identity(), net)), r"'net\.1'"),
        (lambda net: Lightning(torch.compile(net, backend="eager")), r"'net\._orig_mod'"),
    ],
)
def test_a_posterior_inside_of_another_network_is_refused(wrap, where):
    net = wrap(posterior())
    kind = type(unwrapped(net)).__name__
    with pytest.raises(
        ValueError, match=rf"this {kind} has a mesu.Bayesian inside, at {where}.*predict with that part"
    ):
        mesu.predict(net, torch.randn(6, 4))
    with pytest.raises(ValueError, match=rf"has a mesu.Bayesian inside, at {where}"):
        mesu.MESU(net, memory=100)


def test_an_exported_posterior_is_refused():
    exported = torch.export.export(posterior(estimator="local"), (torch.randn(6, 4),)).module()
    with pytest.raises(ValueError, match=r"was exported from a mesu.Bayesian.*predict with the mesu.Bayesian itself"):
        mesu.predict(exported, torch.randn(6, 4))
    plain = torch.fx.symbolic_trace(perceptron())
    assert torch.equal(mesu.predict(plain, torch.randn(6, 4)).epistemic, torch.zeros(6))


def test_what_is_no_network_is_refused():
    with pytest.raises(TypeError, match=r"the network must be an nn\.Module, got function"):
        mesu.predict(lambda x: x, torch.randn(6, 4))


def test_a_posterior_of_a_posterior_is_refused():
    net = posterior()
    for module, words in (
        (net, "the module is Bayesian already"),
        (nn.Sequential(net), "its part '0' is Bayesian already"),
    ):
        with pytest.raises(ValueError, match=words):
            mesu.Bayesian(module)
        outer = mesu.Bayesian(nn.ModuleDict({"old": nn.Linear(2, 2)}), seed=0)
        before = copy.deepcopy(outer).state_dict()
        with pytest.raises(ValueError, match=words):
            outer.attach("new", module)
        assert outer.state_dict().keys() == before.keys()


def test_a_plain_network_is_not_kept_alive_by_having_predicted():
    net = perceptron()
    mesu.predict(net, torch.randn(6, 4))
    gone = weakref.ref(net)
    del net
    gc.collect()
    assert gone() is None
