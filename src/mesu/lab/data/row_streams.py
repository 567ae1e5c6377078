"""Streams of rows whose order matters: Elec2, NOAA weather, Covertype and SEA, out of the package scikit-multiflow."""

import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from mesu.lab.data.finding import load
from mesu.lab.data.packages import Decode, PipPackage
from mesu.lab.data.published import Array, Arrays, Published

FOLDER = "skmultiflow/data/datasets"
MOST_BYTES = 100_000_000  # of one table; Covertype's has 75 million


@dataclass(frozen=True)
class Rows:
    """A stream of rows in the order in which they came, each with its class."""

    name: str
    x: np.ndarray  # [rows, columns], float64
    y: np.ndarray  # [rows], whole numbers

    @property
    def classes(self) -> list[int]:
        """The classes that occur."""
        return np.unique(self.y).tolist()


def from_table(file: str, dtype: str) -> Decode:
    """The two arrays from a table of numbers with a line of names above it and the class in its last column."""

    def decode(files: Mapping[str, bytes]) -> Arrays:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # of a table without rows
                table = np.loadtxt(io.BytesIO(files[file]), delimiter=",", skiprows=1, ndmin=2)
        except (ValueError, UserWarning) as error:
            raise ValueError(f"{file} is not a table of numbers: {error}") from None
        x = table[:, :-1].astype(dtype)
        if not np.array_equal(x, table[:, :-1]):
            raise ValueError(f"{file} has values that are not {dtype}")
        return {"x": np.ascontiguousarray(x), "y": table[:, -1].astype(np.uint8)}

    return decode


def _published(name: str, title: str, what: str, file: str, x: Array, y: Array) -> Published:
    member = f"{FOLDER}/{file}"
    package = PipPackage(
        name="scikit-multiflow",
        version="0.4.1",
        sha256="17842a0719992871f66f2edd475c3cf947be73d16595cb28d9ec26a79cfc58de",
        files={member: MOST_BYTES},
        decode=from_table(member, x.dtype),
        made_for=("--python-version=37", "--implementation=cp", "--abi=cp37m", "--platform=manylinux1_x86_64"),
    )
    return Published(name, title, what, {"x": x, "y": y}, (package,))


ELEC2 = _published(
    "elec2",
    "Elec2",
    "45,312 half-hours of an electricity market, price up or down",
    "elec.csv",
    Array((45_312, 6), "float64", "5569d821eda454c2b56f1867db6b425f9db4ce4798da3b3d87d37f7d7efbb446"),
    Array((45_312,), "uint8", "aeb799a3e9d86c1f223bc5b903817a775e02f1ca06784f936d62b0874a9696e4"),
)
WEATHER = _published(
    "weather",
    "NOAA weather",
    "18,159 days at one weather station, rain or not",
    "weather.csv",
    Array((18_159, 8), "float64", "509659afed5d02399013161859283cc3b60237ed35f91a52e21927ce36eca935"),
    Array((18_159,), "uint8", "d50f8bd2044ce667dfc924ee16971757ab635272e0a5a5e7d7db4a7863b6bba6"),
)
COVERTYPE = _published(
    "covertype",
    "Covertype",
    "581,012 patches of forest, 54 columns, 7 kinds of trees",
    "covtype.csv",
    Array((581_012, 54), "int16", "1d8ed656c88560e0f10ec542ecfd4b4b2f1dbd17ec145c29918aebb63a8c0e6f"),
    Array((581_012,), "uint8", "a8c84e2a391539f29963e3be74076a5b49598e60e7a6b0a353fdbf1bd6c2c422"),
)
SEA = _published(
    "sea",
    "SEA",
    "40,000 made-up rows of 3 columns, 2 classes, whose rule changes",
    "sea_stream.csv",
    Array((40_000, 3), "float64", "059c878441806d11d2130ab06633b8a8ba50cb1c72dc2389d1d595ef953396ac"),
    Array((40_000,), "uint8", "c285dae56260bba5b07b8f6b137cbc7ef94fd35abbdf33250070ac07f0311b36"),
)


def _rows(published: Published) -> Rows:
    arrays = load(published)
    return Rows(published.name, arrays["x"].astype(np.float64), arrays["y"].astype(np.int64))


@cache
def elec2() -> Rows:
    """Prices of electricity in New South Wales, 45,312 half-hours: 6 columns, and whether the price rises."""
    return _rows(ELEC2)


@cache
def weather() -> Rows:
    """Fifty years of weather at one station, 18,159 days: 8 columns, and whether it rains."""
    return _rows(WEATHER)


@cache
def covertype() -> Rows:
    """Patches of forest, 581,012 of them, in the order in which they were published: 54 columns, 7 kinds of trees."""
    return _rows(COVERTYPE)


@cache
def sea() -> Rows:
    """Three columns, two of which decide whether their sum is over a threshold; it changes three times in 40,000 rows."""
    return _rows(SEA)
