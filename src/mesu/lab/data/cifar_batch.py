"""The batch files of CIFAR-10 and CIFAR-100: pickles that Python 2 wrote, read without running anything.

A pickle can call any function that it names. These files name three, to build a numpy array. They get harmless stand-ins
instead, and a pickle that names anything else is refused.
"""

import io
import pickle
from typing import Any

import numpy as np


class _Array:
    """Stands in for `numpy.core.multiarray._reconstruct` and keeps what the array's state says."""

    __slots__ = ("values",)

    def __init__(self, *_: Any) -> None:
        self.values: np.ndarray | None = None

    def __setstate__(self, state: tuple) -> None:
        _version, shape, dtype, column_order, data = state
        if not isinstance(dtype, _Dtype) or dtype.code not in (b"u1", b"|u1") or not isinstance(data, bytes):
            raise ValueError("holds an array that is not of unsigned bytes")
        self.values = np.frombuffer(data, np.uint8).reshape(shape, order="F" if column_order else "C")


class _Dtype:
    """Stands in for `numpy.dtype`."""

    __slots__ = ("code",)

    def __init__(self, code: bytes, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: tuple) -> None:
        """Ignore byte order and alignment: single bytes have none."""


STAND_INS = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): None,  # only handed on to _reconstruct
    ("numpy", "dtype"): _Dtype,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in STAND_INS:
            raise ValueError(f"names {module}.{name}, which a CIFAR file has no need of: refused")
        return STAND_INS[module, name]


def read_batch(name: str, data: bytes, labels: str, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Images [N, 32, 32, 3] and their labels, as bytes.

    Args:
        name: The file, for errors.
        data: Its content.
        labels: Which labels to take: CIFAR-100 has two kinds.
        classes: How many kinds of label there are.

    Raises:
        ValueError: if it is anything else.
    """
    try:
        batch = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        images, numbers = batch[b"data"].values, batch[labels.encode()]
        # rows of 3072 values: all reds of an image, then its greens, then its blues
        images = images.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        if len(numbers) != len(images) or not all(type(n) is int and 0 <= n < classes for n in numbers):
            raise ValueError(f"does not have a label from 0 to {classes - 1} for each of {len(images)} images")
    except Exception as error:  # a damaged pickle can make the unpickler raise almost any exception
        raise ValueError(f"{name} is not a CIFAR file: it {_words(error)}") from None
    return np.ascontiguousarray(images), np.array(numbers, dtype=np.uint8)


def _words(error: Exception) -> str:
    return str(error) if type(error) is ValueError else f"is damaged ({type(error).__name__}: {error})"
