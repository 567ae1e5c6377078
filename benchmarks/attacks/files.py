"""Files of models: damaged, made up, and written by processes that are killed."""

import json
import os
import random as python_random
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.attacks.attack import Tries
from safetensors.numpy import load as tensors_of
from safetensors.numpy import save as as_bytes

import mesu
from mesu.disk import digest_of
from mesu.lab.runs.locks import end_with
from mesu.online.files import Unreadable

LONGEST = 0.05  # seconds until a process that saves is killed
HUGE = (10**9, 10**18, 10**400, -1, 0, 1e300, -1e300, 0.5, "word", None, [], [1], {}, True)


def damaged(random: np.random.Generator, folder: Path) -> Tries:
    """Bytes flipped, cut, added, moved and blanked: refused, or read as what was saved."""
    path, (X, models) = folder / "model", _models(random)
    saved = []
    for model in models:
        model.save(path)
        saved.append((path.read_bytes(), model.predict(X).tolist()))
    while True:
        whole, expected = saved[int(random.integers(len(saved)))]
        path.write_bytes(_mutated(whole, random))
        yield _refused_or(lambda model, expected=expected: model.predict(X).tolist() == expected, path)


def made_up(random: np.random.Generator, folder: Path) -> Tries:
    """Numbers in the header replaced by others, with digests that are right: refused, or a model whose answers are numbers."""
    path, (X, models) = folder / "model", _models(random)
    models[0].save(path)
    whole = path.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header, tensors = json.loads(whole[8 : 8 + length])["__metadata__"], tensors_of(whole)
    while True:
        description = json.loads(header["description"])
        inside = description["settings"] if random.random() < 0.5 else description
        inside[sorted(inside)[int(random.integers(len(inside)))]] = HUGE[int(random.integers(len(HUGE)))]
        text = json.dumps(description)
        forged = {**header, "description": text, "sha256": digest_of(text, tensors)}
        forged["sha256 with mesu"] = digest_of(forged["sha256"], forged["mesu"])
        path.write_bytes(as_bytes(tensors, metadata=forged))
        yield _refused_or(lambda model: bool(np.isfinite(model.predict_proba(X[:2])).all()), path)


def killed_saves(random: np.random.Generator, folder: Path) -> Tries:
    """Two processes, each of which believes to be number 1, save to one file until they are killed: one of theirs is there."""
    path, (X, models) = folder / "model", _models(random)
    answers = [model.predict(X).tolist() for model in models]
    models[0].save(path)
    while True:
        children = [_forked(lambda mine=model: _save_for_ever(mine, path)) for model in models]
        end, whole = time.monotonic() + float(random.uniform(0, LONGEST)), True
        while time.monotonic() < end:
            whole &= mesu.load(path).predict(X).tolist() in answers  # readers never see half of one
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        whole &= mesu.load(path).predict(X).tolist() in answers
        models[0].save(path)
        clean = list(folder.iterdir()) == [path]
        yield None if whole and clean else "a file of a killed process stays" if whole else "half a file"


def _models(random: np.random.Generator) -> tuple[np.ndarray, list[Any]]:
    """Rows, and two models whose predictions of them differ."""
    X = random.normal(size=(40, 4))
    kinds: list[Any] = [mesu.MESUClassifier, mesu.MESURegressor]
    return X, [kind((6,), random_state=0, predict_samples=4).partial_fit(X, np.arange(40) % 3) for kind in kinds]


def _mutated(whole: bytes, random: np.random.Generator) -> bytes:
    """The bytes with one kind of damage; more often in the header than its size asks for."""
    data = bytearray(whole)
    end = len(data) if random.random() < 0.5 else 4096
    at, length = int(random.integers(min(end, len(data)))), int(2 ** random.uniform(0, 12))
    kind = int(random.integers(6))
    if kind == 0:
        data[at] ^= 1 << int(random.integers(8))
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        del data[at : at + length]
    elif kind == 3:
        data[at:at] = random.bytes(length)
    elif kind == 4:
        data[at : at + length] = bytes(len(data[at : at + length]))
    else:
        data[:8] = struct.pack("<Q", int(2 ** random.uniform(0, 63)))
    return bytes(data)


def _refused_or(right: Callable[[Any], bool], path: Path) -> str | None:
    try:
        model = mesu.load(path)
    except Unreadable:
        return None
    except BaseException as error:  # of any kind: it is the loss
        return f"{type(error).__name__} instead of a refusal"
    return None if right(model) else "another model was read"


def _save_for_ever(model: Any, path: Path) -> None:
    end_with(os.getppid())
    os.getpid = lambda: 1
    python_random.seed(0)  # as two containers that start alike
    while True:
        model.save(path)


def _forked(task: Callable[[], None]) -> int:
    """The number of a process that does something; it never comes back."""
    child = os.fork()
    if child:
        return child
    try:
        task()
    finally:
        os._exit(1)
