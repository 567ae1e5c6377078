"""Threads and forks that meet inside a model, and caches of compiled code that are missing, full or damaged."""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.attacks.attack import Tries

import mesu
from mesu import river

THREADS, ROWS = 4, 10
SMALL: dict[str, Any] = {"hidden": (), "predict_samples": 2}
HANGS = 60  # seconds after which a forked child counts as hanging
FULL = 1000  # bytes that a file may have where the disk is full
SOURCE = Path(mesu.__file__).parents[1]
LEARN = """
import hashlib
import numpy as np, torch
torch.set_num_threads(1)
import mesu
random = np.random.default_rng(0)
X, y = random.normal(size=(300, 6)), random.integers(0, 3, 300)
model = mesu.MESUClassifier(hidden=(20,), random_state=0).partial_fit(X, y)
weights = model._online.snapshot.weights
print(hashlib.sha256(weights.mean.tobytes() + weights.std.tobytes() + model.predict_proba(X).tobytes()).hexdigest())
"""


def threads(random: np.random.Generator, _: Path) -> Tries:
    """Four threads learn rows with new features and classes while another predicts: no error, and every row is counted."""
    while True:
        model: Any = river.MESUClassifier(seed=int(random.integers(1000)), **SMALL)
        over, before = threading.Event(), sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            learning = [lambda who=who, model=model: _learn(model, who) for who in range(THREADS)]
            errors = _together([*learning, lambda model=model, over=over: _read(model, over)], over)
        finally:
            sys.setswitchinterval(before)
        whole = model._online is not None and model._online.snapshot.rows == THREADS * ROWS
        yield errors[0] if errors else None if whole else "rows are lost"


def _learn(model: Any, who: int) -> None:
    for i in range(ROWS):
        model.learn_one({"all": float(i), f"{who} {i // 3}": 1.0}, f"{who} {i // 4}")


def _read(model: Any, over: threading.Event) -> None:
    while not over.is_set():
        model.predict_proba_one({"all": 1.0})


def _together(tasks: list[Callable[[], None]], over: threading.Event) -> list[str]:
    """Do these in a thread each, the last one until all others are done. What went wrong."""
    errors: list[str] = []

    def guarded(task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as error:  # of any kind: it is the loss
            errors.append(f"{type(error).__name__} in a thread")

    running = [threading.Thread(target=guarded, args=(task,)) for task in tasks]
    for thread in running:
        thread.start()
    for thread in running[:-1]:
        thread.join()
    over.set()
    running[-1].join()
    return errors


def forks(random: np.random.Generator, folder: Path) -> Tries:
    """Processes forked while threads learn and save: each child learns, saves, loads and predicts."""
    X, y = random.normal(size=(300, 6)), np.arange(300) % 3
    model = mesu.MESUClassifier((100,), predict_samples=2, random_state=0).partial_fit(X, y)
    over = threading.Event()

    def learn() -> None:
        while not over.is_set():
            model.partial_fit(X, y)

    def save() -> None:
        while not over.is_set():
            model.save(folder / "parent")

    busy = [threading.Thread(target=task) for task in (learn, save)]
    for thread in busy:
        thread.start()
    try:
        while True:
            yield _in_a_child(lambda: _use(model, X, y, folder / "child"))
    finally:
        over.set()
        for thread in busy:
            thread.join()


def _use(model: Any, X: np.ndarray, y: np.ndarray, path: Path) -> None:
    model.partial_fit(X, y)
    model.save(path)
    assert mesu.load(path).predict(X).tolist() == model.predict(X).tolist()


def _in_a_child(task: Callable[[], None]) -> str | None:
    child = os.fork()
    if child == 0:
        signal.alarm(HANGS)
        try:
            task()
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return None if code == 0 else "a child hangs" if code == -signal.SIGALRM else "a child fails"


def caches(random: np.random.Generator, folder: Path) -> Tries:
    """New processes with caches in every state: each gets the same weights, bit for bit."""
    warm = folder / "warm"
    expected = _learned(warm)  # this one compiles
    files = sorted(warm.iterdir())
    while True:
        yield _same(expected, _learned(warm))
        for damage in (
            lambda whole: b"",
            lambda whole: whole[: len(whole) // 2],
            lambda whole: _flipped(whole, random),
        ):
            path = files[int(random.integers(len(files)))]
            path.write_bytes(damage(path.read_bytes()))
            yield _same(expected, _learned(warm))
        files[int(random.integers(len(files)))].unlink()
        yield _same(expected, _learned(warm))
        yield _same(expected, _learned(Path("/dev/null/none")))
        yield _same(expected, _learned(folder / "full", FULL))


def _flipped(whole: bytes, random: np.random.Generator) -> bytes:
    data = bytearray(whole)
    data[int(random.integers(len(data)))] ^= 1 << int(random.integers(8))
    return bytes(data)


def _learned(cache: Path, largest: int | None = None) -> str:
    """What a new process learns with this folder as its cache; files may have so many bytes."""
    nowhere = "/dev/null/none"
    known = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "NUMBA_CACHE_DIR": str(cache)}

    def limit() -> None:
        if largest is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))

    done = subprocess.run(
        [sys.executable, "-c", LEARN],
        env={**known, "HOME": nowhere, "XDG_CACHE_HOME": nowhere},
        capture_output=True,
        text=True,
        preexec_fn=limit,
    )
    return done.stdout.strip() if done.returncode == 0 else json.dumps(done.stderr.splitlines()[-1:])


def _same(expected: str, found: str) -> str | None:
    return None if found == expected else "other weights" if len(found) == len(expected) else found
