"""The networks that `benchmarks.learning` trains: of every usual kind, none made for MESU."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def perceptron(inputs: int = 784, hidden: int = 50) -> nn.Module:
    """One hidden layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def deep_perceptron(hidden: int = 64, layers: int = 6) -> nn.Module:
    """Six hidden layers without normalisation."""
    parts: list[nn.Module] = [nn.Flatten(), nn.Linear(784, hidden), nn.ReLU()]
    for _ in range(layers - 1):
        parts += [nn.Linear(hidden, hidden), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(hidden, 10))


def lenet() -> nn.Module:
    """LeNet-5."""
    features = (
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )
    head = (nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    return nn.Sequential(*features, nn.Flatten(), *head)


def group_norm() -> nn.Module:
    """Four convolutions, each with GroupNorm."""
    layers: list[nn.Module] = []
    for before, after, pool in ((1, 16, True), (16, 32, True), (32, 32, True), (32, 64, False)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.ReLU()]
        layers += [nn.AvgPool2d(2)] if pool else []
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def six_convolutions() -> nn.Module:
    """Six convolutions of colour images, without normalisation."""
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(after, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 10))


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.first_norm = nn.GroupNorm(4, after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.second_norm = nn.GroupNorm(4, after)
        same = before == after and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The block's features."""
        inner = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.shortcut(x) + self.second_norm(self.second(inner)))


def residual() -> nn.Module:
    """A residual network with GroupNorm: seven convolutions on the longest way."""
    stem = (nn.Conv2d(1, 16, 3, 2, 1, bias=False), nn.GroupNorm(4, 16), nn.ReLU())
    blocks = (Block(16, 16, 1), Block(16, 32, 2), Block(32, 32, 1))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


class Recurrent(nn.Module):
    """An LSTM over the rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(28, 64, batch_first=True), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores."""
        return self.head(self.layer(x[:, 0])[0][:, -1])


class Tied(nn.Module):
    """A GRU that reads characters and predicts the next one with the same embedding."""

    def __init__(self, characters: int, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.layer = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, characters)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)  # one matrix that reads and writes
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the next character at every place, classes on the second axis."""
        return self.head(self.layer(self.embedding(x))[0]).movedim(-1, 1)


class Transformer(nn.Module):
    """Two blocks of attention over the rows of an image."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.rows, self.places = nn.Linear(28, width), nn.Parameter(0.1 * torch.randn(28, width))
        block = {"dropout": 0.0, "batch_first": True, "norm_first": True}
        self.blocks = nn.Sequential(*(nn.TransformerEncoderLayer(width, 4, 64, **block) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores."""
        return self.head(self.norm(self.blocks(self.rows(x[:, 0]) + self.places)).mean(1))
