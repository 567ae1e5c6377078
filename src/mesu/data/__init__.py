"""Data sets, each as four arrays: what to learn from and what to test on."""

from mesu.data.dataset import Dataset
from mesu.data.digits import digits
from mesu.data.mnist import fashion_mnist, mnist

__all__ = ["Dataset", "digits", "fashion_mnist", "mnist"]
