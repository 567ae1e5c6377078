"""A model in one file: safetensors, with a header that says what it is and a checksum of everything in it.

    format        "mesu estimator"
    version       "1"
    description   JSON: class, parameters, settings, labels, names of the features, counts
    sha256        of the description and of every tensor's name, type, shape and bytes

Some parts of a snapshot have other names in the file: those that the first version of the format gave them.

    scoring_weights     judge.mean, judge.std           target_scale      frame
    recent_epistemic    usual                           allow_missing     gaps
    recent_errors       misses

Loading a file never runs code, and the loaded model continues as if it had never stopped, bit for bit.
"""

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as as_bytes

from mesu.disk import digest_of, must, replacing
from mesu.engine.predict import Weights, layer_edges
from mesu.online.scaling import Scale
from mesu.online.settings import Settings
from mesu.online.snapshot import ASSUMED_ERRORS, WINDOW, Snapshot

FORMAT, VERSION = "mesu estimator", "1"
CLASSES = ("MESUClassifier", "MESURegressor")
RIVER = "river."  # goes before the names of River's models
_one_at_a_time = threading.Lock()  # two threads must not write to the same temporary file


class Unreadable(ValueError):
    """A file that is not a model, or is damaged."""


def save(model: Any, path: str | os.PathLike) -> None:
    """Write a model that has learned to a file. If something goes wrong, an older file of that name stays as it was.

    Raises:
        ValueError: if a parameter, a label or the name of a feature cannot be written down, or a parameter is no longer the one
            that the model began with.
        FileNotFoundError: if the folder does not exist.
        IsADirectoryError: if the path is a folder.
    """
    if "_saved_as" not in vars(type(model)):  # a subclass, which `load` would not find
        raise ValueError(f"only {' and '.join(CLASSES)} can be saved, got {type(model).__name__}: pickle it instead")
    now, parameters, names = model._kept()
    description = json.dumps(
        {
            "class": model._saved_as,
            "parameters": {name: _plain(name, value) for name, value in parameters.items()},
            **described(now),
            "feature_names": None if names is None else [exact("feature", name) for name in names],
        }
    )
    tensors = tensors_of(now)
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


def tensors_of(now: Snapshot) -> dict[str, np.ndarray]:
    """The arrays of a snapshot by their names in the file."""
    return {
        "mean": now.weights.mean,
        "std": now.weights.std,
        "judge.mean": now.scoring_weights.mean,
        "judge.std": now.scoring_weights.std,
        **{f"inputs.{name}": array for name, array in now.inputs._asdict().items()},
        **{f"targets.{name}": array for name, array in now.targets._asdict().items()},
        "usual": now.recent_epistemic,
        "misses": now.recent_errors,
    }


def described(now: Snapshot) -> dict[str, Any]:
    """Everything else in a snapshot, as the file's description has it."""
    return {
        "settings": {{"allow_missing": "gaps"}.get(name, name): value for name, value in asdict(now.settings).items()},
        "sizes": now.weights.sizes,
        "labels": [exact("label", label) for label in now.labels],
        "rows": now.rows,
        "updates": now.updates,
        "frame": now.target_scale,
        "noise_std": now.noise_std,
    }


def snapshot_of(description: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Snapshot:
    """The snapshot in a file.

    Raises:
        ValueError: saying where the file contradicts itself.
    """
    given = dict(description["settings"])
    hidden, allow_missing = tuple(given.pop("hidden")), given.pop("gaps")
    settings = Settings(hidden=hidden, allow_missing=allow_missing, **given)
    sizes, labels = tuple(description["sizes"]), tuple(description["labels"])
    rows, updates, noise_std = description["rows"], description["updates"], float(description["noise_std"])
    must(all(type(n) is int and n > 0 for n in sizes), "the sizes of its layers are not valid")
    must(sizes[1:-1] == settings.hidden, "its sizes and its settings differ")
    must(len(set(labels)) == len(labels) == (0 if settings.regression else sizes[-1]), "its outputs have other labels")
    must(sizes[-1] == 1 or not settings.regression, "it has several outputs")
    must(len({type(label) is str for label in labels}) < 2, "its labels are words and numbers")
    must(
        all(type(n) in (str, bool, int) or (type(n) is float and isfinite(n)) for n in labels),
        "its labels are not valid",
    )
    must(type(rows) is type(updates) is int and 0 < rows <= updates < 2**62, "its row counts are not valid")
    centre, spread = map(float, description["frame"])
    must(0 < noise_std < inf, "its noise is not positive")
    must(isfinite(centre) and 0 < spread < inf, "the scale of its targets is not valid")
    check_tensors(tensors, layout_of(sizes, updates, settings))
    snapshot = Snapshot(
        settings=settings,
        weights=Weights(tensors["mean"], tensors["std"], sizes),
        scoring_weights=Weights(tensors["judge.mean"], tensors["judge.std"], sizes),
        inputs=Scale(*(tensors[f"inputs.{name}"] for name in Scale._fields)),
        targets=Scale(*(tensors[f"targets.{name}"] for name in Scale._fields)),
        target_scale=(centre, spread),
        labels=labels,
        rows=rows,
        updates=updates,
        recent_epistemic=tensors["usual"],
        recent_errors=tensors["misses"],
        noise_std=noise_std,
    )
    return snapshot.copied()


def layout_of(sizes: tuple[int, ...], updates: int, settings: Settings) -> dict[str, tuple[int, type]]:
    """Length and type of each tensor in the file of a model with layers of these sizes."""
    weights = layer_edges(sizes)[-1]
    return {
        **dict.fromkeys(("mean", "std", "judge.mean", "judge.std"), (weights, settings.dtype)),
        **{f"inputs.{name}": (sizes[0], np.float64) for name in Scale._fields},
        **{f"targets.{name}": (1, np.float64) for name in Scale._fields},
        "usual": (min(updates, WINDOW), np.float64),
        "misses": (min(updates + ASSUMED_ERRORS, WINDOW) if settings.regression else 0, np.float64),
    }


def check_tensors(tensors: Mapping[str, np.ndarray], layout: Mapping[str, tuple[int, type]]) -> None:
    """Refuse tensors that do not have this layout, or whose values are not valid."""
    must(tensors.keys() == layout.keys(), "its tensors have other names")
    for name, (length, dtype) in layout.items():
        tensor = tensors[name]
        must(tensor.shape == (length,) and tensor.dtype == dtype, f"its tensor {name!r} has another shape or type")
        must(np.isfinite(tensor).all(), f"its tensor {name!r} is not finite")
        must(not name.endswith("std") or bool((tensor > 0).all()), "a sigma is not positive")
        must(not name.endswith(("var", "rows")) or bool((tensor >= 0).all()), "a variance is negative")


def exact(what: str, value: Any) -> Any:
    """A label, or the name of a feature, if it comes back from JSON as it was; else `ValueError`."""
    plain = value.item() if isinstance(value, np.generic) else value
    if type(plain) in (str, bool, int) or (type(plain) is float and isfinite(plain)):
        return plain
    raise ValueError(
        f"the {what} {value!r} cannot be saved: give it a word or a finite number for a name, or pickle the model"
    )


def _plain(name: str, value: Any) -> Any:
    """A parameter as JSON can hold it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(name, part) for part in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError(
        f"{name} must be a number to be saved, got {value!r}: set_params({name}=...) first, or pickle the model"
    )
