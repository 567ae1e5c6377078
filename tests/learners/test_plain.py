"""Learners of plain networks: the Fisher information, and the torch path beside the engine."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mesu
from mesu import optim
from mesu.lab.data import Dataset
from mesu.lab.experiments.cifar import experiment as experiment
from mesu.lab.experiments.cifar.conv_net import ConvNet
from mesu.learners import WeightLearner
from mesu.learners.plain import fisher_diagonal


def test_fisher_is_the_mean_of_squared_gradients_one_example_at_a_time():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x, y = torch.randn(7, 3, dtype=torch.float64), torch.randint(0, 2, (7,))
    expected = [torch.zeros_like(p) for p in net.parameters()]
    for example, label in zip(x.split(1), y.split(1), strict=True):
        loss = nn.functional.cross_entropy(net(example), label)
        for total, g in zip(expected, torch.autograd.grad(loss, list(net.parameters())), strict=True):
            total += g**2 / 7
    for mine, theirs in zip(fisher_diagonal(net, x, y), expected, strict=True):
        assert torch.allclose(mine, theirs)


def test_learners_on_the_torch_path_do_what_the_engine_does():
    # a layer that the engine does not know, and that does nothing
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 6)).astype(np.float32), rng.integers(0, 3, 40)
    for make in (
        lambda p: optim.SGD(p, 0.05),
        lambda p: optim.EWCOnline(p, 0.05, 2.0, 0.2),
        lambda p: optim.SI(p, 0.05, 0.1),
    ):
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
        torch.manual_seed(0)
        odd = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Identity(), nn.Linear(5, 3))
        fast = WeightLearner(plain, make(list(plain.parameters())))
        with pytest.warns(mesu.EngineFallback, match="Identity"):
            slow = WeightLearner(odd, make(list(odd.parameters())))
        for _ in range(2):
            for learner in (fast, slow):
                learner.learn(x, y)
                learner.boundary(x, y)
        for a, b in zip(plain.parameters(), odd.parameters(), strict=True):
            assert torch.allclose(a, b, atol=1e-5)
        assert (slow.predict(x, samples=5).epistemic == 0).all()


def pictures(classes, count, seed=0):
    """Noise whose brightness says its class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, count)
    x = (rng.random((count, 3, 32, 32)) * 0.2 + y[:, None, None, None] / classes).astype(np.float32)
    return Dataset("made up", x, y, x[: count // 2], y[: count // 2], classes)


def test_fisher_of_a_head_is_a_loop_over_examples():
    torch.manual_seed(0)
    net, data = ConvNet(3, 2, width=2).eval(), pictures(2, 12)
    x, y = torch.from_numpy(data.x_train), torch.from_numpy(data.y_train)
    total = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    for image, label in zip(x.split(1), y.split(1), strict=True):
        net.zero_grad()
        F.cross_entropy(net(image, head=2), label).backward()
        for name, p in net.named_parameters():
            if p.grad is not None:
                total[name] += p.grad.square() / len(x)
    for found, (name, wanted) in zip(fisher_diagonal(net, x, y, head=2), total.items(), strict=True):
        assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-12), name
        assert ("heads.0" in name or "heads.1" in name) == (not found.any())


def test_in_training_every_example_of_the_fisher_has_a_dropout_of_its_own():
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(1, 2, bias=False))
    nn.init.zeros_(net[1].weight)  # both classes are as likely: the slope is half the input, which is 0 or 2
    found = fisher_diagonal(net, torch.ones(400, 1), torch.zeros(400, dtype=torch.long))[0]
    assert (
        0.4 < float(found.mean()) < 0.6
    )  # the share of examples that were kept; one dropout for all would give 0 or 1


@pytest.mark.parametrize(("mean", "engine"), [(False, None), (False, False), (True, False)])
def test_a_batch_s_losses_are_summed_or_their_mean_is_taken(mean, engine):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    x, y = torch.randn(6, 3), torch.randint(0, 2, (6,))
    losses = F.cross_entropy(net(x), y, reduction="none")
    slopes = torch.autograd.grad(losses.sum() / (6 if mean else 1), list(net.parameters()))
    expected = [p.detach() - 0.1 * g for p, g in zip(net.parameters(), slopes, strict=True)]
    learner = WeightLearner(net, optim.SGD(net.parameters(), 0.1), batch=6, engine=engine, mean=mean)
    learner.learn(x.numpy(), y.numpy())
    for found, wanted in zip(net.parameters(), expected, strict=True):
        assert torch.allclose(found, wanted, atol=1e-6)


def test_the_mean_of_a_batch_is_not_learned_in_the_engine():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with pytest.warns(mesu.EngineFallback, match="the mean of a batch's losses"):
        assert WeightLearner(net, optim.SGD(net.parameters(), 0.1), batch=2, mean=True).engine is None
    assert WeightLearner(net, optim.SGD(net.parameters(), 0.1), batch=1, mean=True).engine is not None
