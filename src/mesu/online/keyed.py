"""One model a key (a customer, a machine, a sensor): some thousands in memory, the rest in one file, a base for new keys.

The file is an SQLite database. All that happens between two saves is one transaction of it: models that leave memory are
written into it, and `save` writes those in memory, the base and what is carried, and commits. So a crash at any moment leaves
all models, and the position in the stream, as the last save left them. Each model is there as the bytes of a file of its own
(`mesu.online.files`).

A key starts from the base, taken as worth `trust` rows: every weight's precision p becomes pp + s (p - pp), with the prior's
pp, and s the share of the base's rows that `trust` is. After `share_after` rows of its own, a key teaches the base, once: as
soon as `together` keys that began with the same base have come so far, they are merged (`mesu.merge`, with the average of their
means). When that happens follows from the rows and their order, not from how they are cut into calls.
"""

import json
import os
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from mesu.engine.predict import Weights
from mesu.memory import effective_window
from mesu.online.carried import carriable
from mesu.online.files import Unreadable, exact, packed
from mesu.online.growth import LimitReached
from mesu.online.loading import unpacked
from mesu.online.locks import Lock
from mesu.online.merging import merge_models, prior_std
from mesu.online.snapshot import ASSUMED_ERRORS, Snapshot
from mesu.rules.checks import positive, whole

FORMAT = "mesu keyed 1"
AWAKE = (
    32  # models that keep what they learn with, which takes milliseconds to build and more memory than their weights
)
TABLES = """
    CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value BLOB);
    CREATE TABLE IF NOT EXISTS models (key TEXT PRIMARY KEY, generation INTEGER, rows INTEGER, model BLOB) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS teachers (number INTEGER PRIMARY KEY, model BLOB);
"""


@dataclass
class _Entry:
    """A key's model in memory."""

    model: Any
    generation: int  # of the base that it began with
    rows: int  # its own
    written: bool = True  # whether the file has it as it is


class Keyed:
    """A model for each key, from a shared base; memory is bounded, and a crash loses only the rows since the last save.

    Args:
        base: What keys start from: a model for scikit-learn or River that has learned its first rows. Ignored where the file is
            there already, whose own base has learned since.
        path: The file of all models, an SQLite database. Only one process may have it open.
        in_memory: How many models are kept in memory; of the others, the least recently used are written to the file.
        trust: A new key takes the base as if it were so many rows of its own.
        share_after: After so many rows, what a key has learned is merged into the base; None is never.
        together: So many keys are merged into the base at a time.

    Example:
        >>> import tempfile
        >>> base = mesu.MESURegressor(hidden=(4,), random_state=0).partial_fit([[0.0], [1.0]], [0.0, 1.0])
        >>> path = tempfile.mkdtemp() + "/machines.sqlite"
        >>> with mesu.Keyed(base, path) as machines:
        ...     _ = machines.partial_fit(["press", "lathe", "press"], [[0.0], [1.0], [2.0]], [5.0, 7.0, 6.0])
        ...     machines.save(carry={"offset": 3})
        >>> with mesu.Keyed(base, path) as machines:  # after a crash, say
        ...     len(machines), machines.carried
        (2, {'offset': 3})
    """

    def __init__(
        self,
        base: Any,
        path: str | os.PathLike,
        *,
        in_memory: int = 1000,
        trust: float = 100,
        share_after: int | None = 200,
        together: int = 32,
    ) -> None:
        self.path = Path(path)
        self.in_memory = whole("in_memory", in_memory)
        self.trust = positive("trust", trust)
        self.share_after = None if share_after is None else whole("share_after", share_after)
        self.together = whole("together", together)
        base._kept()  # says what is missing
        self._lock = Lock()
        self._models: OrderedDict[str, _Entry] = OrderedDict()  # the least recently used first
        self._awake: OrderedDict[str, None] = OrderedDict()
        self._file = _opened(self.path)
        self._unsaved = False  # whether the file has changes that no save has finished
        try:
            about = dict(self._file.execute("SELECT name, value FROM about"))
            if not about:
                self._generation, self._carried = 0, None
                self._base = _copied(base)
                self._teachers: list[Any] = []
                self._save(None)
            else:
                self._read(about)
        except BaseException:
            self._file.close()
            raise
        self._start = self._as_start()

    def _read(self, about: Mapping[str, Any]) -> None:
        if about.get("format") != FORMAT:
            raise Unreadable(f"{self.path} is a database that mesu.Keyed did not write")
        self._generation, self._carried = int(about["generation"]), json.loads(about["carried"])
        self._base = unpacked(about["base"], f"the base in {self.path}")
        rows = self._file.execute("SELECT model FROM teachers ORDER BY number").fetchall()
        self._teachers = [unpacked(blob, f"a model in {self.path}") for (blob,) in rows]

    # -- River --------------------------------------------------------------------------------------------------------

    def learn_one(self, key: Any, x: Mapping[Any, Any], y: Any) -> None:
        """Let a key's model learn a row, for River's models. A row that is refused leaves everything as it was."""
        self._learn_rows([key], (), lambda model, at: model.learn_one(x, y))

    def predict_one(self, key: Any, x: Mapping[Any, Any]) -> Any:
        """What a key's model predicts of a row; the base's prediction for a key that has learned nothing."""
        with self._lock.held():
            return self._asked(_name(key)).predict_one(x)

    def predict_proba_one(self, key: Any, x: Mapping[Any, Any]) -> dict[Any, float]:
        """The probability of each class that the key's model knows."""
        with self._lock.held():
            return self._asked(_name(key)).predict_proba_one(x)

    def learn_many(self, keys: Sequence[Any], X: Sequence[Mapping[Any, Any]], y: Sequence[Any]) -> None:
        """Learn rows, dicts each, in order: all of them, or none if one is refused."""

        def learn(model: Any, at: np.ndarray) -> None:
            for i in at:
                model.learn_one(X[i], y[i])

        self._learn_rows(keys, (X, y), learn)

    def predict_many(self, keys: Sequence[Any], X: Sequence[Mapping[Any, Any]]) -> list[Any]:
        """What the models of these keys predict of their rows."""
        with self._lock.held():
            return [self._asked(_name(key)).predict_one(x) for key, x in zip(keys, X, strict=True)]

    # -- scikit-learn -------------------------------------------------------------------------------------------------

    def partial_fit(self, keys: Sequence[Any], X: Any, y: Any) -> Self:
        """Let the models of these keys learn their rows, in order, for scikit-learn's models: all rows, or none."""
        X, y = _array(X), np.asarray(y)
        self._learn_rows(keys, (X, y), lambda model, at: model.partial_fit(X[at], y[at]))
        return self

    def predict(self, keys: Sequence[Any], X: Any) -> np.ndarray:
        """What the models of these keys predict of their rows."""
        X, found = _array(X), None
        with self._lock.held():
            for name, at in _grouped(_names(keys, (X,))).items():
                part = self._asked(name).predict(X[at])
                found = np.empty(len(X), object) if found is None else found
                found[at] = part
        return np.array([]) if found is None else np.array(found.tolist())

    def predict_proba(self, keys: Sequence[Any], X: Any) -> list[dict[Any, float]]:
        """The probability of each class that the key's model knows, row by row: keys may know different classes."""
        X, found = _array(X), [{} for _ in keys]
        with self._lock.held():
            for name, at in _grouped(_names(keys, (X,))).items():
                model = self._asked(name)
                for i, probs in zip(at, model.predict_proba(X[at]), strict=True):
                    found[i] = dict(zip(model.classes_.tolist(), probs.tolist(), strict=True))
        return found

    # -- keys ---------------------------------------------------------------------------------------------------------

    def model(self, key: Any) -> Any:
        """A copy of a key's model, to look at or to save as a file of its own; the start of one for a new key."""
        with self._lock.held():
            return _copied(self._asked(_name(key)))

    @property
    def base(self) -> Any:
        """A copy of the base, with what it has learned from keys."""
        with self._lock.held():
            return _copied(self._base)

    def __len__(self) -> int:
        with self._lock.held():
            (stored,) = self._file.execute("SELECT count(*) FROM models").fetchone()
            return stored + sum(not self._stored(name) for name in self._models)

    def __contains__(self, key: Any) -> bool:
        with self._lock.held():
            return _name(key) in self._models or self._stored(_name(key))

    def __iter__(self) -> Iterator[Any]:
        with self._lock.held():
            names = {name for (name,) in self._file.execute("SELECT key FROM models")} | self._models.keys()
        return map(json.loads, sorted(names))

    # -- the file -----------------------------------------------------------------------------------------------------

    def save(self, carry: Mapping[str, Any] | None = None) -> None:
        """Write every change since the last save, and what is carried, in one step: after a crash, all of it is there or none.

        Args:
            carry: As for a model's `save`: the position in the stream, for example.
        """
        with self._lock.held():
            self._save(None if carry is None else carriable(carry))

    @property
    def carried(self) -> dict[str, Any] | None:
        """What the last save carried."""
        return self._carried

    def close(self) -> None:
        """Close the file. What was learned since the last save is dropped."""
        with self._lock.held():
            self._models.clear()
            self._awake.clear()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _save(self, carry: dict[str, Any] | None) -> None:
        self._begin()
        for name, entry in self._models.items():
            self._write(name, entry)
        about = {
            "format": FORMAT,
            "generation": self._generation,
            "base": packed(self._base),
            "carried": json.dumps(carry),
        }
        self._file.executemany("REPLACE INTO about VALUES (?, ?)", about.items())
        self._file.execute("DELETE FROM teachers")
        blobs = [(number, packed(model)) for number, model in enumerate(self._teachers)]
        self._file.executemany("INSERT INTO teachers VALUES (?, ?)", blobs)
        self._file.execute("COMMIT")
        self._carried, self._unsaved = carry, False

    def _begin(self) -> None:
        if self._file.in_transaction:
            return
        if self._unsaved:  # after an error of the disk, SQLite takes back all changes since the last save
            raise RuntimeError(
                f"{self.path} has lost what was learned since the last save, as on a full disk: open it again, and read on "
                "from what its `carried` says"
            )
        self._file.execute("BEGIN IMMEDIATE")
        self._unsaved = True

    def _write(self, name: str, entry: _Entry) -> None:
        if not entry.written:
            self._begin()
            row = (name, entry.generation, entry.rows, packed(entry.model))
            self._file.execute("REPLACE INTO models VALUES (?, ?, ?, ?)", row)
            entry.written = True

    def _stored(self, name: str) -> bool:
        return self._file.execute("SELECT 1 FROM models WHERE key = ?", (name,)).fetchone() is not None

    # -- models -------------------------------------------------------------------------------------------------------

    def _found(self, name: str) -> _Entry | None:
        """A key's model in memory, read from the file if it has to be; None for a new key."""
        if name not in self._models:
            row = self._file.execute("SELECT generation, rows, model FROM models WHERE key = ?", (name,)).fetchone()
            if row is None:
                return None
            model = unpacked(row[2], f"the model of {json.loads(name)!r} in {self.path}")
            self._models[name] = _Entry(model, row[0], row[1])
            self._make_room(name)
        self._models.move_to_end(name)
        return self._models[name]

    def _asked(self, name: str) -> Any:
        entry = self._found(name)
        return self._start if entry is None else entry.model

    def _make_room(self, newest: str) -> None:
        while len(self._models) > self.in_memory:
            name = next(iter(self._models))
            if name == newest:
                return
            self._write(name, self._models[name])
            del self._models[name]
            self._awake.pop(name, None)

    def _learn_rows(self, keys: Sequence[Any], columns: tuple, learn: Callable[[Any, np.ndarray], Any]) -> None:
        """Let `learn` teach each key's model its rows, given their numbers; all rows, or none."""
        names = _names(keys, columns)
        with self._lock.held(), self._all_or_none() as touch:
            for pieces, teachers in self._segments(names):
                ready: dict[str, Any] = {}
                for name, parts in pieces.items():
                    touch(name)
                    for part in filter(None, parts):
                        self._learn(name, np.array(part), learn)
                        if name in teachers and part is parts[0]:
                            ready[name] = _copied(self._models[name].model)
                self._teach([ready[name] for name in teachers])

    def _segments(self, names: Sequence[str]) -> Iterator[tuple[dict[str, list[list[int]]], list[str]]]:
        """Rows between two changes of the base: each key's, cut where it is to teach; and the keys that are, in order."""
        known: dict[str, tuple[int, int]] = {}
        generation, waiting = self._generation, len(self._teachers)
        pieces: dict[str, list[list[int]]] = {}
        teachers: list[str] = []
        for i, name in enumerate(names):
            began, rows = known.get(name) or self._history(name) or (generation, 0)
            known[name] = began, rows + 1
            pieces.setdefault(name, [[]])[-1].append(i)
            # a key that began with an earlier base knows nothing that could be merged into this one
            if rows + 1 == self.share_after and began == generation:
                teachers.append(name)
                pieces[name].append([])
                if waiting + len(teachers) >= self.together:
                    yield pieces, teachers
                    generation, waiting, pieces, teachers = generation + 1, 0, {}, []
        if pieces:
            yield pieces, teachers

    def _history(self, name: str) -> tuple[int, int] | None:
        """The generation and the rows of a key's model; None for a new key."""
        entry = self._models.get(name)
        if entry is not None:
            return entry.generation, entry.rows
        return self._file.execute("SELECT generation, rows FROM models WHERE key = ?", (name,)).fetchone()

    def _learn(self, name: str, rows: np.ndarray, learn: Callable[[Any, np.ndarray], Any]) -> None:
        entry = self._found(name) or _Entry(_copied(self._start), self._generation, 0)
        learn(entry.model, rows)
        entry.rows, entry.written = entry.rows + len(rows), False
        self._models[name], self._awake[name] = entry, None
        self._make_room(name)
        self._awake.move_to_end(name)
        while len(self._awake) > AWAKE:
            sleeper, _ = self._awake.popitem(last=False)
            self._models[sleeper].model._online.rest()

    def _teach(self, models: list[Any]) -> None:
        self._teachers += models
        if len(self._teachers) >= self.together:
            # together they may know more features or classes than a model may have: then this round teaches nothing
            with suppress(LimitReached):
                self._base, _ = merge_models(self._start, self._teachers, "average")
            self._teachers, self._generation = [], self._generation + 1
            self._start = self._as_start()

    def _as_start(self) -> Any:
        """What a new key begins with: the base, as if it had learned `trust` rows."""
        snapshot, parameters, names = self._base._kept()
        return type(self._base)._from_kept(worth(snapshot, self.trust), parameters, names)

    @contextmanager
    def _all_or_none(self) -> Iterator[Any]:
        """Put all models that were touched inside back as they were if something is refused."""
        before: dict[str, _Entry | None] = {}
        shared = self._base, self._start, self._teachers[:], self._generation

        def touch(name: str) -> None:
            if name in before:
                return
            entry = self._found(name)
            before[name] = None if entry is None else replace(entry, model=_copied(entry.model), written=False)

        try:
            yield touch
        except BaseException:
            self._base, self._start, self._teachers, self._generation = shared
            for name, entry in before.items():
                self._models.pop(name, None)
                self._awake.pop(name, None)
                if entry is None:
                    if self._stored(name):  # it was written to make room
                        self._begin()
                        self._file.execute("DELETE FROM models WHERE key = ?", (name,))
                else:
                    self._models[name] = entry
                    self._make_room(name)
            raise


def _array(X: Any) -> np.ndarray:
    """Rows as an array. The names of a frame's columns would be lost, and with them their order."""
    if hasattr(X, "columns"):
        raise TypeError(
            f"rows must be an array, got a {type(X).__name__}: put its columns in one order and give X.to_numpy()"
        )
    return np.asarray(X)


def worth(now: Snapshot, rows: float) -> Snapshot:
    """The snapshot as if what it knows came from so many rows, the last ones: the same means, with wider sigmas."""
    share = min(1.0, rows / effective_window(now.updates, now.settings.memory))
    prior = prior_std(now) ** -2.0
    std = (prior + share * (now.weights.std.astype(np.float64) ** -2.0 - prior)) ** -0.5
    weights = Weights(now.weights.mean, std.astype(now.settings.dtype), now.weights.sizes)
    updates = max(1, int(min(now.updates, rows)))
    now = replace(
        now,
        weights=weights,
        rows=min(now.rows, updates),
        updates=updates,
        recent_epistemic=now.recent_epistemic[-updates:],
        recent_errors=now.recent_errors[-updates - ASSUMED_ERRORS :],
        noise_since=max(0, updates - (now.updates - now.noise_since)),
    )
    return now.with_scoring_weights(weights)


def _copied(model: Any) -> Any:
    """A model that goes on from where another is; they share the snapshot, which nobody writes to."""
    return type(model)._from_kept(*model._kept())


def _name(key: Any) -> str:
    """A key as the file has it: 1 is not "1"."""
    return json.dumps(exact("key", key))


def _names(keys: Iterable[Any], columns: tuple) -> list[str]:
    """The names of the keys of some rows."""
    names = [_name(key) for key in keys]
    if any(len(column) != len(names) for column in columns):
        lengths = " and ".join(str(len(column)) for column in columns)
        raise ValueError(f"got {len(names)} keys for columns of {lengths} rows: there must be one for each")
    return names


def _grouped(names: Iterable[str]) -> dict[str, np.ndarray]:
    """The rows of each key, in their order."""
    found: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        found.setdefault(name, []).append(i)
    return {name: np.array(at) for name, at in found.items()}


def _opened(path: Path) -> sqlite3.Connection:
    """The database, made if it is not there.

    Raises:
        Unreadable: if it is another file.
        ValueError: if another process has it open.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist")
    file = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        file.execute("PRAGMA locking_mode = EXCLUSIVE")  # before the first access
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = FULL")
        file.executescript(TABLES)
    except sqlite3.DatabaseError as error:
        with suppress(sqlite3.Error):
            file.close()
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            raise ValueError(f"another process has {path} open: one at a time may learn") from error
        raise Unreadable(f"{path} is not a database of models ({error})") from error
    return file
