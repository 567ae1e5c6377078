"""Small made-up data sets, sources and files that the tests of data sets share."""

import hashlib
import importlib
import io
import os
import struct
import tarfile
import zipfile

import numpy as np
import pytest

from mesu.lab.data.published import Array, Published

# the package's functions hide the modules of the same names
mnist_module, cifar_module, animals_module = (
    importlib.import_module(f"mesu.lab.data.{name}") for name in ("mnist", "cifar", "animals")
)


posix = pytest.mark.skipif(os.name != "posix", reason="the fake clients are shell scripts")


def some_arrays(seed=0, shape=(28, 28), classes=10):
    rng = np.random.default_rng(seed)

    def part(n):
        return rng.integers(0, 256, (n, *shape), dtype=np.uint8), rng.integers(0, classes, n, dtype=np.uint8)

    (x_train, y_train), (x_test, y_test) = part(20), part(10)
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def described(arrays, hashed=True):
    return {
        name: Array(array.shape, array.dtype.name, sha256(array.tobytes()) if hashed else None)
        for name, array in arrays.items()
    }


ARRAYS = some_arrays()


ROOM = 10**6


class Made:
    """A source that gives arrays, or a reason not to."""

    def __init__(self, gives, place="a made-up source", here=False):
        self.gives, self.place, self.here, self.asked = gives, place, here, 0

    def arrays(self, folder):
        self.asked += 1
        assert list(folder.iterdir()) == []
        if isinstance(self.gives, BaseException):
            raise self.gives
        return self.gives


def tiny(*sources, arrays=ARRAYS, **more):
    return Published("tiny-set", "Tiny", "twenty things", described(arrays), sources, **more)


def equal(arrays, expected=ARRAYS):
    return arrays.keys() == expected.keys() and all(np.array_equal(arrays[name], expected[name]) for name in expected)


def make_tar(path, members, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, content in members:
            member = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
            archive.addfile(member, io.BytesIO(content) if isinstance(content, bytes) else None)
    return path


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def as_idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def as_csv(x, y):
    header = ",".join(["label", *(f"{i}x{j}" for i in range(1, 29) for j in range(1, 29))])
    rows = [",".join(map(str, [label, *image.ravel()])) for label, image in zip(y, x, strict=True)]
    return "\n".join([header, *rows, ""]).encode()


COLOUR = some_arrays(seed=2, shape=(32, 32, 3))


def python2_pickle(batch):
    """A pickle as Python 2 wrote the CIFAR files: protocol 2, text as byte strings, arrays by numpy's old names."""

    def text(value):
        if len(value) < 256:
            return b"U" + bytes([len(value)]) + value
        return b"T" + struct.pack("<i", len(value)) + value

    def number(value):
        return b"K" + bytes([value]) if value < 256 else b"J" + struct.pack("<i", value)

    def array(value):
        rows, columns = map(number, value.shape)
        empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + number(0) + b"\x85" + text(b"b") + b"\x87R"
        dtype = b"cnumpy\ndtype\n" + text(b"u1") + number(0) + number(1) + b"\x87R"
        dtype += b"(" + number(3) + text(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + number(0) + b"tb"
        return empty + b"(" + number(1) + rows + columns + b"\x86" + dtype + b"\x89" + text(value.tobytes()) + b"tb"

    def anything(value):
        if isinstance(value, np.ndarray):
            return array(value)
        if isinstance(value, list):
            return b"](" + b"".join(map(anything, value)) + b"e"
        return number(value) if isinstance(value, int) else text(value)

    items = b"".join(text(key) + anything(value) for key, value in batch.items())
    return b"\x80\x02}(" + items + b"u."


def cifar_batch(x, y, labels=b"labels"):
    planes = x.transpose(0, 3, 1, 2).reshape(len(x), 3072)
    return python2_pickle(
        {
            b"batch_label": b"training batch 1 of 5",
            labels: y.tolist(),
            b"data": planes,
            b"filenames": [b"a.png"] * len(x),
        }
    )


def hundred_files():
    return [
        ("cifar-100-python/meta", b"not read"),
        ("cifar-100-python/test", cifar_batch(COLOUR["x_test"], COLOUR["y_test"] * 9, b"fine_labels")),
        ("cifar-100-python/train", cifar_batch(COLOUR["x_train"], COLOUR["y_train"] * 9, b"fine_labels")),
    ]


HUNDRED = COLOUR | {"y_train": COLOUR["y_train"] * 9, "y_test": COLOUR["y_test"] * 9}
