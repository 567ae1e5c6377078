"""Data sets to learn from and to test on: found on this machine or fetched, and every array checked by its SHA-256."""

from mesu.lab.data.animals import Animals, animals
from mesu.lab.data.catalogue import data_sets, register
from mesu.lab.data.cifar import cifar10, cifar100
from mesu.lab.data.dataset import Dataset
from mesu.lab.data.digits import digits
from mesu.lab.data.finding import load
from mesu.lab.data.mnist import fashion_mnist, mnist
from mesu.lab.data.published import Array, Published
from mesu.lab.data.row_streams import Rows, covertype, elec2, sea, weather

__all__ = [
    "Animals",
    "Array",
    "Dataset",
    "Published",
    "Rows",
    "animals",
    "cifar10",
    "cifar100",
    "covertype",
    "data_sets",
    "digits",
    "elec2",
    "fashion_mnist",
    "load",
    "mnist",
    "register",
    "sea",
    "weather",
]
