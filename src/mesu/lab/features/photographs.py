"""A folder of photographs of animals, as features of a network trained on ImageNet, in a file that `animals` reads."""

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from mesu.lab.data import npz
from mesu.lab.data.animals import CODES, PICTURE_SIDE, SPECIES
from mesu.lab.data.finding import cache_folder, make_writable
from mesu.lab.data.progress import progress
from mesu.lab.data.published import Arrays, Unavailable
from mesu.lab.features.efficientnet import EfficientNetLite0
from mesu.lab.features.pretrained import fit, pretrained_effnetlite0, pretrained_resnet18, read_pretrained
from mesu.lab.features.resnet import ResNet18

SHORTER_SIDE = 256  # after resizing, as torchvision does for ImageNet
SIDE = 224  # of the square that is cut from the middle
MOST_NARROW = 50  # longest side over shortest: a narrower picture would take gigabytes when it is resized
DEFAULT_NETWORK = "effnetlite0"  # pip can download its weights
BATCH = 32
TEST_EVERY = 4  # without folders train and test, every fourth photograph is for testing
PARTS = ("train", "test", "ood")
STRANGER = "Whale"
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")  # no others: for some formats Pillow runs other programs


@dataclass(frozen=True)
class Network:
    """A network that makes features, and how its inputs are normalised."""

    title: str
    build: Callable[[], EfficientNetLite0 | ResNet18]
    pretrained: Callable[[], dict[str, Tensor]]  # its weights, if the user names no file of them
    mean: tuple[float, float, float]  # of red, green and blue, as bytes
    std: tuple[float, float, float]


NETWORKS = {
    "effnetlite0": Network(
        title="EfficientNet-Lite0",
        build=EfficientNetLite0,
        pretrained=pretrained_effnetlite0,
        mean=(127, 127, 127),
        std=(128, 128, 128),
    ),
    "resnet18": Network(
        title="ResNet18",
        build=ResNet18,
        pretrained=pretrained_resnet18,
        mean=(0.485 * 255, 0.456 * 255, 0.406 * 255),  # ImageNet's, as torchvision has them
        std=(0.229 * 255, 0.224 * 255, 0.225 * 255),
    ),
}


@dataclass(frozen=True)
class Photograph:
    """A file, before it is opened."""

    path: Path
    part: str  # train, test or ood
    code: str  # of its species; "" for an outlier


@dataclass(frozen=True)
class Made:
    """A file of features that was written."""

    path: Path
    counts: dict[str, int]  # photographs in each part
    skipped: tuple[Path, ...]  # photographs that could not be read


def make_features(
    images: Path,
    network: str = DEFAULT_NETWORK,
    pretrained: Path | None = None,
    out: Path | None = None,
    batch: int = BATCH,
) -> Made:
    """Make features of a folder of photographs; the file is written at the end, whole or not at all.

    Args:
        images: A folder for each species and one named Whale, or folders train and test with those inside.
        network: "effnetlite0" (1,280 features) or "resnet18" (512).
        pretrained: A file with the network's weights; those of EfficientNet-Lite0 are fetched if no file is named.
        out: Folder for the file, else the cache. It is named animals_mine_<network>.npz, so that it never stands in for
            the features of the paper's photographs.
        batch: Photographs that the network sees at once.

    Raises:
        FileNotFoundError: if the folder or the weights are not there.
        ValueError: if a species has no photographs that can be read, or the weights are not the network's.
    """
    if network not in NETWORKS:
        raise ValueError(f"network must be one of {', '.join(NETWORKS)}, got {network!r}")
    if batch < 1:
        raise ValueError(f"batch must be at least 1 photograph, got {batch}")
    photographs = find_photographs(images)
    known, name = NETWORKS[network], f"animals_mine_{network}.npz"
    folder = _writable(out, name)  # before an hour of work, not after it
    model = known.build().eval()
    weights = read_pretrained(pretrained) if pretrained else known.pretrained()
    fit(model, weights, known.title, str(pretrained or "its package"))
    progress().say(f"features of {len(photographs)} photographs by {known.title}")
    kept, features, pictures = features_of(photographs, known, model, batch)
    _refuse_gaps(images, kept, " that can be read")
    npz.write(folder / name, _arrays(images, kept, features, pictures))
    counts = {part: sum(photograph.part == part for photograph in kept) for part in PARTS}
    return Made(
        folder / name, counts, tuple(sorted({each.path for each in photographs} - {each.path for each in kept}))
    )


def _writable(out: Path | None, name: str) -> Path:
    if out is not None:
        if out.suffix == ".npz":
            raise ValueError(f"--out names a folder, which gets the file {name}; got {out}")
        make_writable(out, "the folder", "name another with --out")
        return out
    try:
        folder = cache_folder()
    except Unavailable as reason:
        raise ValueError(f"{reason}, or name a folder with --out") from None
    make_writable(folder, "the cache folder", "set MESU_CACHE to one that can, or name another with --out")
    return folder


def find_photographs(folder: Path) -> list[Photograph]:
    """The photographs of the twenty species and of whales, in the order of parts, species and names.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if it holds no photographs, or not of every species.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}: --images names one with photographs in it")
    divided = {below: below.name.lower() for below in _folders(folder) if below.name.lower() in ("train", "test")}
    if len(set(divided.values())) == 1:
        (here,) = set(divided.values())
        other = "test" if here == "train" else "train"
        raise ValueError(f"{folder} has a folder {here} but no {other}: add it, or move the species out of {here}")
    found, left_out = [], set()
    for home, part in {**divided, folder: None}.items():
        for below in _folders(home):
            code = _CODE_OF.get(_plain(below.name))
            if code == "":
                found += [Photograph(path, "ood", code) for path in _pictures(below)]
            elif code and part:
                found += [Photograph(path, part, code) for path in _pictures(below)]
            elif code and not divided:
                for i, path in enumerate(_pictures(below), start=1):
                    found.append(Photograph(path, "train" if i % TEST_EVERY else "test", code))
            elif code:
                raise ValueError(f"{folder} has {below.name} beside train and test: move its photographs into those")
            elif below not in divided:
                left_out.add(below.name)
    if left_out:
        progress().say(f"warning: left out, since not among the twenty species: {', '.join(sorted(left_out))}")
    if not found:
        raise ValueError(
            f"{folder} holds no photographs of animals: it should have a folder for each species, named {SPECIES[0]} and so "
            f"on, or folders train and test with those inside; pictures end with {', '.join(SUFFIXES)}"
        )
    _refuse_gaps(folder, found)
    return sorted(found, key=lambda each: (PARTS.index(each.part), each.code))  # stable: names stay in order


def _plain(name: str) -> str:
    """A folder's name, which may be written Red panda, red_panda or, as in the paper's own, 11Red panda."""
    return "".join(re.findall(r"[^\W\d_]+", name)).lower()


_CODE_OF = {_plain(name): code for name, code in zip((*SPECIES, STRANGER), (*CODES, ""), strict=True)}


def _folders(folder: Path) -> list[Path]:
    return sorted(below for below in folder.iterdir() if below.is_dir() and not below.name.startswith("."))


def _pictures(folder: Path) -> list[Path]:
    files = (path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file())
    return sorted((path for path in files if not path.name.startswith(".")), key=lambda path: path.name)


def _refuse_gaps(folder: Path, photographs: Sequence[Photograph], kind: str = "") -> None:
    """Raise a `ValueError` if a species has no photographs to learn from or to test on, or if there are no outliers."""
    here = {(each.part, each.code) for each in photographs}
    names = dict(zip(CODES, SPECIES, strict=True))
    absent = [name for code, name in names.items() if not {("train", code), ("test", code)} & here]
    gaps = [", ".join([*absent, *([] if ("ood", "") in here else [STRANGER])])]
    for part, purpose in (("train", "learning"), ("test", "testing")):
        lacking = [name for code, name in names.items() if (part, code) not in here and name not in absent]
        gaps.append(f"{', '.join(lacking)} for {purpose}" if lacking else "")
    if any(gaps):
        raise ValueError(
            f"{folder} has no photographs{kind} of {'; nor of '.join(filter(None, gaps))}. Each species needs some for "
            f"learning and some for testing (without folders train and test that is every fourth), and {STRANGER} a few"
        )


def read_photograph(path: Path) -> np.ndarray:
    """The middle of a picture as bytes [224, 224, 3], its shorter side resized to 256 before, as torchvision does.

    Raises:
        Exception: of many kinds, if it is damaged, too big or no picture.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about unusual tags, which many cameras write
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(path, formats=FORMATS) as opened:
            picture = opened.convert("RGB")  # not rotated as its tags say, since torchvision does not either
    shorter = min(picture.size)
    if max(picture.size) > MOST_NARROW * shorter:
        raise ValueError(f"it is {picture.width} x {picture.height} pixels, too narrow")
    width, height = (int(SHORTER_SIDE * side / shorter) for side in picture.size)
    left, top = round((width - SIDE) / 2), round((height - SIDE) / 2)
    resized = picture.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(resized.crop((left, top, left + SIDE, top + SIDE)))


def small(picture: np.ndarray) -> np.ndarray:
    """A square picture at the size that reports show: bytes [64, 64, 3]."""
    return np.asarray(Image.fromarray(picture).resize((PICTURE_SIDE, PICTURE_SIDE), Image.Resampling.LANCZOS))


def prepare(pictures: Sequence[np.ndarray], network: Network) -> Tensor:
    """Pictures of bytes as the network's input: [N, 3, height, width], minus its mean, divided by its standard deviation."""
    x = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float()
    return (x - torch.tensor(network.mean).view(3, 1, 1)) / torch.tensor(network.std).view(3, 1, 1)


def features_of(
    photographs: Sequence[Photograph], network: Network, model: EfficientNetLite0 | ResNet18, batch: int
) -> tuple[list[Photograph], np.ndarray, dict[Photograph, np.ndarray]]:
    """The photographs that could be read, their features as rows of float16, and small pictures of those not for training.

    The others are named in a message.

    Raises:
        ValueError: if a feature is not finite.
    """
    kept: list[Photograph] = []
    rows: list[np.ndarray] = []
    pictures: dict[Photograph, np.ndarray] = {}
    sizes = [photograph.path.stat().st_size for photograph in photographs]
    for start in range(0, len(photographs), batch):
        progress().show(f"{start} of {len(photographs)} photographs", sum(sizes[:start]), sum(sizes))
        chunk = [(photograph, _try_to_read(photograph.path)) for photograph in photographs[start : start + batch]]
        readable = [(photograph, picture) for photograph, picture in chunk if picture is not None]
        if readable:
            with torch.inference_mode():
                x = prepare([picture for _, picture in readable], network)
                rows.append(model.features(x).half().numpy())
            for (photograph, _), row in zip(readable, rows[-1], strict=True):
                if not np.isfinite(row).all():
                    raise ValueError(f"{network.title} makes features of {photograph.path} that are not finite")
            kept += [photograph for photograph, _ in readable]
            pictures |= {photograph: small(picture) for photograph, picture in readable if photograph.part != "train"}
    return kept, np.concatenate(rows) if rows else np.empty((0, 0), np.float16), pictures


def _try_to_read(path: Path) -> np.ndarray | None:
    try:
        return read_photograph(path)
    except Exception as error:  # Pillow raises many kinds, SyntaxError among them
        progress().say(f"skipped {path}: {' '.join(str(error).split()) or type(error).__name__}")
        return None


def _arrays(
    folder: Path,
    photographs: Sequence[Photograph],
    features: np.ndarray,
    pictures: dict[Photograph, np.ndarray],
) -> Arrays:
    arrays = {"species_code": np.array(CODES), "species_name": np.array(SPECIES)}
    for part in PARTS:
        rows = [i for i, photograph in enumerate(photographs) if photograph.part == part]
        arrays[f"{part}_x"] = features[rows]
        arrays[f"{part}_file"] = np.array([photographs[i].path.relative_to(folder).as_posix() for i in rows])
        if part != "ood":
            arrays[f"{part}_y"] = np.array([photographs[i].code for i in rows])
        if part != "train":  # training photographs are many, and no report shows them
            arrays[f"{part}_pictures"] = np.stack([pictures[photographs[i]] for i in rows])
    return arrays
