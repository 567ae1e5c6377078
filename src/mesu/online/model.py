"""An online model: a perceptron under MESU that learns a stream, grows with it, and can be read from any thread meanwhile.

The result does not depend on how the stream is cut into calls. For every row, in this order:

1. If its class or one of its columns is new, the network grows.
2. The row is standardised by running means that already include it.
3. It is scored: predicted before it is learned, to keep track of how uncertain rows usually are and how noisy targets are.
   Scoring uses weights that are refreshed before rows 0, 1, 2, 4, ... 256 and then every 256, so that many rows are scored
   at once. For numbers it is every 32, and every 32 rows the model looks whether the targets have jumped.
4. It is learned, in the compiled engine.

The model at one moment is a `Snapshot`. `learn` builds the next one and puts it in place when all rows are learned. When a row
is refused, the old one stays, and the network is built anew from it.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from mesu.online.growth import numbered, with_inputs, with_labels
from mesu.online.locks import Lock
from mesu.online.network import Learner, copy_weights, make_learner
from mesu.online.scaling import columns_of_whole, follow, follow_columns, of_whole
from mesu.online.settings import BLOCK, Settings
from mesu.online.snapshot import Snapshot, check_width, first_snapshot
from mesu.online.targets import in_units, repaired, rescaled, scale_of, scaled


class OnlineModel:
    """A growing perceptron under MESU, from its first row on. One thread learns at a time; any number read.

    Rows are checked before they come here: the scikit-learn and River classes refuse values that are not finite.

    Args:
        settings: What it is made with.
        inputs: Columns of the first rows.
        snapshot: Continue from here instead of from the start.
    """

    def __init__(self, settings: Settings, inputs: int, snapshot: Snapshot | None = None) -> None:
        self._lock = Lock()
        self.snapshot = snapshot or first_snapshot(settings, inputs)
        self._working: Learner | None = None  # built from a snapshot when there is something to learn
        self.checked: list | None = None  # parameters of a user that were found to agree with the settings
        self._ahead = False  # whether the learner has weights that no snapshot has yet

    def learn(
        self,
        x: np.ndarray,
        y: np.ndarray,
        labels: Iterable = (),
        widths: Mapping[int, int] | None = None,
        counts: np.ndarray | None = None,
    ) -> None:
        """Learn rows in order: all of them, or none if one is refused.

        Args:
            x: Inputs ``[T, d]`` in double precision; NaN for what is missing, if the settings allow it.
            y: Labels ``[T]`` or real targets ``[T]``.
            labels: Classes that will come, if they are known; others are taken as they appear.
            widths: Where columns are new: from which row on how many of the columns count.
            counts: How many times the evidence of each row counts, if not once; positive.

        Raises:
            ValueError: naming what is wrong with the rows; nothing has changed then.
        """
        with self._changing() as now:
            widths = widths or {}
            check_width(x, max(widths.values()) if widths else now.weights.sizes[0])
            now, new_labels = self._grown(now, None, labels), {}
            if not now.settings.regression:
                y, new_labels = _numbered(now, y)
            if widths or new_labels:
                for start, end in pairwise(sorted({0, len(x), *widths, *new_labels})):
                    now = self._grown(now, widths.get(start), [new_labels[start]] if start in new_labels else [])
                    some = None if counts is None else counts[start:end]
                    now = self._learn(now, x[start:end, : now.weights.sizes[0]], y[start:end], some, fixed=False)
            else:
                now = self._learn(now, x, y, counts, fixed=False)
            self.snapshot = self._caught_up(now, len(x))

    def learn_set(
        self,
        x: np.ndarray,
        y: np.ndarray,
        passes: int,
        order: np.random.RandomState,
        counts: np.ndarray | None = None,
    ) -> None:
        """Learn a whole set at the start: standardise it as a whole and learn it `passes` times in random order.

        Each pass counts as new evidence, which a small set needs. The memory still counts examples, however many passes.
        """
        with self._changing() as now:
            check_width(x, now.weights.sizes[0])
            memory = now.settings.memory
            now = now.sized_by(x)
            if now.settings.standardise:
                now = replace(now, inputs=columns_of_whole(x, memory))
            if now.settings.regression:
                targets = of_whole(y[:, None], memory)
                now = replace(now, targets=targets, target_scale=scale_of(targets))
            else:
                now = self._grown(now, None, np.unique(y).tolist())
                y, _ = numbered(now.labels, y)
            self._working = self._learner(now).remembering(memory * passes)
            for _ in range(passes):
                shuffled = order.permutation(len(x))
                theirs = None if counts is None else counts[shuffled]
                now = self._learn(now, x[shuffled], y[shuffled], theirs, fixed=True)
            self._working = self._learner(now).remembering(memory)
            self.snapshot = self._caught_up(now, len(x))

    def set_predict_samples(self, predict_samples: int) -> None:
        """Average predictions over this many draws from now on."""
        if predict_samples == self.snapshot.settings.predict_samples:
            return
        with self._lock.held():
            self.snapshot = self.snapshot.with_predict_samples(predict_samples)

    @contextmanager
    def _changing(self) -> Iterator[Snapshot]:
        """The snapshot to continue from, for one thread at a time. After an error the learner is built anew from it."""
        with self._lock.held() as lost:
            if lost:
                self._working, self._ahead = None, False
            try:
                yield self.snapshot
            except BaseException:
                self._working, self._ahead = None, False
                raise

    def _learner(self, now: Snapshot) -> Learner:
        """What learns, and the weights that it changes."""
        if self._working is None:
            self._working = make_learner(now.settings, now.weights, now.updates, now.noise_std)
        return self._working

    def _caught_up(self, now: Snapshot, rows: int = 0) -> Snapshot:
        """The snapshot after so many more rows, with a copy of the weights if they have changed since the last copy."""
        if not self._ahead:
            return now.changed(rows=now.rows + rows) if rows else now
        self._ahead = False
        return now.changed(rows=now.rows + rows, weights=copy_weights(self._learner(now).live))

    def _grown(self, now: Snapshot, inputs: int | None, labels: Iterable) -> Snapshot:
        """The snapshot with these columns and classes. If it had fewer, the learner is built anew before it learns."""
        labels = tuple(labels)
        if inputs is None and not labels:
            return now
        now = self._caught_up(now)
        grown = with_labels(now if inputs is None else with_inputs(now, inputs), labels)
        if grown.weights is not now.weights:
            self._working = None
        return grown

    def _learn(self, now: Snapshot, x: np.ndarray, y: np.ndarray, counts: np.ndarray | None, fixed: bool) -> Snapshot:
        """Learn rows whose classes are all known; `fixed` leaves the running means as they are."""
        settings = now.settings
        memory, regression = settings.memory, settings.regression
        learner, block, at = self._learner(now), settings.block, 0
        while at < len(x):
            piece = slice(at, min(len(x), at + refresh_after(now.updates, block) - now.updates))
            rows, target = x[piece], y[piece]
            if is_refresh(now.updates, block):
                if regression and not fixed:
                    now = repaired(now, learner.live) or rescaled(now, learner.live, target[:1])
                    self._ahead = True
                now = self._caught_up(now)
                now = now.with_scoring_weights(now.weights)
                if regression:
                    learner = self._working = learner.with_noise(now.noise_std)
            found: dict[str, Any] = {}
            if fixed or not settings.standardise:
                now = now if fixed else now.sized_by(rows)
                z = now.inputs_for(rows)
            else:
                found["inputs"], z = follow_columns(now.inputs, rows, memory, settings.dtype)
            if regression:
                if not fixed:
                    found["targets"], _ = follow(now.targets, target[:, None], memory)
                found |= now.scores(z, in_units(now, target))
                target = scaled(now, target).astype(settings.dtype)
            else:
                found |= now.scores(z, target)
            learner.learn(z, target, None if counts is None else counts[piece])
            self._ahead = True
            now = now.changed(**found, updates=now.updates + len(z))
            at += len(z)
        return now

    def rest(self) -> None:
        """Give back the memory that learning takes; the next row to learn builds it anew, which takes milliseconds."""
        with self._lock.held():
            self._working, self._ahead = None, False

    def __getstate__(self) -> dict[str, Any]:
        return {"snapshot": self.snapshot}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        snapshot = kept["snapshot"].copied()
        self.__init__(snapshot.settings, snapshot.weights.sizes[0], snapshot)


def _numbered(now: Snapshot, y: np.ndarray) -> tuple[np.ndarray, dict[int, Any]]:
    """As `numbered`, sooner where all classes are known."""
    try:
        return np.array([now.numbers[label] for label in y.tolist()], np.int64), {}
    except KeyError:
        return numbered(now.labels, y)


def refresh_after(updates: int, block: int = BLOCK) -> int:
    """The next update before which the scoring weights are refreshed: 1, 2, 4, ... and then every `block`."""
    return 1 << updates.bit_length() if updates < block else (updates // block + 1) * block


def is_refresh(updates: int, block: int = BLOCK) -> bool:
    """Whether the scoring weights are refreshed before this update."""
    return updates == 0 or refresh_after(updates - 1, block) == updates
