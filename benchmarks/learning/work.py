"""What is learned: each network with its data, what is foreign to it, and how many examples an update has."""

import pydoc_data.topics
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from benchmarks.learning import networks
from sklearn.datasets import load_digits
from torch import Tensor, nn

from mesu.lab import data

ROWS, TESTS, OUTLIERS = 8_000, 2_000, 1_000
CHARACTERS, LENGTH = 48, 32  # the most frequent characters, the last one for all others; characters a row


class Rows(NamedTuple):
    """Examples to learn and examples to test."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor


class Work(NamedTuple):
    """A network and what it learns."""

    name: str
    build: Callable[[], nn.Module]
    own: str
    foreign: str | None  # what its uncertainty should tell from its own data
    batch: int
    epochs: int = 3


WORK = (
    Work("perceptron, MNIST", networks.perceptron, "mnist", "fashion_mnist", 32),
    Work("perceptron, digits", lambda: networks.perceptron(64), "digits", None, 32, 10),
    Work("deep perceptron, MNIST", networks.deep_perceptron, "mnist", "fashion_mnist", 64),
    Work("LeNet-5, MNIST", networks.lenet, "mnist", "fashion_mnist", 200),
    Work("4 conv GroupNorm, MNIST", networks.group_norm, "mnist", "fashion_mnist", 64),
    Work("residual GroupNorm, Fashion-MNIST", networks.residual, "fashion_mnist", "mnist", 64),
    Work("LSTM, MNIST", networks.Recurrent, "mnist", "fashion_mnist", 64),
    Work("GRU tied, text", lambda: networks.Tied(CHARACTERS), "text", None, 32),
    Work("Transformer, Fashion-MNIST", networks.Transformer, "fashion_mnist", "mnist", 64),
    Work("6 conv, CIFAR-10", networks.six_convolutions, "cifar10", None, 64),
)


@cache
def rows(name: str) -> Rows:
    """The examples of a data set: the same ones for every learner."""
    if name == "text":
        return text()
    if name == "digits":
        return digits()
    found = getattr(data, name)()
    side, colours = (32, 3) if name == "cifar10" else (28, 1)

    def images(x: np.ndarray, most: int) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(x[:most], np.float32)).view(-1, colours, side, side)

    def labels(y: np.ndarray, most: int) -> Tensor:
        return torch.from_numpy(y[:most].astype(np.int64))

    return Rows(
        images(found.x_train, ROWS),
        labels(found.y_train, ROWS),
        images(found.x_test, TESTS),
        labels(found.y_test, TESTS),
    )


def digits() -> Rows:
    """The 1,797 digits of scikit-learn, 8 x 8 pixels from 0 to 1."""
    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(pixels, dtype=torch.float32)[order] / 16, torch.tensor(labels)[order]
    return Rows(x[:1200], y[:1200], x[1200:], y[1200:])


def text() -> Rows:
    """The next character at every place of Python's own manual, as `help()` shows it."""
    manual = " ".join(page for _, page in sorted(pydoc_data.topics.topics.items())).lower()
    known = {each: i for i, (each, _) in enumerate(Counter(manual).most_common(CHARACTERS - 1))}
    codes = torch.tensor([known.get(each, CHARACTERS - 1) for each in manual])
    lines = codes[: len(codes) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)
    lines = lines[torch.randperm(len(lines), generator=torch.Generator().manual_seed(0))]
    x, y = lines[:, :-1], lines[:, 1:]
    return Rows(x[:ROWS], y[:ROWS], x[-TESTS:], y[-TESTS:])
