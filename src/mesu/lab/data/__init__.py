"""Data sets: what to learn from and what to test on, found or fetched, and checked to the byte."""

from mesu.lab.data.animals import Animals, animals
from mesu.lab.data.cifar import cifar10, cifar100
from mesu.lab.data.dataset import Dataset
from mesu.lab.data.digits import digits
from mesu.lab.data.mnist import fashion_mnist, mnist

__all__ = ["Animals", "Dataset", "animals", "cifar10", "cifar100", "digits", "fashion_mnist", "mnist"]
