"""The description of a data set: its arrays, each with its SHA-256, and the sources that have them."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

Arrays = Mapping[str, np.ndarray]


class Unavailable(Exception):
    """A source does not have the data; the message is the reason, in one line."""


class DamagedData(ValueError):
    """A file in MESU_DATA or in the cache does not hold the data set that its name says."""


class Source(Protocol):
    """A place that a data set can be fetched from."""

    @property
    def place(self) -> str:
        """The source in a few words, for messages."""
        ...

    @property
    def here(self) -> bool:
        """Whether it is on this machine, so that nothing needs to be downloaded."""
        ...

    def arrays(self, folder: Path) -> Arrays:
        """Get and decode the arrays; `folder` is empty and may be used for temporary files.

        Raises:
            Unavailable: if this source does not have the data.
            ValueError: if the data is damaged or something else.
        """
        ...


@dataclass(frozen=True)
class Array:
    """One array of a data set."""

    shape: tuple[int, ...]
    dtype: str
    sha256: str | None  # of its bytes in C order; None if nobody has published it

    @classmethod
    def of(cls, array: np.ndarray) -> "Array":
        """The description of an array that you have, its SHA-256 included.

        Example:
            >>> Array.of(np.zeros(3, np.uint8))
            Array(shape=(3,), dtype='uint8', sha256='709e80c88487a2411e1ee4dfb9f22a861492d20c4765150c0c794abd70f8147c')
        """
        return cls(array.shape, array.dtype.name, _sha256(array))

    @property
    def nbytes(self) -> int:
        """Bytes it takes in memory."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def complaint(self, array: np.ndarray | None) -> str | None:
        """What is wrong with an array that should be this one, or None."""
        if array is None:
            return "is missing"
        if array.shape != self.shape:
            return f"has shape {times(array.shape)} where {times(self.shape)} is right"
        if array.dtype != np.dtype(self.dtype):
            return f"has dtype {array.dtype} where {self.dtype} is right"
        if self.sha256 and _sha256(array) != self.sha256:
            return "has other bytes than it should (by SHA-256)"
        return None

    def __str__(self) -> str:
        return f"{self.dtype}, {times(self.shape)}"


@dataclass(frozen=True)
class Published:
    """A data set: the same bytes, from whatever source they come."""

    name: str  # for the commands: "fashion-mnist"
    title: str  # for messages: "Fashion-MNIST"
    what: str  # a few words on what it holds
    contents: Mapping[str, Array]
    sources: tuple[Source, ...] = ()  # in the order to try them; none if only the user can have it
    ships_with: str | None = None  # a required package that contains it, so that nothing is fetched or cached
    archive: str | None = None  # name of the original archive, which may be put into MESU_DATA instead
    instead: str | None = None  # advice to a user who cannot get the data set
    # of "train" and "test": SHA-256 of the sorted SHA-256 digests of each image with its label, which no order changes
    in_any_order: Mapping[str, str] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """The name of the file that holds the arrays."""
        return f"{self.name.replace('-', '_')}.npz"

    @property
    def nbytes(self) -> int:
        """Bytes of all the arrays."""
        return sum(array.nbytes for array in self.contents.values())

    @property
    def checkable(self) -> bool:
        """Whether a SHA-256 of every array is known, so that arrays from anywhere can be checked."""
        return bool(self.in_any_order) or all(array.sha256 for array in self.contents.values())

    def complaints(self, arrays: Arrays) -> list[str]:
        """What is wrong with these arrays, each complaint with the array's name; empty if they are the right ones."""
        each = {name: array.complaint(arrays.get(name)) for name, array in self.contents.items()}
        complaints = [f"array {name} {complaint}" for name, complaint in each.items() if complaint]
        if complaints:
            return complaints
        return [
            f"arrays x_{part} and y_{part} hold other images or labels than they should (by SHA-256, in any order)"
            for part, sha256 in self.in_any_order.items()
            if hashlib.sha256(b"".join(sorted(digests(arrays[f"x_{part}"], arrays[f"y_{part}"])))).hexdigest() != sha256
        ]

    def remedy(self) -> str:
        """What a user can do who has the data from elsewhere."""
        listed = ", ".join(f"{name} ({array})" for name, array in self.contents.items())
        files = [f"a file {self.file} with the arrays {listed}"] if self.checkable else []
        if self.archive:
            files.append(f"the original archive {self.archive}")
        instead = f"; or {self.instead}" if self.instead else ""
        return f"Put {', or '.join(files)} into a folder and set MESU_DATA to that folder{instead}"


def images_and_labels(train: int, test: int, shape: tuple[int, ...], **sha256: str) -> dict[str, Array]:
    """The usual four arrays of bytes: images of one shape and their labels, to train on and to test on.

    Args:
        train: How many images there are to train on.
        test: How many to test on.
        shape: The shape of one image.
        sha256: Of each array, by its name, as far as known.
    """
    shapes = {"x_train": (train, *shape), "y_train": (train,), "x_test": (test, *shape), "y_test": (test,)}
    return {name: Array(each, "uint8", sha256.get(name)) for name, each in shapes.items()}


def digests(images: np.ndarray, labels: np.ndarray) -> list[bytes]:
    """The SHA-256 digest of each image's bytes with its label as one byte more."""
    return [
        hashlib.sha256(image.tobytes() + bytes([label])).digest() for image, label in zip(images, labels, strict=True)
    ]


def _sha256(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def times(shape: tuple[int, ...]) -> str:
    """A shape as people write it: 3 x 32 x 32."""
    return " x ".join(map(str, shape)) or "a single number"
