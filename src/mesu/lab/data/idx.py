"""The idx format of MNIST: two zero bytes, a type, a number of axes, their lengths as big-endian numbers, the values."""

import math

import numpy as np

UNSIGNED_BYTE = 8  # the type code of all MNIST files


def read_idx(data: bytes) -> np.ndarray:
    """An array of bytes from the content of an idx file.

    Raises:
        ValueError: if it is not one, or is cut short or too long.

    Example:
        >>> read_idx(bytes([0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 7, 8, 9]))
        array([[7, 8, 9]], dtype=uint8)
    """
    if len(data) < 4 or data[:2] != b"\0\0":
        raise ValueError(f"not an idx file: it starts with {data[:4]!r}")
    kind, axes = data[2], data[3]
    if kind != UNSIGNED_BYTE:
        raise ValueError(f"idx file of type {kind}, expected {UNSIGNED_BYTE} (unsigned bytes)")
    start = 4 + 4 * axes
    if not axes or len(data) < start:
        raise ValueError(f"idx file with {axes} axes ends inside its header of {start} bytes")
    shape = tuple(int(length) for length in np.frombuffer(data, ">u4", axes, offset=4))
    if len(data) - start != math.prod(shape):
        raise ValueError(f"idx file of shape {shape} has {len(data) - start} values, expected {math.prod(shape)}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)
