"""Data sets as `mesu.data`; they live in `mesu.lab.data`."""

from mesu.lab.data import (
    Animals,
    Dataset,
    Rows,
    animals,
    cifar10,
    cifar100,
    covertype,
    digits,
    elec2,
    fashion_mnist,
    mnist,
    sea,
    weather,
)

__all__ = [
    "Animals",
    "Dataset",
    "Rows",
    "animals",
    "cifar10",
    "cifar100",
    "covertype",
    "digits",
    "elec2",
    "fashion_mnist",
    "mnist",
    "sea",
    "weather",
]
