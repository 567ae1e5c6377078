"""Networks of every kind that the tests of the posterior share, and their draws by hand."""

from itertools import pairwise

import torch
from torch import nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

import mesu
from mesu.posterior.noise import Noise

ESTIMATORS = ("weights", "local")


def mlp(*widths):
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


def image_net():
    return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(48, 2))


def signal_net():
    return nn.Sequential(nn.Conv1d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(9, 2))


def repeat(x, times):
    return (x,) * times


NETWORKS = {
    "mlp": (lambda: mlp(3, 5, 2), lambda: (torch.randn(4, 3),)),
    "no-bias": (lambda: nn.Linear(3, 2, bias=False), lambda: (torch.randn(4, 3),)),
    "conv2d": (image_net, lambda: (torch.randn(4, 2, 4, 4),)),
    "conv1d": (signal_net, lambda: (torch.randn(4, 2, 5),)),
    "conv3d": (lambda: nn.Conv3d(1, 2, 2), lambda: (torch.randn(4, 1, 3, 3, 3),)),
    "lstm": (lambda: nn.LSTM(3, 4, num_layers=2), lambda: (torch.randn(5, 4, 3),)),
    "lstm-batch-first": (lambda: nn.LSTM(3, 4, batch_first=True), lambda: (torch.randn(4, 5, 3),)),
    "gru": (lambda: nn.GRU(3, 4), lambda: (torch.randn(5, 4, 3),)),
    "attention": (lambda: nn.MultiheadAttention(8, 2, batch_first=True), lambda: repeat(torch.randn(4, 5, 8), 3)),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        lambda: (torch.randn(4, 5, 8),),
    ),
    "layer-norm": (lambda: nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2)), lambda: (torch.randn(4, 3),)),
    "embedding": (
        lambda: nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(6, 2)),
        lambda: (torch.randint(7, (4, 2)),),
    ),
}


VECTORISABLE = ("mlp", "conv2d", "attention", "layer-norm", "embedding")


def make(name, **settings):
    module, inputs = NETWORKS[name]
    module = module()
    return module, mesu.Bayesian(module, **{"seed": 0, **settings}), inputs()


def snapshot(net):
    return {name: value.clone() for name, value in net.state_dict().items()}


def unchanged(net, before):
    after = net.state_dict()
    return after.keys() == before.keys() and all(torch.equal(after[name], before[name]) for name in before)


def leaves(out):
    return pytree.tree_leaves(out)


def drawn_by_hand(net, module, inputs, samples, seed=0):
    """Outputs of the original module with mu + sigma * e put in its place, e from the seed, sample by sample."""
    noise, outs = Noise(seed), []
    pairs = list(net.pairs())
    for _ in range(samples):
        flat = noise.normal((sum(pair.mean.numel() for pair in pairs),), like=pairs[0].mean)
        parts = flat.split([pair.mean.numel() for pair in pairs])
        weights = {p.name: p.mean + p.std * e.view_as(p.mean) for p, e in zip(pairs, parts, strict=True)}
        outs.append(functional_call(module, weights, inputs))
    return pytree.tree_map(lambda *parts: torch.stack(parts), *outs)
