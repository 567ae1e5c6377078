"""A model in one file: safetensors, with a header that says what it is and a checksum of everything in it.

    format        "mesu estimator"
    version       "1"
    description   JSON: class, parameters, settings, labels, names of the features, counts; `carried` if there is something
    sha256        of the description and of every tensor's name, type, shape and bytes
    mesu          the version of mesu that saved it, and `sha256 with mesu` that of both; the first files do not have them

Some parts of a snapshot have other names in the file: those that the first version of the format gave them.

    scoring_weights     judge.mean, judge.std           target_scale      frame
    recent_epistemic    usual                           allow_missing     gaps
    recent_errors       misses                          recent_rows       latest

Loading a file never runs code, and the loaded model continues as if it had never stopped, bit for bit.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import fields
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as as_bytes

from mesu.disk import digest_of, must, replacing
from mesu.engine.predict import Weights, layer_edges
from mesu.online.carried import carriable
from mesu.online.network import drawn_weights
from mesu.online.outliers import WIDTH, are_valid, open_watches
from mesu.online.scaling import Columns, Scale
from mesu.online.settings import FIRST_VERSION, SHORT_BLOCK, Settings
from mesu.online.snapshot import ASSUMED_ERRORS, WINDOW, Snapshot
from mesu.version import __version__

FORMAT, VERSION = "mesu estimator", "1"
MOST_DRAWS = 1_000_000  # a file that asks for more was made up: it would take any amount of memory
WATCH = "inputs.watch"  # not in the files of earlier versions
FURTHEST = 1e15  # from 1, of the scales of weights: single precision does not hold the squares of more
CLASSES = ("MESUClassifier", "MESURegressor")
LIMITS = ("max_features", "max_classes")  # parameters that are written only if they are given
ADDED = ("estimator", "narrowing")  # settings that the first files do not have
RIVER = "river."  # goes before the names of River's models


class Unreadable(ValueError):
    """A file that is not a model, or is damaged."""


def save(model: Any, path: str | os.PathLike, carry: Mapping[str, Any] | None = None) -> None:
    """Write a model that has learned to a file. If something goes wrong, an older file of that name stays as it was.

    Args:
        model: The model.
        path: The file.
        carry: What the file holds besides; `mesu.load(path).carried` gives it back.

    Raises:
        ValueError: if a parameter, a label, the name of a feature or what is carried cannot be written down, or a parameter is
            no longer the one that the model began with.
        FileNotFoundError: if the folder does not exist.
        IsADirectoryError: if the path is a folder.
    """
    data = packed(model, carry)
    with replacing(Path(path)) as aside:
        aside.write_bytes(data)


def packed(model: Any, carry: Mapping[str, Any] | None = None) -> bytes:
    """The content of a model's file."""
    if "_saved_as" not in vars(type(model)):  # a subclass, which `load` would not find
        raise ValueError(f"only {' and '.join(CLASSES)} can be saved, got {type(model).__name__}: pickle it instead")
    now, parameters, names = model._kept()
    description = json.dumps(
        {
            "class": model._saved_as,
            "parameters": {
                name: _plain(name, value)
                for name, value in parameters.items()
                if (name not in FIRST_VERSION or value != FIRST_VERSION[name])
                and (name not in LIMITS or value is not None)
            },
            **described(now),
            "feature_names": None if names is None else [exact("feature", name) for name in names],
            **({} if carry is None else {"carried": carriable(carry)}),
        }
    )
    tensors = tensors_of(now)
    whole = digest_of(description, tensors)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "description": description,
        "sha256": whole,
        "mesu": __version__,
        "sha256 with mesu": digest_of(whole, __version__),
    }
    return as_bytes(tensors, metadata=header)


def tensors_of(now: Snapshot) -> dict[str, np.ndarray]:
    """The arrays of a snapshot by their names in the file."""
    return {
        "mean": now.weights.mean,
        "std": now.weights.std,
        "judge.mean": now.scoring_weights.mean,
        "judge.std": now.scoring_weights.std,
        **{f"inputs.{name}": getattr(now.inputs, name) for name in Scale._fields},
        **({} if _has_no_watches(now) else {WATCH: now.inputs.watch.reshape(-1)}),
        **{f"targets.{name}": array for name, array in now.targets._asdict().items()},
        "usual": now.recent_epistemic,
        "misses": now.recent_errors,
        **({"latest": now.recent_rows.reshape(-1)} if now.settings.joint else {}),
    }


def _has_no_watches(now: Snapshot) -> bool:
    """Whether it is a model of an earlier version, whose files have no watches, without a new column."""
    return np.array_equal(now.inputs.watch, open_watches(len(now.inputs.watch)))


def described(now: Snapshot) -> dict[str, Any]:
    """Everything in a snapshot that is not an array, for the file's description."""
    return {
        "settings": settings_of(now.settings),
        "sizes": now.weights.sizes,
        "labels": [exact("label", label) for label in now.labels],
        "rows": now.rows,
        "updates": now.updates,
        "frame": now.target_scale,
        "noise_std": now.noise_std,
        **({"noise_since": now.noise_since, "reported": now.reported} if now.settings.joint else {}),
    }


def settings_of(settings: Settings) -> dict[str, Any]:
    """The settings. Those that the first version did not have are left out where they have the value that it used."""
    values = {field.name: (getattr(settings, field.name), field.default) for field in fields(settings)}
    return {
        {"allow_missing": "gaps"}.get(name, name): value
        for name, (value, first) in values.items()
        if name not in ADDED or value != first
    }


def snapshot_of(description: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Snapshot:
    """The snapshot in a file.

    Raises:
        ValueError: saying where the file contradicts itself.
    """
    settings, sizes, updates = shape_of(description)
    labels = tuple(description["labels"])
    rows, noise_std = description["rows"], float(description["noise_std"])
    must(len(set(labels)) == len(labels) == (0 if settings.regression else sizes[-1]), "its outputs have other labels")
    must(sizes[-1] == 1 or not settings.regression, "it has several outputs")
    must(len({type(label) is str for label in labels}) < 2, "its labels are words and numbers")
    must(
        all(type(n) in (str, bool, int) or (type(n) is float and isfinite(n)) for n in labels),
        "its labels are not valid",
    )
    must(type(rows) is int and 0 < rows <= updates, "its row counts are not valid")
    centre, spread = map(float, description["frame"])
    must(_has_square(noise_std), "its noise is not positive, or beyond all bounds")
    noise_since, recent = description.get("noise_since", 0), tensors.get("latest", np.zeros(0))
    aleatoric, factor = map(float, description.get("reported", (1, 1)))
    must(type(noise_since) is int and 0 <= noise_since <= updates, "its row counts are not valid")
    must(_has_square(aleatoric) and 0 < factor <= 1, "its noise is not positive, or beyond all bounds")
    must(settings.joint or (recent.size == 0 == noise_since), "it has rows of another kind of model")
    must(recent.ndim == 1 and recent.size % 3 == 0 and recent.size // 3 <= SHORT_BLOCK, "its last rows are not valid")
    must(isfinite(centre) and _has_square(spread), "the scale of its targets is not valid")
    check_tensors(tensors, layout_of(sizes, updates, settings, recent.size, WATCH in tensors))
    watch = tensors[WATCH].reshape(-1, WIDTH) if WATCH in tensors else open_watches(sizes[0])
    must(are_valid(watch), "its columns are not valid")
    scoring = Weights(tensors["judge.mean"], tensors["judge.std"], sizes)
    snapshot = Snapshot(
        settings=settings,
        weights=Weights(tensors["mean"], tensors["std"], sizes),
        scoring_weights=scoring,
        drawn_for_scoring=drawn_weights(settings, scoring),
        inputs=Columns(tensors["inputs.rows"], tensors["inputs.mean"], tensors["inputs.var"], watch),
        targets=Scale(*(tensors[f"targets.{name}"] for name in Scale._fields)),
        target_scale=(centre, spread),
        labels=labels,
        rows=rows,
        updates=updates,
        recent_epistemic=tensors["usual"],
        recent_errors=tensors["misses"],
        noise_std=noise_std,
        noise_since=noise_since,
        reported=(aleatoric, factor),
        recent_rows=recent.reshape(-1, 3),
    )
    return snapshot.copied()


def shape_of(description: Mapping[str, Any]) -> tuple[Settings, tuple[int, ...], int]:
    """The settings in a file, the sizes of the layers, and the number of updates: what the lengths of its tensors follow from.

    Raises:
        ValueError: saying which of them is not valid.
    """
    given = dict(description["settings"])
    hidden, allow_missing = tuple(given.pop("hidden")), given.pop("gaps")
    settings = Settings(hidden=hidden, allow_missing=allow_missing, **given)
    sizes, updates = tuple(description["sizes"]), description["updates"]
    must(max(settings.samples, settings.predict_samples) <= MOST_DRAWS, "its numbers of draws are too large")
    prior = 1.0 if isinstance(settings.prior_std, str) else settings.prior_std
    numbers = (settings.init_scale, settings.narrowing, prior)
    must(all(1 / FURTHEST <= n <= FURTHEST for n in numbers), "the scale of its weights is not valid")
    must(all(type(n) is int and n > 0 for n in sizes), "the sizes of its layers are not valid")
    must(sizes[1:-1] == settings.hidden, "its sizes and its settings differ")
    must(type(updates) is int and 0 < updates < 2**62, "its row counts are not valid")
    return settings, sizes, updates


def layout_of(
    sizes: tuple[int, ...], updates: int, settings: Settings, recent: int = 0, watched: bool = True
) -> dict[str, tuple[int, type]]:
    """Length and type of each tensor in the file of a model with layers of these sizes."""
    weights = layer_edges(sizes)[-1]
    return {
        **dict.fromkeys(("mean", "std", "judge.mean", "judge.std"), (weights, settings.dtype)),
        **{f"inputs.{name}": (sizes[0], np.float64) for name in Scale._fields},
        **({WATCH: (sizes[0] * WIDTH, np.float64)} if watched else {}),
        **{f"targets.{name}": (1, np.float64) for name in Scale._fields},
        "usual": (min(updates, WINDOW), np.float64),
        "misses": (min(updates + ASSUMED_ERRORS, WINDOW) if settings.regression else 0, np.float64),
        **({"latest": (recent, np.float64)} if settings.joint else {}),
    }


def check_tensors(tensors: Mapping[str, np.ndarray], layout: Mapping[str, tuple[int, type]]) -> None:
    """Refuse tensors that do not have this layout, or whose values are not valid."""
    must(tensors.keys() == layout.keys(), "its tensors have other names")
    for name, (length, dtype) in layout.items():
        tensor = tensors[name]
        must(tensor.shape == (length,) and tensor.dtype == dtype, f"its tensor {name!r} has another shape or type")
        must(np.isfinite(tensor).all(), f"its tensor {name!r} is not finite")
        must(not name.endswith("std") or bool((tensor > 0).all()), "a sigma is not positive")
        must(name != "misses" or bool((tensor >= 0).all()), "a squared error is negative")
        must(not name.endswith(("var", "rows")) or bool((tensor >= 0).all()), "a variance is negative")


def _has_square(number: float) -> bool:
    """Whether a number is positive, and so is its square, and finite."""
    return number > 0 and 0 < number * number < inf


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
