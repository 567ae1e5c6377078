"""Animals: photographs of twenty species, and of whales as outliers, as features of a network trained on ImageNet.

The species are numbered as in the paper: species i is of family i % 5, and a task has one species of each family. The
ResNet18 features were computed again from the paper's photographs: they are close to the authors' features, not identical.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from mesu.lab.data import npz
from mesu.lab.data.finding import cache_folder, data_folder, load
from mesu.lab.data.published import Array, Arrays, DamagedData, Published, Unavailable, times

FAMILIES = 5
FAMILY_NAMES = ("bears", "cats", "poultry", "wild birds", "cattle")
SPECIES = (  # a column is a family
    *("Red panda", "Cheetah", "Chicken", "Eagle", "Bull"),
    *("Polar bear", "Lion", "Duck", "Raven", "Goat"),
    *("Brown bear", "Tiger", "Ostrich", "Sparrow", "Sheep"),
    *("Panda", "Lynx", "Swan", "Owl", "Mule"),
)
CODES = tuple(f"{i // FAMILIES + 1}{i % FAMILIES + 1}" for i in range(len(SPECIES)))  # row and family, from 1

PICTURE_SIDE = 64  # pixels
# only of photographs to test and of whales, and only in files that were made from a folder of photographs
_PICTURES = {"test_pictures": "test_x", "ood_pictures": "ood_x"}

# the photographs and their labels are the same for both networks
_PHOTOGRAPHS = {
    "train_y": Array((4576,), "<U2", "9c32d050b4dd60a9f4e6c97f24318f3ddc3bcd4dcb8eb9b465b6b8e27fea1665"),
    "test_y": Array((1446,), "<U2", "372e513135100990956f8bdfea53d3ac28d309e7396ac2425f7e063f1309252f"),
    "species_code": Array((20,), "<U2", "484a0b6a0da55d9751bf8a9e25a5cc4ef09a8db6f172e8caf0b1f6680c6f1806"),
    "species_name": Array((20,), "<U10", "55f95615e76334836a8ea62e5b73dd43d115f07f0348dd5d5e571ad2fe51aa77"),
}
_INSTEAD = "take photographs of your own: mesu data get animals --images FOLDER, then mesu run animals --features FILE"


def _features(network: str, title: str, width: int, train_x: str, test_x: str, ood_x: str) -> Published:
    """The features that one network makes of the paper's photographs, with the SHA-256 of each array."""
    rows = {"train_x": (4576, train_x), "test_x": (1446, test_x), "ood_x": (287, ood_x)}
    return Published(
        name=f"animals-{network}",
        title=f"Animals ({title})",
        what=f"6,309 photographs of animals as {width:,} features",
        contents={name: Array((n, width), "float16", sha256) for name, (n, sha256) in rows.items()} | _PHOTOGRAPHS,
        instead=_INSTEAD,
    )


ANIMALS = {
    "resnet18": _features(
        *("resnet18", "ResNet18", 512),
        train_x="2d395a18676078469cbd47800dcd55cb41d2e6b0be73172725b2dca07ab54449",
        test_x="e985777d007c49edc184f131f406eede713ebafba2f9452f4a37402fef26c598",
        ood_x="310732a0b647c9c9140812a5a97327c49134d57e860664fcac1668b259f4dffe",
    ),
    "effnetlite0": _features(
        *("effnetlite0", "EfficientNet-Lite0", 1280),
        train_x="3c45c8421bd8db73e6b55dacecbd0cedeed94f595b63ca9175f4dca723207581",
        test_x="565bac7284348b6c7e4fd9c93e5dba79cd77265707698a01e26206e68ae5fc9d",
        ood_x="03c70d7704a9b3f9eceb8561ad0aa0e1512b0a7c3a902df039de058bebd77f48",
    ),
}


@dataclass(frozen=True)
class Animals:
    """Features of photographs, one in each row of float32, and the species of each as a whole number from 0."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    ood_x: np.ndarray  # whales: no species to learn
    species: tuple[str, ...]  # names, by number
    test_pictures: np.ndarray | None = None  # small, [photographs, 64, 64, 3] bytes; None in the paper's files
    ood_pictures: np.ndarray | None = None


def animals(features: str | Path = "resnet18") -> Animals:
    """4,576 photographs to learn, 1,446 to test and 287 whales, as features; or as many as you have of your own.

    Args:
        features: The network that they are from: `"resnet18"` (512 features) or `"effnetlite0"` (1,280). Or a file that
            `mesu data get animals --images` made: its path, or its name alone if it lies in MESU_DATA or the cache.

    Raises:
        FileNotFoundError: if they are nowhere; the message says what was tried and what to do.
        DamagedData: if the file holds something else.
    """
    if str(features) in ANIMALS:
        return _of_the_paper(str(features))
    path = Path(features).expanduser()
    if path.suffix != ".npz":
        raise ValueError(
            f"features must be one of {', '.join(ANIMALS)}, got {str(features)!r}; "
            f"or a file .npz that mesu data get animals --images FOLDER made"
        )
    return _mine(_place(path))


@cache
def _of_the_paper(features: str) -> Animals:
    return _numbered(load(ANIMALS[features]))


def _numbered(arrays: Arrays) -> Animals:
    train_x, test_x, ood_x = (arrays[name].astype(np.float32) for name in ("train_x", "test_x", "ood_x"))
    # codes are sorted, so the index of a code is the number of its species
    train_y, test_y = (np.searchsorted(arrays["species_code"], arrays[name]) for name in ("train_y", "test_y"))
    names, pictures = tuple(arrays["species_name"].tolist()), (arrays.get(name) for name in _PICTURES)
    return Animals(train_x, train_y, test_x, test_y, ood_x, names, *pictures)


def _place(path: Path) -> Path:
    """Where a file of features is: here, or if it is named without a folder, in MESU_DATA or the cache."""
    places = [path]
    if path.name == str(path):
        places += [folder / path for folder in [data_folder()] if folder]
        with suppress(Unavailable):  # without a cache nothing was put there
            places.append(cache_folder() / path)
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise FileNotFoundError(
            f"there is no file {' nor '.join(map(str, places))}: mesu data get animals --images FOLDER makes one"
        )
    return found


def _mine(path: Path) -> Animals:
    """Features of a user's own photographs. Nobody knows their hashes, so only shapes, labels and finiteness are checked."""
    arrays = npz.read_named(path, (*ANIMALS["resnet18"].contents, *_PICTURES))
    complaints = _complaints(arrays)
    if complaints:
        raise DamagedData(f"{path} does not hold features of animals: {'; '.join(complaints)}")
    return _numbered(arrays)


def _complaints(arrays: Arrays) -> list[str]:
    """What is wrong with arrays that should be features of a user's photographs; empty if they are valid."""
    missing = [f"array {name} is missing" for name in ANIMALS["resnet18"].contents if name not in arrays]
    if missing:
        return missing
    for name, known in (("species_code", CODES), ("species_name", SPECIES)):
        if arrays[name].tolist() != list(known):
            return [f"array {name} is not {', '.join(known)}"]
    width = arrays["train_x"].shape[1] if arrays["train_x"].ndim == 2 else 0
    each = {name: _features_complaint(arrays[name], width) for name in ("train_x", "test_x", "ood_x")}
    each |= {f"{part}_y": _labels_complaint(arrays[f"{part}_y"], arrays[f"{part}_x"]) for part in ("train", "test")}
    if any(name in arrays for name in _PICTURES):  # both or neither
        each |= {name: _pictures_complaint(arrays.get(name), arrays[x]) for name, x in _PICTURES.items()}
    return [f"array {name} {complaint}" for name, complaint in each.items() if complaint]


def _features_complaint(array: np.ndarray, width: int) -> str | None:
    if array.ndim != 2 or 0 in array.shape or array.shape[1] != width:
        return f"has shape {times(array.shape)} where photographs x {width or 'features'} is right"
    if array.dtype != np.float16:
        return f"has dtype {array.dtype} where float16 is right"
    bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
    return f"has {len(bad)} rows that are not finite, the first of them row {bad[0]}" if len(bad) else None


def _pictures_complaint(pictures: np.ndarray | None, features: np.ndarray) -> str | None:
    if pictures is None:
        return "is missing"
    right = (*features.shape[:1], PICTURE_SIDE, PICTURE_SIDE, 3)
    if pictures.shape != right:
        return f"has shape {times(pictures.shape)} where {times(right)} is right"
    return f"has dtype {pictures.dtype} where uint8 is right" if pictures.dtype != np.uint8 else None


def _labels_complaint(labels: np.ndarray, features: np.ndarray) -> str | None:
    if labels.shape != features.shape[:1]:
        return f"has shape {times(labels.shape)} where {times(features.shape[:1])} is right, one for each photograph"
    unknown = sorted(set(labels.tolist()) - set(CODES), key=str)
    if unknown:
        return f"has {unknown[0]!r}, which is not the code of a species"
    absent = [name for code, name in zip(CODES, SPECIES, strict=True) if code not in labels]
    return f"has no {', '.join(absent)}" if absent else None
