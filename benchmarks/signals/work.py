"""What a model says of every row of a stream before it learns it, and the rows at which each detector raises an alarm."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.signals.streams import OWN, Stream, stream
from river import drift

import mesu
from mesu.online.alarm import signals_of
from mesu.river import EpistemicDrift

CALM, BEFORE, AFTER, AFTER_SLOW = 5_000, (400, 2_000), 1_000, 2_200  # rows
CHUNK = 5  # rows that are predicted, and then learned, at once
SOON = 200  # rows after a change in which an alarm counts as found
# One row each: surprise, epistemic uncertainty, error
Said = np.ndarray

# a detector, and what it takes of each row
DETECTORS: dict[str, tuple[Callable[[], Any], Callable[[Said], Any]]] = {
    "DriftAlarm on signals": (mesu.DriftAlarm, lambda said: said[:2]),
    "DriftAlarm on errors": (mesu.DriftAlarm, lambda said: said[2]),
    "EpistemicDrift": (EpistemicDrift, lambda said: said[1]),
    "ADWIN on errors": (drift.ADWIN, lambda said: said[2]),
    "ADWIN on surprise": (drift.ADWIN, lambda said: min(said[0], 10.0)),
    "DDM on errors": (drift.binary.DDM, lambda said: bool(said[2])),
    "Page-Hinkley on errors": (drift.PageHinkley, lambda said: said[2]),
}


def runs(source: str) -> list[tuple[str, bool]]:
    """What can happen to a source: the kind of a change, and whether it is slow."""
    own = ("function",) if source in OWN else ()
    return [("calm", False), *((kind, slow) for kind in ("inputs", "labels", *own) for slow in (False, True))]


def made(source: str, kind: str, slow: bool, seed: int) -> Stream:
    """The stream of a run; where it changes depends on the seed alone."""
    if kind == "calm":
        return stream(source, kind, slow, CALM, 0, seed)
    at = int(np.random.default_rng([seed, 99]).integers(*BEFORE))
    return stream(source, kind, slow, at + (AFTER_SLOW if slow else AFTER), at, seed)


def said(rows: Stream, seed: int) -> Said:
    """Every row's signals before it is learned; NaN for the first rows, of which nothing can be said."""
    model, found = mesu.MESUClassifier(random_state=seed), np.full((len(rows.y), 3), np.nan)
    for start in range(0, len(rows.y), CHUNK):
        part = slice(start, start + CHUNK)
        X, y = rows.X[part], rows.y[part]
        if start:
            labels, answer = model._online.snapshot.labels, model._online.snapshot.predict(X)
            numbers = np.array([labels.index(label) if label in labels else -1 for label in y.tolist()])
            found[part] = np.stack([*signals_of(answer, numbers), answer.labels != numbers], 1)
        model.partial_fit(X, y)
    return found


def cached(cache: Path | None, source: str, kind: str, slow: bool, seed: int) -> tuple[Said, tuple[int, int] | None]:
    """The signals of a run and the rows of its change, from a file where there is one."""
    rows = made(source, kind, slow, seed)
    file = cache and cache / f"{source}-{kind}-{'slow' if slow else 'fast'}-{seed}.npy"
    if file and file.exists():
        return np.load(file), rows.change
    found = said(rows, seed)
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, found)
    return found, rows.change


def alarms(name: str, rows: Said) -> list[int]:
    """The rows at which a detector with its default settings raises an alarm."""
    make, takes = DETECTORS[name]
    detector, raised = make(), []
    for number, row in enumerate(rows[CHUNK:], CHUNK):
        detector.update(takes(row))
        if detector.drift_detected:
            raised.append(number)
    return raised
