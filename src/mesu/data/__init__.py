"""Data sets, each as four arrays: what to learn from and what to test on."""

from mesu.data.dataset import Dataset
from mesu.data.digits import digits

__all__ = ["Dataset", "digits"]
