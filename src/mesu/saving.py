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
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as as_bytes

from mesu.answers import Weights, layer_edges
from mesu.files import replacing
from mesu.standardising import Scale

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
    if _kind(model._saved_as) is not type(model):
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
            "labels": [_exact("label", label) for label in now.labels],
            "rows": now.rows,
            "updates": now.updates,
            "frame": now.frame,
            "noise_std": now.noise_std,
            "feature_names": None if names is None else [_exact("feature", name) for name in names],
        }
    )
    header = {
        "format": FORMAT,
        "version": VERSION,
        "description": description,
        "sha256": _digest(description, tensors),
    }
    data = as_bytes(tensors, metadata=header)
    with _one_at_a_time, replacing(Path(path)) as aside, aside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


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
    try:
        with safe_open(path, framework="np") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT:
                raise ValueError("it is a safetensors file that mesu did not save")
            if header.get("version") != VERSION:
                raise ValueError(
                    f"it has version {header.get('version')} of the format, and this mesu reads version {VERSION}: update mesu"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if header.get("sha256") != _digest(header["description"], tensors):
            raise ValueError("its content is not what was saved")
        return _model(json.loads(header["description"]), tensors)
    except ImportError as error:
        if error.name != "river":
            raise
        raise ImportError(
            f"the model {path} is one for River, which is missing or too old: pip install 'mesu[river]'"
        ) from error
    except UNREADABLE as error:
        raise Unreadable(f"the model {path} cannot be read ({_reason(error)})") from error


def _model(description: dict[str, Any], tensors: dict[str, np.ndarray]) -> Any:
    """The model that a header and its tensors describe, unless they contradict each other."""
    from mesu.streaming import Moment, Settings, owned

    kind = _kind(description["class"])
    given, parameters = description["settings"], description["parameters"]
    settings = Settings(**{**given, "hidden": tuple(given["hidden"])})
    inputs, *hidden, outputs = sizes = tuple(description["sizes"])
    labels = tuple(description["labels"])
    rows, updates, noise_std = description["rows"], description["updates"], float(description["noise_std"])
    _must(kind._regression is settings.regression, "its class and its settings differ")
    _must(type(settings.seed) is int and 0 <= settings.seed < 2**31, "its seed is none")
    _must(all(type(n) is int and n > 0 for n in sizes), "its sizes are none")
    _must(tuple(hidden) == settings.hidden, "its sizes and its settings differ")
    _must(len(set(labels)) == len(labels) == (0 if settings.regression else outputs), "its outputs have other labels")
    _must(outputs == 1 or not settings.regression, "it has several outputs")
    _must(len({type(label) is str for label in labels}) < 2, "its labels are words and numbers")
    _must(all(type(n) in (str, bool, int) or (type(n) is float and isfinite(n)) for n in labels), "its labels are none")
    _must(type(rows) is type(updates) is int and 0 < rows <= updates < 2**62, "its counts are none")
    centre, spread = map(float, description["frame"])
    _must(0 < noise_std < inf, "its noise is not positive")
    _must(isfinite(centre) and 0 < spread < inf, "the frame of its targets is none")
    _check_tensors(tensors, _layout(sizes, updates, settings))
    moment = Moment(
        settings=settings,
        weights=Weights(tensors["mean"], tensors["std"], sizes),
        judge=Weights(tensors["judge.mean"], tensors["judge.std"], sizes),
        inputs=Scale(*(tensors[f"inputs.{name}"] for name in Scale._fields)),
        targets=Scale(*(tensors[f"targets.{name}"] for name in Scale._fields)),
        frame=(centre, spread),
        labels=labels,
        rows=rows,
        updates=updates,
        usual=tensors["usual"],
        misses=tensors["misses"],
        noise_std=noise_std,
    )
    if isinstance(parameters["hidden"], list):
        parameters["hidden"] = tuple(parameters["hidden"])
    names = description["feature_names"]
    if names is not None:
        names = [_exact("feature", name) for name in names]
        _must(len(set(names)) == len(names) == inputs, "its features have other names")
    return kind._from_kept(owned(moment), parameters, names)


def _layout(sizes: tuple[int, ...], updates: int, settings: Any) -> dict[str, tuple[int, type]]:
    """Length and type of each tensor of a model of these sizes."""
    from mesu.streaming import DOUBT, WINDOW

    weights = layer_edges(sizes)[-1]
    return {
        **dict.fromkeys(("mean", "std", "judge.mean", "judge.std"), (weights, settings.dtype)),
        **{f"inputs.{name}": (sizes[0], np.float64) for name in Scale._fields},
        **{f"targets.{name}": (1, np.float64) for name in Scale._fields},
        "usual": (min(updates, WINDOW), np.float64),
        "misses": (min(updates + DOUBT, WINDOW) if settings.regression else 0, np.float64),
    }


def _check_tensors(tensors: Mapping[str, np.ndarray], layout: Mapping[str, tuple[int, type]]) -> None:
    _must(tensors.keys() == layout.keys(), "its tensors have other names")
    for name, (length, dtype) in layout.items():
        tensor = tensors[name]
        _must(tensor.shape == (length,) and tensor.dtype == dtype, f"its tensor {name!r} has another shape or type")
        _must(np.isfinite(tensor).all(), f"its tensor {name!r} is not finite")
        _must(not name.endswith("std") or bool((tensor > 0).all()), "a sigma is not positive")
        _must(not name.endswith(("var", "rows")) or bool((tensor >= 0).all()), "a variance is negative")


def _kind(name: str) -> Any:
    """The class that a file calls by this name."""
    _must(name.removeprefix(RIVER) in CLASSES, f"its class is {name!r}, which mesu does not have")
    if name.startswith(RIVER):
        from mesu.integrations import river as module
    else:
        from mesu import estimators as module
    return getattr(module, name.removeprefix(RIVER))


def _exact(what: str, value: Any) -> Any:
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


def _digest(description: str, tensors: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(description.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tensor.shape} ".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()


def _must(condition: Any, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)


def _reason(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
