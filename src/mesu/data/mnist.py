"""MNIST and Fashion-MNIST, from the folder that `MESU_DATA` names, checked to the byte."""

import hashlib
import os
from functools import cache
from pathlib import Path

import numpy as np

from mesu.data.dataset import Dataset

# SHA-256 of the bytes of each decoded array
MNIST = {
    "x_train": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
    "y_train": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
    "x_test": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
    "y_test": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
}
FASHION = {
    "x_train": "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
    "y_train": "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
    "x_test": "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
    "y_test": "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
}


@cache
def mnist() -> Dataset:
    """60,000 handwritten digits to learn and 10,000 to test, 28 x 28 pixels."""
    return _load("MNIST", "mnist.npz", MNIST)


@cache
def fashion_mnist() -> Dataset:
    """As many pictures of clothes, in the same format: outliers for MNIST."""
    return _load("Fashion-MNIST", "fashion_mnist.npz", FASHION)


def _load(name: str, file: str, hashes: dict[str, str]) -> Dataset:
    folder = os.environ.get("MESU_DATA")
    path = Path(folder or ".") / file
    if not folder or not path.is_file():
        tried = f"{path} is not there" if folder else "the environment variable MESU_DATA is not set"
        raise FileNotFoundError(
            f"{name} was not found: {tried}. Put a file {file} with the arrays {', '.join(hashes)} (uint8) into a folder "
            "and set MESU_DATA to that folder"
        )
    with np.load(path, allow_pickle=False) as arrays:
        for key, expected in hashes.items():
            if key not in arrays or hashlib.sha256(np.ascontiguousarray(arrays[key]).tobytes()).hexdigest() != expected:
                raise ValueError(
                    f"{path} does not hold {name}: array {key} is missing or has other bytes than it should"
                )
        return Dataset.standardised(name.lower(), *(arrays[key] for key in hashes))
