"""The River classes: rows are dicts whose features come and go, learned one at a time in the compiled engine.

Learning itself is in `mesu.online.model`; `river_rows` makes arrays of rows. A feature gets its column when it is first
seen; new ones of one row get theirs in the order of their names, so that the order within a row does not matter. A feature
that is missing from a row counts as its mean so far (as 0 without `standardise`), and the row does not change that mean.
Prediction never changes a model and ignores features that the model does not know.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from math import inf
from numbers import Integral
from typing import Any, Self

import numpy as np

from mesu.online.alarm import Signals, signals_of
from mesu.online.face import Face
from mesu.online.growth import check_count
from mesu.online.locks import lock_of
from mesu.online.model import OnlineModel
from mesu.online.needs_river import base, into_series, proba, to_native_frame, to_native_series
from mesu.online.river_rows import arranged, labels_of, number, table_of, targets_of
from mesu.online.row_reader import RowReader, are_plain
from mesu.online.settings import FIRST_VERSION, Settings, evidence
from mesu.online.snapshot import Snapshot
from mesu.posterior.results import Uncertainty
from mesu.rules.checks import whole

# A class of another type may be equal to one that is known, and yet be refused
PLAIN_LABELS = frozenset({str, int, bool})
AT_FIRST = inf  # every uncertainty before the first row: nothing is known, not even the classes


class StreamModel(Face, base.Estimator):
    """What the classifier and the regressor share."""

    _reader: RowReader | None = None  # of as many columns as were last asked for

    def __init__(
        self,
        hidden: int | Sequence[int] = (100,),
        memory: float = 100_000,
        prior_std: float | str | None = None,
        samples: int = 10,
        predict_samples: int = 64,
        standardise: bool = True,
        seed: int | None = None,
        init_scale: float | None = None,
        estimator: str | None = None,
        max_features: int | None = None,
        max_classes: int | None = None,
    ) -> None:
        self.hidden = hidden if isinstance(hidden, Integral) else tuple(hidden)  # type: ignore[arg-type]
        self.memory = memory
        self.prior_std = prior_std
        self.samples = samples
        self.predict_samples = predict_samples
        self.standardise = standardise
        self.seed = seed
        self.init_scale = init_scale
        self.estimator = estimator
        self.max_features = None if max_features is None else whole("max_features", max_features)
        self.max_classes = None if max_classes is None else whole("max_classes", max_classes)
        self._settings = self._asked(
            int(np.random.default_rng().integers(2**31)) if seed is None else seed, allow_missing=True
        )
        # Every feature's column. The dict is replaced, never changed, and before the snapshot with the new columns is in place:
        # a snapshot's columns are the first ones of it.
        self._columns: dict[Any, int] = {}
        self._online: OnlineModel | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_reader"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({**FIRST_VERSION, **state})

    def uncertainty_one(self, x: Mapping[Any, Any]) -> dict[str, float]:
        """How uncertain the prediction of a row is, and why: `total`, `aleatoric`, `epistemic`; nats, or variances.

        All are infinite before the first row. They are 0 for a classifier that has seen a single class.
        """
        snapshot = self._snapshot()
        if snapshot is None:
            return dict.fromkeys(Uncertainty._fields, AT_FIRST)
        uncertainty = self._predict_row(snapshot, x).uncertainty
        return {name: float(part[0]) for name, part in uncertainty._asdict().items()}

    def signals_one(self, x: Mapping[Any, Any], y: Any = None) -> Signals:
        """How much the label or target of a row surprises the model, and how much it doubts the row: for a `DriftAlarm`.

        Args:
            x: The row.
            y: Its label or target, before it is learned; None if it is not known, and the surprise is NaN then.
        """
        snapshot = self._snapshot()
        if snapshot is None:
            return Signals(AT_FIRST, AT_FIRST)
        if y is not None:
            known = y in snapshot.labels
            y = targets_of([y]) if self._regression else np.array([snapshot.labels.index(y) if known else -1])
        surprise, doubt = signals_of(self._predict_row(snapshot, x), y)
        return Signals(float(surprise[0]), float(doubt[0]))

    def _learned(self) -> Snapshot:
        if self._online is None:
            raise ValueError(f"this {type(self).__name__} has learned nothing yet: call learn_one first")
        return self._online.snapshot

    def _kept(self) -> tuple[Snapshot, dict[str, Any], list]:
        snapshot = self._learned()
        snapshot.settings.must_equal(self._given(snapshot.settings.seed), "begin a new model with it")
        return snapshot, self._get_params(), list(self._names(snapshot))

    @classmethod
    def _from_kept(cls, snapshot: Snapshot, parameters: dict[str, Any], names: list | None) -> Self:
        """The model that a file keeps."""
        model = cls(**{**FIRST_VERSION, **parameters})
        if model._given(snapshot.settings.seed) != snapshot.settings:
            raise ValueError("its parameters and its settings differ")
        if names is None:
            raise ValueError("its features have no names")
        model._settings, model._columns = snapshot.settings, {name: i for i, name in enumerate(names)}
        model._online = OnlineModel(snapshot.settings, len(names), snapshot)
        return model

    def _given(self, drawn: int) -> Settings:
        """The settings that the parameters ask for; `drawn` is the seed in place of one that is None."""
        return type(self)(**{**self._get_params(), "seed": drawn if self.seed is None else self.seed})._settings

    def _row(self, x: Mapping[Any, Any], width: int) -> np.ndarray:
        """A row in the order of the first `width` columns, which stay the same once a snapshot has them."""
        reader = self._reader
        if reader is None or len(reader.names) != width:
            reader = self._reader = RowReader(islice(self._columns, width))
        return reader.read(x)

    def _names(self, snapshot: Snapshot) -> Any:
        """The names of a snapshot's columns; another thread may have added more since."""
        return islice(self._columns, snapshot.weights.sizes[0])

    def _name_of(self, column: int) -> Any:
        return next(islice(self._columns, column, None))

    def _learn_one(self, x: Mapping[Any, Any], y: np.ndarray, w: float) -> None:
        counts = None if type(w) in (int, float) and w == 1 else evidence([w], 1, self._settings.memory)
        with lock_of(self).held() as lost:
            if lost:
                self._restore_columns()
            if counts is not None and not counts[0]:
                for name, value in x.items():
                    number(name, value)
                return
            if self._online is not None and x.keys() <= self._columns.keys():
                self._learn_rows(self._online, self._row(x, len(self._columns)), y, counts=counts)
                return
            row = np.array([[number(name, value) for name, value in x.items()]], np.float64)
            self._grow(list(x), row, y, counts)

    def _learn_many(self, X: Any, y: np.ndarray) -> None:
        names, table, _ = table_of(X)
        if len(table) == 0 or len(table) != len(y):
            raise ValueError(f"got {len(table)} rows and {len(y)} targets: there must be one for each, and some")
        with lock_of(self).held() as lost:  # a row's columns must be those of the model that learns it
            if lost:
                self._restore_columns()
            if self._online is not None and self._columns.keys() >= set(names):
                self._learn_rows(self._online, arranged(names, table, self._columns), y)
                return
            self._grow(names, table, y)

    def _learn_rows(self, online: OnlineModel, rows: np.ndarray, y: np.ndarray, **about: Any) -> None:
        before = self._snapshot()
        online.learn(rows, y, **about)
        self._warn_of_far(before, online.snapshot)

    def _restore_columns(self) -> None:
        """Return to the columns of the snapshot: at a fork, another thread was adding some."""
        snapshot = self._snapshot()
        self._columns = {} if snapshot is None else {name: i for i, name in enumerate(self._names(snapshot))}

    def _grow(self, names: list, table: np.ndarray, y: np.ndarray, counts: np.ndarray | None = None) -> None:
        """Learn rows in which features may be new: all of them, or none if one is refused."""
        check_count("max_features", self._columns, names, self.max_features)
        there = ~np.isnan(table)
        first = {
            name: int(column.argmax())
            for name, column in zip(names, there.T, strict=True)
            if name not in self._columns and column.any()
        }
        before, columns, widths = self._columns, dict(self._columns), {}
        for start in sorted({0, *first.values()}):
            for name in sorted((name for name, row in first.items() if row == start), key=repr):
                columns[name] = len(columns)
            widths[start] = len(columns)
        if not widths[0]:
            raise ValueError("the first row must have a feature, got one without: leave it out")
        known, online = self._snapshot(), self._online or OnlineModel(self._settings, widths[0])
        try:
            self._columns = columns
            online.learn(arranged(names, table, columns), y, widths=widths, counts=counts)
        except BaseException:
            self._columns = before
            raise
        self._online = online
        self._warn_of_far(known, online.snapshot)

    def _snapshot(self) -> Snapshot | None:
        """The snapshot to predict from, or None before the first row is learned."""
        return None if self._online is None else self._online.snapshot

    def _predict_row(self, snapshot: Snapshot, x: Mapping[Any, Any]) -> Any:
        return snapshot.predict(self._row(x, snapshot.weights.sizes[0]))

    def _predict_table(self, snapshot: Snapshot, names: list, table: np.ndarray) -> Any:
        columns = {name: i for i, name in enumerate(self._names(snapshot))}
        return snapshot.predict(arranged(names, table, columns))

    def _get_params(self) -> dict[str, Any]:
        # River's `clone` takes a tuple for a class with its parameters, and fails on an empty one
        params = super()._get_params()
        return {**params, "hidden": list(self.hidden) if isinstance(self.hidden, tuple) else self.hidden}


class MESUClassifier(StreamModel, base.MiniBatchClassifier):
    """A classifier for River: features and classes may appear at any time, old evidence fades over `memory` examples.

    Args:
        hidden: Units of each hidden layer.
        memory: How many examples the posterior remembers; ``float("inf")`` never forgets.
        prior_std: What the sigma of an unused weight relaxes to: a number, or ``"start"`` for where it began. None is that for
            the estimator "linear", and 1 for "local".
        samples: Monte Carlo samples of each update; ignored by the estimator "linear", which draws nothing.
        predict_samples: Draws that a prediction averages; every row has the same draws.
        standardise: Bring each feature to mean 0 and variance 1 as the stream has it so far.
        seed: Seed of the first weights and the noise; None draws one.
        init_scale: What the first sigmas are multiplied by. None is 2 for the estimator "linear", and 1 for "local".
        estimator: ``"linear"`` learns from the gradient and the curvature at the means; ``"local"`` draws pre-activations (see
            `mesu.Bayesian`). None is "linear"; for numbers all weights then move together.
        max_features: Most features that may come; a row with one more is refused.
        max_classes: Most classes that may come. A regressor has none.

    Example:
        >>> from mesu import river
        >>> model = river.MESUClassifier(seed=0)
        >>> for i in range(200):
        ...     model.learn_one({"warm": i % 2, "noise": i % 3}, "summer" if i % 2 else "winter")
        >>> model.predict_one({"warm": 1})  # what is missing counts as its mean
        'summer'
        >>> model.learn_one({"warm": 0.5, "leaves": 9.0}, "autumn")  # a new feature, a new class
        >>> list(model.predict_proba_one({"warm": 0}))
        ['winter', 'summer', 'autumn']
    """

    _regression = False
    _saved_as = "river.MESUClassifier"

    def learn_one(self, x: Mapping[Any, Any], y: Any, w: float = 1.0) -> None:
        """Learn the next row of the stream. A row that is refused leaves the model as it was.

        Args:
            x: The row.
            y: Its target.
            w: How many times its evidence counts. A row of weight 0 is checked and left out.
        """
        self._learn_one(x, self._classes([y]), w)

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn the rows of a frame in order, as `learn_one` would; NaN is a missing feature."""
        self._learn_many(X, self._classes(into_series(y).to_list()))

    def predict_proba_one(self, x: Mapping[Any, Any], **_: Any) -> dict[Any, float]:
        """The probability of each class seen so far."""
        snapshot = self._snapshot()
        if snapshot is None:
            return {}
        return dict(zip(snapshot.labels, self._predict_row(snapshot, x).probs[0].tolist(), strict=True))

    def predict_proba_many(self, X: Any) -> Any:
        """The probability of each class seen so far, a column for each."""
        names, table, frame = table_of(X)
        snapshot = self._snapshot()
        if snapshot is None:
            return to_native_frame({}, like=frame)
        probs = self._predict_table(snapshot, names, table).probs
        return to_native_frame(dict(zip(snapshot.labels, probs.T, strict=True)), like=frame)

    def predict_many(self, X: Any) -> Any:
        """The most probable class of each row."""
        names, table, frame = table_of(X)
        snapshot = self._snapshot()
        if snapshot is None:
            best = [None] * len(frame)
        else:
            best = [snapshot.labels[i] for i in self._predict_table(snapshot, names, table).labels]
        return to_native_series(best, name=None, like=frame)

    def _classes(self, labels: list) -> np.ndarray:
        """Classes as an array; those that the model knows need no check."""
        snapshot = self._snapshot()
        if self.max_classes is not None:
            check_count("max_classes", snapshot.labels if snapshot else (), labels, self.max_classes)
        if snapshot is None or not PLAIN_LABELS.issuperset(map(type, labels)):
            return labels_of(labels)
        return np.array(labels) if snapshot.numbers.keys() >= set(labels) else labels_of(labels)

    @property
    def _multiclass(self) -> bool:
        return True


class MESURegressor(StreamModel, base.MiniBatchRegressor):
    """A regressor for River, which learns the noise of its targets too. Arguments as for `MESUClassifier`.

    Example:
        >>> from mesu import river
        >>> model = river.MESURegressor(hidden=(), seed=0)
        >>> for i in range(500):
        ...     model.learn_one({"hour": i % 24}, 10 + 2.0 * (i % 24))
        >>> round(model.predict_one({"hour": 12}))
        34
        >>> near, far = (model.predict_one({"hour": hour}, with_dist=True) for hour in (12, 1200))
        >>> far.sigma > 3 * near.sigma  # far away it knows that it does not know
        True
    """

    _regression = True
    _saved_as = "river.MESURegressor"

    def learn_one(self, x: Mapping[Any, Any], y: Any, w: float = 1.0) -> None:
        """Learn the next row of the stream. A row that is refused leaves the model as it was.

        Args:
            x: The row.
            y: Its target.
            w: How many times its evidence counts. A row of weight 0 is checked and left out.
        """
        self._learn_one(x, np.array([y], np.float64) if are_plain([y]) else targets_of([y]), w)

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn the rows of a frame in order, as `learn_one` would; NaN is a missing feature."""
        self._learn_many(X, targets_of(into_series(y).to_list()))

    def predict_one(self, x: Mapping[Any, Any], with_dist: bool = False) -> Any:
        """The predictive mean of a row; with `with_dist` the normal distribution around it, noise included."""
        snapshot, mean, variance = self._snapshot(), 0.0, inf
        if snapshot is not None:
            found = self._predict_row(snapshot, x)
            mean, variance = float(found.mean[0]), float(found.total[0])
        return proba.Gaussian._from_state(n=1, m=mean, var=variance, ddof=0) if with_dist else mean

    def predict_many(self, X: Any) -> Any:
        """The predictive mean of each row."""
        names, table, frame = table_of(X)
        snapshot = self._snapshot()
        means = np.zeros(len(frame)) if snapshot is None else self._predict_table(snapshot, names, table).mean
        return to_native_series(means, name=None, like=frame)
