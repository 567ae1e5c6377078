"""`mesu.load`: read a saved model, as the class that saved it. Loading never runs code."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import deserialize, safe_open

from mesu.disk import UNREADABLE, check_file, digest_of, must, reason_of
from mesu.online.carried import carriable
from mesu.online.files import (
    CLASSES,
    FORMAT,
    RIVER,
    VERSION,
    WATCH,
    Unreadable,
    exact,
    layout_of,
    shape_of,
    snapshot_of,
)
from mesu.online.settings import SHORT_BLOCK
from mesu.version import __version__

FIRST_HEADER = {"format", "version", "description", "sha256"}  # of files that do not say which version saved them
TYPES = {np.float32: "F32", np.float64: "F64"}  # as safetensors calls them


def load(path: str | os.PathLike) -> Any:
    """The model in a file that its `save` wrote: an estimator for scikit-learn, or a model for River.

    Raises:
        Unreadable: naming the file and what is wrong with it: it is cut short, altered, of another kind or of a later version.
        FileNotFoundError: if there is none.
        ImportError: if it is a model for River, which is not installed.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/model.safetensors"
        >>> mesu.MESURegressor(random_state=0).fit([[0.0], [1.0]], [0.0, 1.0]).save(path)
        >>> mesu.load(path)
        MESURegressor(random_state=0)
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no model at {path}")
    if path.is_dir():
        raise Unreadable(f"{path} is a folder: name the file of a model in it")
    with _explained(f"the model {path}") as said:
        check_file(path)
        with safe_open(path, framework="np") as file:
            return _read(file, said)


def unpacked(data: bytes, name: str) -> Any:
    """The model in the bytes of a model's file, as `mesu.online.files.packed` makes them.

    Raises:
        Unreadable: with this name, and what is wrong.
    """
    with _explained(name) as said:
        return _read(_InMemory(data), said)


class _InMemory:
    """The bytes of a file, with the methods of `safe_open` that are needed."""

    def __init__(self, data: bytes) -> None:
        self.parts = dict(deserialize(data))  # refuses what does not fit into the bytes
        self.header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])

    def metadata(self) -> dict[str, str] | None:
        return self.header.get("__metadata__")

    def keys(self) -> Any:
        return self.parts.keys()

    def get_slice(self, name: str) -> "_Claimed":
        return _Claimed(**{of: self.parts[name][of] for of in ("shape", "dtype")})

    def get_tensor(self, name: str) -> np.ndarray:
        part = self.parts[name]
        types = {called: dtype for dtype, called in TYPES.items()}
        return np.frombuffer(part["data"], types[part["dtype"]]).reshape(part["shape"])


class _Claimed(NamedTuple):
    shape: list[int]
    dtype: str

    def get_shape(self) -> list[int]:
        return self.shape

    def get_dtype(self) -> str:
        return self.dtype


@contextmanager
def _explained(name: str) -> Iterator[list[str]]:
    """Name what cannot be read, and the version that wrote it once that is known."""
    said: list[str] = []
    try:
        yield said
    except ImportError as error:
        if error.name != "river":
            raise
        raise ImportError(f"{name} is one for River, which is missing or too old: pip install 'mesu[river]'") from error
    except (*UNREADABLE, MemoryError) as error:  # made-up sizes may ask for any amount of memory
        raise Unreadable(f"{name} cannot be read ({reason_of(error)}){''.join(said)}") from error


def _read(file: Any, said: list[str]) -> Any:
    """The model in an open file; `said` is told which version wrote it."""
    header = file.metadata() or {}
    said.append(_written_by(header))
    if header.get("format") != FORMAT:
        raise ValueError("it is a safetensors file that mesu did not save")
    if header.get("version") != VERSION:
        raise ValueError(
            f"it has version {header.get('version')} of the format, and this mesu reads version {VERSION}: update mesu"
        )
    description = json.loads(header["description"])
    _check_layout(description, file)  # before a tensor is read, which may claim any size
    tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if header.get("sha256") != digest_of(header["description"], tensors):
        raise ValueError("its content is not what was saved")
    if header.keys() != FIRST_HEADER and header.get("sha256 with mesu") != digest_of(header["sha256"], header["mesu"]):
        raise ValueError("its header is not what was saved")
    return _model(description, tensors)


def _written_by(header: dict[str, str]) -> str:
    """A note on the version that saved a model, if it is another one than this."""
    if header.get("format") != FORMAT:
        return ""
    version = header.get("mesu")
    if version == __version__:
        return ""
    words = f"mesu {version}" if version and version.isprintable() else "an earlier version"
    return f"; it was saved by {words}, and this is mesu {__version__}"


def _check_layout(description: dict[str, Any], file: Any) -> None:
    """Refuse a file whose tensors do not have the shapes and types that its description asks for."""
    settings, sizes, updates = shape_of(description)
    recent = file.get_slice("latest").get_shape() if "latest" in file.keys() else [0]  # noqa: SIM118
    must(len(recent) == 1 and recent[0] <= 3 * SHORT_BLOCK, "its last rows are not valid")
    layout = layout_of(sizes, updates, settings, recent[0], WATCH in file.keys())  # noqa: SIM118
    must(set(file.keys()) == layout.keys(), "its tensors have other names")
    for name, (length, dtype) in layout.items():
        claimed = file.get_slice(name)
        same = claimed.get_shape() == [length] and claimed.get_dtype() == TYPES[dtype]
        must(same, f"its tensor {name!r} has another shape or type")


def _model(description: dict[str, Any], tensors: dict[str, np.ndarray]) -> Any:
    """The model that a header and its tensors describe, unless they contradict each other."""
    kind, parameters = _kind(description["class"]), description["parameters"]
    snapshot = snapshot_of(description, tensors)
    must(kind._regression is snapshot.settings.regression, "its class and its settings differ")
    if isinstance(parameters["hidden"], list):
        parameters["hidden"] = tuple(parameters["hidden"])
    names = description["feature_names"]
    if names is not None:
        names = [exact("feature", name) for name in names]
        must(len(set(names)) == len(names) == snapshot.weights.sizes[0], "its features have other names")
    model = kind._from_kept(snapshot, parameters, names)
    if "carried" in description:
        model._carried = carriable(description["carried"])
    return model


def _kind(name: str) -> Any:
    """The class that a file calls by this name."""
    must(name.removeprefix(RIVER) in CLASSES, f"its class is {name!r}, which mesu does not have")
    if name.startswith(RIVER):
        module = import_module("mesu.online.river")
    else:
        from mesu.online import sklearn as module
    return getattr(module, name.removeprefix(RIVER))
