"""Data sets: what to learn from and what to test on, found or fetched, and checked to the byte."""

from mesu.data.animals import Animals, animals
from mesu.data.cifar import cifar10, cifar100
from mesu.data.dataset import Dataset
from mesu.data.digits import digits
from mesu.data.mnist import fashion_mnist, mnist

__all__ = ["Animals", "Dataset", "animals", "cifar10", "cifar100", "digits", "fashion_mnist", "mnist"]
