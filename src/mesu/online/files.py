"""A model in one file: safetensors, with a header that says what it is and a checksum of everything in it.

    format        "mesu estimator"
    version       "1"
    description   JSON: class, parameters, settings, labels, names of the features, counts
    sha256        of the description and of every tensor's name, type, shape and bytes

Loading one never runs code, and what comes back goes on as if it had never stopped, bit for bit.
"""

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save as as_bytes

from mesu.disk import replacing
from mesu.engine.predict import layer_edges
from mesu.online.model import DOUBT, WINDOW
from mesu.online.scaling import Scale

FORMAT, VERSION = "mesu estimator", "1"
CLASSES = ("MESUClassifier", "MESURegressor")
RIVER = "river."  # goes before the names of River's models
# what reading a damaged file, or one that somebody made up, raises
UNREADABLE = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError),
    SafetensorError,
)
_one_at_a_time = threading.Lock()  # two threads must not write to the same file aside


class Unreadable(ValueError):
    """A file that is no model, or no longer one."""


def save(model: Any, path: str | os.PathLike) -> None:
    """Write a model that has learned to a file that is there as a whole or, if something goes wrong, as it was before.

    Raises:
        ValueError: if a parameter, a label or the name of a feature cannot be written down, or a parameter is no longer the one
            that the model began with.
        FileNotFoundError: if the folder does not exist.
        IsADirectoryError: if the path is a folder.
    """
    if "_saved_as" not in vars(type(model)):  # a subclass, which `load` would not find
        raise ValueError(f"only {' and '.join(CLASSES)} can be saved, got {type(model).__name__}: pickle it instead")
    now, parameters, names = model._kept()
    tensors = {
        "mean": now.weights.mean,
        "std": now.weights.std,
        "judge.mean": now.judge.mean,
        "judge.std": now.judge.std,
        **{f"inputs.{name}": array for name, array in now.inputs._asdict().items()},
        **{f"targets.{name}": array for name, array in now.targets._asdict().items()},
        "usual": now.usual,
        "misses": now.misses,
    }
    description = json.dumps(
        {
            "class": model._saved_as,
            "parameters": {name: _plain(name, value) for name, value in parameters.items()},
            "settings": asdict(now.settings),
            "sizes": now.weights.sizes,
            "labels": [exact("label", label) for label in now.labels],
            "rows": now.rows,
            "updates": now.updates,
            "frame": now.frame,
            "noise_std": now.noise_std,
            "feature_names": None if names is None else [exact("feature", name) for name in names],
        }
    )
    header = {
        "format": FORMAT,
        "version": VERSION,
        "description": description,
        "sha256": digest_of(description, tensors),
    }
    data = as_bytes(tensors, metadata=header)
    with _one_at_a_time, replacing(Path(path)) as aside, aside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def layout_of(sizes: tuple[int, ...], updates: int, settings: Any) -> dict[str, tuple[int, type]]:
    """Length and type of each tensor of a model of these sizes."""
    weights = layer_edges(sizes)[-1]
    return {
        **dict.fromkeys(("mean", "std", "judge.mean", "judge.std"), (weights, settings.dtype)),
        **{f"inputs.{name}": (sizes[0], np.float64) for name in Scale._fields},
        **{f"targets.{name}": (1, np.float64) for name in Scale._fields},
        "usual": (min(updates, WINDOW), np.float64),
        "misses": (min(updates + DOUBT, WINDOW) if settings.regression else 0, np.float64),
    }


def check_tensors(tensors: Mapping[str, np.ndarray], layout: Mapping[str, tuple[int, type]]) -> None:
    """Refuse tensors that are not those of such a model."""
    must(tensors.keys() == layout.keys(), "its tensors have other names")
    for name, (length, dtype) in layout.items():
        tensor = tensors[name]
        must(tensor.shape == (length,) and tensor.dtype == dtype, f"its tensor {name!r} has another shape or type")
        must(np.isfinite(tensor).all(), f"its tensor {name!r} is not finite")
        must(not name.endswith("std") or bool((tensor > 0).all()), "a sigma is not positive")
        must(not name.endswith(("var", "rows")) or bool((tensor >= 0).all()), "a variance is negative")


def exact(what: str, value: Any) -> Any:
    """A label, or the name of a feature, that comes back from JSON as it was."""
    plain = value.item() if isinstance(value, np.generic) else value
    if type(plain) in (str, bool, int) or (type(plain) is float and isfinite(plain)):
        return plain
    raise ValueError(
        f"the {what} {value!r} cannot be saved: give it a word or a finite number for a name, or pickle the model"
    )


def _plain(name: str, value: Any) -> Any:
    """A parameter as JSON has it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(name, part) for part in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError(
        f"{name} must be a number to be saved, got {value!r}: set_params({name}=...) first, or pickle the model"
    )


def digest_of(description: str, tensors: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of a description and its tensors."""
    digest = hashlib.sha256(description.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tensor.shape} ".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()


def must(condition: Any, otherwise: str) -> None:
    """Raise `ValueError` with a sentence unless the condition holds."""
    if not condition:
        raise ValueError(otherwise)


def reason_of(error: BaseException) -> str:
    """What an error says, in a few words."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
