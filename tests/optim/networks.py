"""Small networks, one optimiser of each rule, and what tests of optimisers ask about both."""

import torch
from torch import nn

import mesu
from mesu import optim

POSTERIOR = {
    "mesu": lambda p, **k: mesu.MESU(p, **{"memory": 50, "prior_std": 0.5, **k}),
    "mesu-paper": lambda p, **k: mesu.MESU(
        p, **{"memory": 50, "prior_std": 0.5, "update": "paper", "lr_std": 0.1, **k}
    ),
    "mesu-bounded": lambda p, **k: mesu.MESU(p, **{"memory": 50, "max_step": 0.05, **k}),
    "foo-vb": lambda p, **k: mesu.FOOVB(p, **k),
    "bayes-by-backprop": lambda p, **k: mesu.BayesByBackprop(p, **{"lr": 0.003, "kl_weight": 0.01, **k}),
    "bayesian-synapse": lambda p, **k: mesu.BayesianSynapse(p, **{"tau": 40, "max_step": 0.5, **k}),
}
WEIGHT = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "ewc": lambda p: optim.EWC(p, lr=0.1, strength=2.0),
    "ewc-online": lambda p: optim.EWCOnline(p, lr=0.1, strength=2.0, decay=0.9),
    "ewc-stream": lambda p: optim.EWCStream(p, lr=0.1, strength=2.0, decay=0.9),
    "si": lambda p: optim.SI(p, lr=0.1, strength=2.0, damping=0.1),
}
X = torch.linspace(-1, 1, 18).view(6, 3)
Y = torch.tensor([0, 1, 1, 0, 1, 0])


def small_net(seed=0, estimator="local"):
    torch.manual_seed(seed)
    return mesu.Bayesian(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), estimator=estimator, seed=seed)


def plain_net():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def learn(net, opt, steps):
    for _ in range(steps):
        opt.zero_grad()
        net.nll(X, Y, samples=3).backward()
        opt.step()


def learn_plain(net, opt, steps):
    for _ in range(steps):
        opt.zero_grad()
        nn.functional.cross_entropy(net(X), Y, reduction="sum").backward()
        opt.step()


def values(net):
    return [p.detach().clone() for p in net.parameters()]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def one_pair(mean, std, g_mean, g_std, dtype=torch.float64):
    mean, std = (nn.Parameter(torch.tensor(v, dtype=dtype)) for v in (mean, std))
    mean.grad, std.grad = (torch.tensor(g, dtype=dtype) for g in (g_mean, g_std))
    return mean, std


def end_task(opt):
    if isinstance(opt, optim.EWC):
        opt.consolidate([torch.full_like(p, 0.3) for group in opt.param_groups for p in group["params"]])
    elif isinstance(opt, optim.SI):
        opt.consolidate()
