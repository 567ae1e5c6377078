"""settings.json of a run: the experiment, its settings, the module that registers it, and the versions it ran with."""

import json
import platform
import types
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import llvmlite.binding
import numba
import numpy as np
import torch

from mesu.disk import digest_of, replacing
from mesu.lab.experiments import experiments
from mesu.version import __version__

DECISIVE = ("mesu", "torch", "numpy", "numba", "machine", "processor")  # versions that the bits of a result depend on


def write_settings(path: Path, settings: Any) -> None:
    """Write the settings of a new run."""
    saved = {
        "experiment": settings.name,
        "module": experiments.origin(settings.name),
        "settings": asdict(settings),
        "versions": versions(),
    }
    saved["sha256"] = digest_of_settings(saved)
    with replacing(path) as aside:
        aside.write_text(json.dumps(saved, indent=2) + "\n")


def digest_of_settings(saved: dict[str, Any]) -> str:
    """SHA-256 of what a run is to do."""
    return digest_of(json.dumps([saved["experiment"], saved["settings"]], sort_keys=True))


def refuse_mixing(saved: dict[str, Any], folder: Path, begun: bool) -> None:
    """Refuse to go on with a run whose table would be of two kinds: with other settings, or another version or processor.

    Args:
        saved: What its settings.json holds. What it does not say, if an earlier version of mesu wrote it, is not compared.
        folder: The run's.
        begun: Whether something is left to do.

    Raises:
        ValueError: naming the first difference, and how to begin a new run.
    """
    new = f"`mesu run {saved['experiment']} --settings-file {folder / 'settings.json'}` begins a new run with these settings"
    if saved.get("sha256", digest_of_settings(saved)) != digest_of_settings(saved):
        raise ValueError(f"the settings in {folder} are not those that the run began with: {new}")
    here = versions()
    for name in DECISIVE if begun else ():
        before = saved["versions"].get(name, here[name])
        if before != here[name]:
            raise ValueError(
                f"{folder} began with {name} {str(before)!r}, and this is {name} {here[name]!r}, which may round otherwise, so "
                f"one table would hold numbers of both: {new}"
            )


def read_saved(path: Path) -> dict[str, Any]:
    """What a settings.json holds, whether or not its experiment is known.

    Raises:
        ValueError: if it cannot be read.
    """
    try:
        saved = json.loads(path.read_text())
        if not isinstance(saved, dict) or not isinstance(saved.get("settings"), dict):
            raise ValueError("it holds no settings")
        if not isinstance(saved.get("experiment"), str) or not saved["experiment"].isprintable():
            raise ValueError("it does not name its experiment")
        if not isinstance(saved.setdefault("versions", {}), dict):
            raise ValueError("it does not say with which versions it ran")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    return saved


def as_settings(saved: dict[str, Any], folder: Path) -> Any:
    """The settings that a settings.json holds.

    Raises:
        ValueError: if the experiment is not known here, or has other settings. The module that registered it is named
            and not imported: the folder may be somebody else's.
    """
    name = saved["experiment"]
    if name not in experiments:
        module = saved.get("module")
        known = isinstance(module, str) and all(word.isidentifier() for word in module.split("."))
        remedy = f"`mesu resume {folder} --import {module if known else 'MODULE'}`"
        raise ValueError(
            f"{folder} is a run of {name!r}, which is not an experiment of mesu: if you trust the module that registers "
            f"it, import it with {remedy}"
        )
    kind: Any = experiments[name]
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in saved["settings"].items()}
    values = {**getattr(kind, "defaults_before", {}), **values}
    types_of = get_type_hints(kind)
    try:
        settings = kind(**values)
        for name, value in values.items():
            if not _fits(value, types_of[name]):
                raise TypeError(f"{name} cannot be {value!r}")
    except TypeError as error:
        raise ValueError(f"the settings of {folder} do not fit this version: {error}") from error
    return settings


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that the numbers depend on."""
    return {
        "mesu": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "machine": platform.machine(),
        "processor": llvmlite.binding.get_host_cpu_name(),
    }


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value from a settings file is what a field is declared to be."""
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_fits(item, get_args(kind)[0]) for item in value)
    if get_origin(kind) in (Union, types.UnionType):
        return any(_fits(value, choice) for choice in get_args(kind))
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if not isinstance(kind, type):
        return True  # nothing is known about it
    if isinstance(value, bool):  # which Python takes for a number
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)
