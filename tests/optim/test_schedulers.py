"""torch's schedulers: a group's lr multiplies both rates, to the bit, in torch and in compiled code."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as schedulers

import mesu

RULES = {
    "mesu": lambda net, **rates: mesu.MESU(net, memory=100, **rates),
    "paper": lambda net, **rates: mesu.MESU(net, memory=100, update="paper", **rates),
    "foo-vb": lambda net, **rates: mesu.FOOVB(net, **rates),
}


def posterior(**settings):
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return mesu.Bayesian(module, seed=0, **settings)


def stepped(opt, net, x, y):
    net.nll(x, y).backward()
    opt.step()
    opt.zero_grad()


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("rule", RULES)
def test_lr_is_both_rates_scaled(rule):
    nets = [posterior(estimator="local") for _ in range(4)]
    own = {"lr_mean": 0.5, "lr_std": 0.25}
    settings = [{**own, "lr": 0.1}, {"lr_mean": 0.1 * 0.5, "lr_std": 0.1 * 0.25}, own, {**own, "lr": 1.0}]
    x, y = torch.randn(6, 4), torch.randint(3, (6,))
    for net, rates in zip(nets, settings, strict=True):
        opt = RULES[rule](net, **rates)
        for _ in range(3):
            stepped(opt, net, x, y)
    scaled, by_hand, plain, one = nets
    assert same(scaled, by_hand)
    assert same(plain, one)
    assert not same(scaled, plain)


@pytest.mark.parametrize(
    "make",
    [
        lambda opt: schedulers.CosineAnnealingLR(opt, T_max=10, eta_min=0.1),
        lambda opt: schedulers.LambdaLR(opt, lambda epoch: 0.5**epoch),
        lambda opt: schedulers.OneCycleLR(opt, max_lr=1.0, total_steps=10, cycle_momentum=False),
        lambda opt: schedulers.SequentialLR(opt, [schedulers.LinearLR(opt), schedulers.ExponentialLR(opt, 0.9)], [4]),
        lambda opt: schedulers.StepLR(opt, 2),
    ],
)
def test_schedulers_set_the_rates(make):
    net, by_hand = posterior(), posterior()
    opt, other = mesu.MESU(net, memory=100), mesu.MESU(by_hand, memory=100)
    scheduler = make(opt)
    x, y, seen = torch.randn(6, 4), torch.randint(3, (6,)), []
    for _ in range(6):
        rate = scheduler.get_last_lr()[0]
        seen.append(rate)
        other.param_groups[0].update(lr_mean=rate, lr_std=rate)
        stepped(opt, net, x, y)
        stepped(other, by_hand, x, y)
        scheduler.step()
    assert len(set(seen)) > 1
    assert same(net, by_hand)


def test_a_plateau_lowers_the_rates():
    net = posterior()
    opt = mesu.MESU(net, memory=100)
    scheduler = schedulers.ReduceLROnPlateau(opt, factor=0.5, patience=0)
    for loss in (1.0, 1.0, 1.0):
        scheduler.step(loss)
    assert opt.constants(opt.param_groups[0])[:2] == (0.25, 0.25)


@pytest.mark.parametrize("estimator", ["linear", "local"])
def test_the_engine_follows_a_schedule(estimator):
    net, by_hand, torch_path = (
        posterior(estimator=estimator),
        posterior(estimator=estimator),
        posterior(estimator=estimator),
    )
    x, y = torch.randn(6, 4).numpy(), np.array([0, 1, 2, 0, 1, 2])
    learners = [
        mesu.BayesianLearner(each, mesu.MESU(each, memory=100), samples=1, engine=engine)
        for each, engine in ((net, None), (by_hand, None), (torch_path, False))
    ]
    scheduler = schedulers.ExponentialLR(learners[0].optimizer, 0.5)
    for at in range(3):
        learners[1].optimizer.param_groups[0].update(lr_mean=0.5**at, lr_std=0.5**at)
        learners[0].learn(x, y)
        learners[1].learn(x, y)
        scheduler.step()
    assert learners[0].engine is not None
    assert same(net, by_hand)


def test_groups_have_rates_of_their_own():
    net = posterior()
    first, *others = list(net.pairs())
    opt = mesu.MESU([{"params": [first], "lr": 0.0}, {"params": others}], memory=100)
    before = first.mean.clone(), others[0].mean.clone()
    stepped(opt, net, torch.randn(6, 4), torch.randint(3, (6,)))
    assert torch.equal(first.mean, before[0])
    assert not torch.equal(others[0].mean, before[1])


def test_states_that_were_saved_before_there_was_an_lr_load():
    net = posterior()
    opt = mesu.MESU(net, memory=100, lr_mean=0.5)
    saved = copy.deepcopy(opt.state_dict())
    for group in saved["param_groups"]:
        del group["lr"]
    opt.load_state_dict(saved)
    assert opt.param_groups[0]["lr"] == 1.0
    schedulers.CosineAnnealingLR(opt, T_max=10)
    twin = pickle.loads(pickle.dumps(mesu.FOOVB(posterior(estimator="local"))))
    assert twin.param_groups[0]["lr"] == 1.0


@pytest.mark.parametrize("lr", [-1.0, float("nan"), float("inf")])
def test_an_lr_that_makes_no_sense_is_refused(lr):
    net = posterior()
    with pytest.raises(ValueError, match=r"\blr must"):
        mesu.MESU(net, memory=100, lr=lr)
    opt = mesu.MESU(net, memory=100)
    opt.param_groups[0]["lr"] = lr
    before = copy.deepcopy(net)
    with pytest.raises(ValueError, match=r"\blr must"):
        stepped(opt, net, torch.randn(6, 4), torch.randint(3, (6,)))
    assert same(net, before)


# -- clipping ----------------------------------------------------------------------------------------------------------


def trained(net, steps=12, clip=None, lr=1.0, x=None):
    opt = mesu.MESU(net, memory=1000, lr=lr)
    given = x
    for _ in range(steps):
        x = torch.randn(6, 4) if given is None else given
        net.nll(x, (x.sum(1) > 0).long()).backward()
        if clip is not None:
            clip(net)
        opt.step()
        opt.zero_grad()


@pytest.mark.parametrize("estimator", ["linear", "local"])
@pytest.mark.parametrize("limit", [0.5, 0.1])
def test_clipped_gradients_are_named_once(estimator, limit):
    net = posterior(estimator=estimator)
    with pytest.warns(UserWarning, match=f"all have the norm {limit}.*clipped.*max_step") as said:
        trained(net, clip=lambda net: nn.utils.clip_grad_norm_(net.parameters(), limit))
    assert len(said) == 1
    assert said[0].filename == __file__


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clip": lambda net: nn.utils.clip_grad_norm_(net.parameters(), 1e6)},  # which is never reached
        {"lr": 0.0, "x": torch.ones(6, 4)},  # the same gradients in every step
        {"clip": lambda net: [p.grad.zero_() for p in net.parameters()]},
        {"clip": lambda net: [p.grad.fill_(1.0) for p in net.parameters()]},
        {"clip": lambda net: [p.grad.sign_() for p in net.parameters()]},
    ],
)
def test_gradients_that_are_not_clipped_are_not_taken_for_it(options):
    trained(posterior(), **options)
