"""Networks, examples and learners for tests of the engine, and how far apart two results may lie."""

import itertools

import numpy as np
import torch
from torch import nn

import mesu

STEPS = 1000


def perceptron(sizes, bias=True, activation=nn.ReLU, dtype=torch.float64):
    """A network of these widths; of two widths, the bare layer."""
    layers = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs, bias=bias), activation()]
    return (nn.Sequential(*layers[:-1]) if len(layers) > 2 else layers[0]).to(dtype)


def lively(net):
    """Torch's own start lets a signal fade to a thirtieth over four layers; at twice the size it arrives."""
    with torch.no_grad():
        for p in net.parameters():
            p *= 2
    return net


def teacher(sizes, rows, regression=False):
    """Examples with something to learn, some of them all zeros, in numbers that single precision holds exactly."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, sizes[0])).astype(np.float32) / 2
    x[::50] = 0
    y = np.tanh(x @ rng.normal(size=(sizes[0], sizes[-1])) + 0.3 * rng.normal(size=(rows, sizes[-1])))
    return x, y.astype(np.float32) if regression else y.argmax(1)


def apart(some, others):
    """The largest difference between two lists of tensors."""
    return max((a.double() - b.double()).abs().max().item() for a, b in zip(some, others, strict=True))


def agree_within_rounding(mine, theirs, exact):
    """Whether two results in single precision differ by no more than torch's own rounding, a few times over.

    Its own is how far it is from double precision. And 1,000 roundings of numbers of size one are the most in any case.
    """
    return apart(mine, theirs) < min(5 * apart(theirs, exact), STEPS * 2**-24)


# Hidden layers; widths that leave a part of a vector.
DEPTHS = {0: (7, 3), 1: (7, 6, 3), 2: (7, 6, 9, 3), 3: (7, 6, 9, 11, 3), 4: (7, 6, 9, 11, 6, 3)}
WIDTHS = {
    "wide": (21, 33, 16, 7),  # vectors of sixteen, whole and in part
    "vast": (
        9,
        150,
        70,
        3,
    ),  # panels of 64 and a part of one; more units than a tile has rows, and than a word has bits
    "long": (9, 1040, 20, 3),  # rows so long that fewer units are taken together
}


def stream(rows=60, inputs=20, classes=3):
    rng = np.random.default_rng(2)
    return rng.normal(size=(rows, inputs)).astype(np.float32), rng.integers(0, classes, rows)


def fresh(estimator="local", **options):
    torch.manual_seed(0)
    net = mesu.Bayesian(perceptron((20, 33, 3), dtype=torch.float32), estimator=estimator, seed=5)
    return net, mesu.BayesianLearner(net, mesu.MESU(net, memory=100, **options))


def values(net):
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])
