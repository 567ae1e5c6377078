"""Data sets as `mesu.data`; they live in `mesu.lab.data`."""

from mesu.lab.data import Animals, Dataset, animals, cifar10, cifar100, digits, fashion_mnist, mnist

__all__ = ["Animals", "Dataset", "animals", "cifar10", "cifar100", "digits", "fashion_mnist", "mnist"]
