"""River models: rows are dicts whose features come and go, learned one at a time in the compiled engine.

What they do is in `mesu.online.model`; here rows become arrays, and answers dicts. A feature gets its column when it is first
seen, those of one row in the order of their names, so the order within a row means nothing. A feature that is missing from a
row counts as its mean so far (as 0 without `standardise`), and the row tells nothing about it. Prediction never changes a model
and passes over features that it does not know.
"""

import threading
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf, isfinite, log, nan
from numbers import Integral, Real
from os import PathLike
from typing import Any, Self

import numpy as np

from mesu.engine.predict import Answer
from mesu.online import files as saving
from mesu.online import memory_report as remembering
from mesu.online.model import Moment, Settings, Stream

try:
    from river import base, proba
    from river.utils.dataframe import into_frame, into_series, to_native_frame, to_native_series
except ImportError as error:
    if (error.name or "").partition(".")[0] != "river":
        raise
    raise ImportError("mesu.river needs River 0.26 or newer: pip install 'mesu[river]'", name="river") from error

UNCERTAINTIES = Answer._fields[1:]
AT_FIRST = inf  # every uncertainty before the first row: nothing is known, not even the classes
NUMBERS = "biuf"  # kinds of arrays
ALLOWED = 1 / 8  # by how much ranks may on average lie above the middle without an alarm
RATE = 3.25  # solves sinh(r/2) / (r/2) = exp(r ALLOWED): exp(r S) of uniform ranks is then a martingale between alarms
LEAST = 50  # values to rank one among

_asked = threading.local()  # .epistemic: the uncertainty of the last answer in each thread


class StreamModel(base.Estimator):
    """What the classifier and the regressor share."""

    _regression: bool
    _saved_as: str  # what a file calls the class

    def __init__(
        self,
        hidden: int | Sequence[int] = (50,),
        memory: float = 100_000,
        prior_std: float = 1.0,
        samples: int = 10,
        predict_samples: int = 64,
        standardise: bool = True,
        seed: int | None = None,
        init_scale: float = 1.0,
    ) -> None:
        self.hidden = hidden if isinstance(hidden, Integral) else tuple(hidden)  # type: ignore[arg-type]
        self.memory = memory
        self.prior_std = prior_std
        self.samples = samples
        self.predict_samples = predict_samples
        self.standardise = standardise
        self.seed = seed
        self.init_scale = init_scale
        self._settings = Settings(
            hidden=tuple(map(_plain, self.hidden if isinstance(self.hidden, tuple) else (self.hidden,))),
            memory=_real("memory", memory),
            prior_std=_real("prior_std", prior_std),
            samples=_plain(samples),
            predict_samples=_plain(predict_samples),
            standardise=bool(standardise),
            regression=self._regression,
            seed=int(np.random.default_rng().integers(2**31)) if seed is None else _seed(seed),
            gaps=True,
            init_scale=_real("init_scale", init_scale),
        )
        self._columns: dict[Any, int] = {}
        self._stream: Stream | None = None

    def uncertainty_one(self, x: Mapping[Any, Any]) -> dict[str, float]:
        """How uncertain the prediction of a row is, and why: `total`, `aleatoric`, `epistemic`; nats, or variances.

        All are infinite before the first row. They are 0 for a classifier that has seen a single class.
        """
        answer = self._answer_one(x)
        if answer is None:
            return dict.fromkeys(UNCERTAINTIES, AT_FIRST)
        return {name: float(part[0]) for name, part in zip(UNCERTAINTIES, answer[1:], strict=True)}

    def memory_report(self) -> remembering.MemoryReport:
        """What the model still remembers: `print` it, or draw its `figure()`."""
        return remembering.report(self._learned())

    def save(self, path: str | PathLike) -> None:
        """Keep the model in one file, for `mesu.load`."""
        saving.save(self, path)

    def _learned(self) -> Moment:
        moment = self._moment()
        if moment is None:
            raise ValueError(f"this {type(self).__name__} has learned nothing yet: call learn_one first")
        return moment

    def _kept(self) -> tuple[Moment, dict[str, Any], list]:
        """What a file keeps: all that was learned, the parameters, and the names of the features."""
        moment = self._learned()
        moment.settings.must_be(self._given(moment.settings.seed), "begin a new model with it")
        # columns are only ever added, at the end: should another thread have done so by now, the first ones are the moment's
        return moment, self._get_params(), list(self._columns)[: moment.weights.sizes[0]]

    @classmethod
    def _from_kept(cls, moment: Moment, parameters: dict[str, Any], names: list | None) -> Self:
        model = cls(**parameters)
        if model._given(moment.settings.seed) != moment.settings:
            raise ValueError("its parameters and its settings differ")
        if names is None:
            raise ValueError("its features have no names")
        model._settings, model._columns = moment.settings, {name: i for i, name in enumerate(names)}
        model._stream = Stream(moment.settings, len(names), moment)
        return model

    def _given(self, drawn: int) -> Settings:
        """The settings that the parameters ask for, where a seed that is None was drawn to be this one."""
        return type(self)(**{**self._get_params(), "seed": drawn if self.seed is None else self.seed})._settings

    def _learn_one(self, x: Mapping[Any, Any], y: np.ndarray) -> None:
        if self._stream is not None and x.keys() <= self._columns.keys():
            self._stream.learn(_row(x, self._columns), y)
            return
        self._grow(list(x), np.array([[_number(name, value) for name, value in x.items()]], np.float64), y)

    def _learn_many(self, X: Any, y: np.ndarray) -> None:
        names, table, _ = _table(X)
        if len(table) == 0 or len(table) != len(y):
            raise ValueError(f"got {len(table)} rows and {len(y)} targets: there must be one for each, and some")
        if self._stream is not None and self._columns.keys() >= set(names):
            self._stream.learn(_arranged(names, table, self._columns), y)
            return
        self._grow(names, table, y)

    def _grow(self, names: list, table: np.ndarray, y: np.ndarray) -> None:
        """Learn rows in which features may be new: all of them, or none if one is refused."""
        there = ~np.isnan(table)
        first = {
            name: int(column.argmax())
            for name, column in zip(names, there.T, strict=True)
            if name not in self._columns and column.any()
        }
        columns, moment = self._columns, self._moment()
        stream = None if moment is None else Stream(moment.settings, len(columns), moment)
        for start, end in pairwise(sorted({0, len(table), *first.values()})):
            new = sorted((name for name, row in first.items() if row == start), key=repr)
            columns = {**columns, **{name: len(columns) + i for i, name in enumerate(new)}}
            if not columns:
                raise ValueError("the first row must have a feature, got one without: leave it out")
            if stream is None:
                stream = Stream(self._settings, len(columns))
            stream.widen(len(columns))
            stream.learn(_arranged(names, table[start:end], columns), y[start:end])
        self._columns, self._stream = columns, stream

    def _moment(self) -> Moment | None:
        return None if self._stream is None else self._stream.moment

    def _answer_one(self, x: Mapping[Any, Any]) -> Answer | None:
        if self._stream is None:
            _asked.epistemic = AT_FIRST
            return None
        answer = self._stream.moment.answer(_row(x, self._columns))
        _asked.epistemic = float(answer.epistemic[0])
        return answer

    def _answer_many(self, X: Any) -> tuple[Answer | None, Any]:
        names, table, frame = _table(X)
        if self._stream is None:
            return None, frame
        return self._stream.moment.answer(_arranged(names, table, self._columns)), frame

    def _get_params(self) -> dict[str, Any]:
        # River's `clone` takes a tuple for a class with its parameters, and looks at the first of none
        params = super()._get_params()
        return {**params, "hidden": list(self.hidden) if isinstance(self.hidden, tuple) else self.hidden}


class MESUClassifier(StreamModel, base.MiniBatchClassifier):
    """A classifier for River: features and classes may appear at any time, old evidence fades over `memory` examples.

    Args:
        hidden: Units of each hidden layer.
        memory: How many examples the posterior remembers; ``float("inf")`` never forgets.
        prior_std: Where an unused weight's sigma relaxes to.
        samples: Monte Carlo samples of each update.
        predict_samples: Draws that a prediction is averaged over; the same for every row.
        standardise: Bring each feature to mean 0 and variance 1 as the stream has it so far.
        seed: Of the start and the noise; None draws one.
        init_scale: What the first sigmas are multiplied by: 2 learns classes faster in the first hundreds of rows.

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

    def learn_one(self, x: Mapping[Any, Any], y: Any) -> None:
        """Learn the next row of the stream. A row that is refused leaves the model as it was."""
        self._learn_one(x, _labels([y]))

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn the rows of a frame in order, as `learn_one` would; NaN is a missing feature."""
        self._learn_many(X, _labels(into_series(y).to_list()))

    def predict_proba_one(self, x: Mapping[Any, Any], **_: Any) -> dict[Any, float]:
        """The probability of each class seen so far."""
        answer = self._answer_one(x)
        return {} if answer is None else dict(zip(self._labels(), answer.value[0].tolist(), strict=True))

    def predict_proba_many(self, X: Any) -> Any:
        """The probability of each class seen so far, a column for each."""
        answer, frame = self._answer_many(X)
        columns = {} if answer is None else dict(zip(self._labels(), answer.value.T, strict=True))
        return to_native_frame(columns, like=frame)

    def predict_many(self, X: Any) -> Any:
        """The most probable class of each row."""
        answer, frame = self._answer_many(X)
        labels = self._labels()
        best = [None] * len(frame) if answer is None else [labels[i] for i in answer.value.argmax(1)]
        return to_native_series(best, name=None, like=frame)

    def _labels(self) -> tuple:
        moment = self._moment()
        return () if moment is None else moment.labels

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

    def learn_one(self, x: Mapping[Any, Any], y: Any) -> None:
        """Learn the next row of the stream. A row that is refused leaves the model as it was."""
        self._learn_one(x, _targets([y]))

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn the rows of a frame in order, as `learn_one` would; NaN is a missing feature."""
        self._learn_many(X, _targets(into_series(y).to_list()))

    def predict_one(self, x: Mapping[Any, Any], with_dist: bool = False) -> Any:
        """The predictive mean of a row; with `with_dist` the normal distribution around it, noise included."""
        answer = self._answer_one(x)
        mean, variance = (0.0, inf) if answer is None else (float(answer.value[0]), float(answer.total[0]))
        return proba.Gaussian._from_state(n=1, m=mean, var=variance, ddof=0) if with_dist else mean

    def predict_many(self, X: Any) -> Any:
        """The predictive mean of each row."""
        answer, frame = self._answer_many(X)
        return to_native_series(np.zeros(len(frame)) if answer is None else answer.value, name=None, like=frame)


class EpistemicDrift(base.DriftAndWarningDetector):
    """A drift detector on what a model does not know: rows that are stranger to it than rows used to be.

    Each value is ranked among the last `window` ones, so that it has no unit and no scale, and the ranks are added up:

        S' = max(0, S + rank - 1/2 - 1/8)                drift if S > log(1 / delta) / 3.25, warning at half of it

    Ranks on a stream that stays the same are uniform, and S then passes a threshold h from 0 with a chance of at most
    exp(-3.25 h). A model that grows surer ranks its rows lower and lower, which is no alarm; one whose rows all turn stranger
    than any before raises it after 16 of them.

    River's wrappers pass the error of a prediction to their detector, not its uncertainty. As a prediction comes before its
    error, the detector looks up the uncertainty of the last answer that a model of `mesu.river` gave in its thread.

    Args:
        delta: Chance of a false alarm, each time that a row is stranger than usual.
        window: Values that one is ranked among.
        grace: Values after a start, or a drift, that are passed over: a new model first has to settle.
        listen: False ranks the numbers given to `update` themselves, whatever they are.

    Example:
        >>> from mesu import river
        >>> detector = river.EpistemicDrift(listen=False)
        >>> draw = np.random.default_rng(0)
        >>> for row, value in enumerate([*draw.exponential(1, 1000), *draw.exponential(5, 100)]):
        ...     detector.update(value)
        ...     if detector.drift_detected:
        ...         print("drift at row", row)
        drift at row 1027
    """

    def __init__(self, delta: float = 1e-8, window: int = 1000, grace: int = 200, listen: bool = True) -> None:
        super().__init__()
        if not 0 < delta < 1:
            raise ValueError(f"delta must be a chance between 0 and 1, got {delta!r}")
        if window < LEAST:
            raise ValueError(f"window must be {LEAST} values or more, got {window!r}")
        if grace < 0:
            raise ValueError(f"grace must be 0 values or more, got {grace!r}")
        self.delta = delta
        self.window = window
        self.grace = grace
        self.listen = listen
        self._reset()

    def _reset(self) -> None:
        super()._reset()
        self._seen, self._sum = 0, 0.0
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []

    def update(self, x: float) -> None:
        """Take the uncertainty of the last answer into account, or with ``listen=False`` the number `x`."""
        if self._drift_detected:
            self._reset()
        value = _last_answer() if self.listen else float(x)
        if value != value:
            raise ValueError("a detector cannot rank nan: leave it out")
        self._seen += 1
        if self._seen <= self.grace:
            return
        if len(self._recent) >= LEAST:
            below, upto = bisect_left(self._sorted, value), bisect_right(self._sorted, value)
            rank = (below + upto + 1) / 2 / (len(self._sorted) + 1)
            self._sum = max(0.0, self._sum + rank - 0.5 - ALLOWED)
        threshold = -log(self.delta) / RATE
        self._drift_detected = self._sum > threshold
        # River's wrappers look at a warning first
        self._warning_detected = not self._drift_detected and self._sum > threshold / 2
        insort(self._sorted, value)
        self._recent.append(value)
        if len(self._recent) > self.window:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]


def _last_answer() -> float:
    try:
        return _asked.epistemic
    except AttributeError:
        raise ValueError(
            "no model of mesu.river has answered in this thread, so there is no uncertainty to look up: ask one first, "
            "or use EpistemicDrift(listen=False) for numbers of your own"
        ) from None


def _row(x: Mapping[Any, Any], columns: Mapping[Any, int]) -> np.ndarray:
    """A row in the order of the columns, NaN where it has no such feature."""
    try:
        row = np.array([x.get(name, nan) for name in columns])
    except ValueError:  # a value that is a list
        row = np.empty(0, object)
    if row.dtype.kind not in NUMBERS or row.ndim != 1 or not np.isfinite(row).all():
        row = np.array([_number(name, x[name]) if name in x else nan for name in columns])
    return row.astype(np.float64)[None]


def _number(name: Any, value: Any) -> float:
    """A feature's value; NaN for None, which is a missing one."""
    if value is None:
        return nan
    if not isinstance(value, Real | np.bool_):
        raise ValueError(
            f"feature {name!r} must be a number, got {value!r}: encode it first, as with river.preprocessing.OneHotEncoder()"
        )
    if not isfinite(value):
        raise ValueError(
            f"feature {name!r} must be finite, got {float(value)}: leave it out of the row, where it counts as its mean"
        )
    return float(value)


def _table(X: Any) -> tuple[list, np.ndarray, Any]:
    """Names and values of a frame's features, NaN where they are missing; and the frame as River takes it."""
    frame = into_frame(X)
    table = np.empty((len(frame), len(frame.columns)))
    for i, name in enumerate(frame.columns):
        column = frame[name]
        if column.dtype.is_numeric():
            table[:, i] = column.to_numpy()
            infinite = np.isinf(table[:, i])
            if infinite.any():
                _number(name, table[infinite, i][0])
        else:
            missing = column.is_null().to_list()
            table[:, i] = [nan if none else _number(name, value) for value, none in zip(column, missing, strict=True)]
    return list(frame.columns), table, frame


def _arranged(names: list, table: np.ndarray, columns: Mapping[Any, int]) -> np.ndarray:
    """A table's known features in the order of the columns."""
    arranged = np.full((len(table), len(columns)), nan)
    for name, values in zip(names, table.T, strict=True):
        if name in columns:
            arranged[:, columns[name]] = values
    return arranged


def _labels(values: list) -> np.ndarray:
    """Classes as an array of words or of numbers."""
    for value in values:
        if not isinstance(value, str | Real | np.bool_) or value != value:
            raise ValueError(f"a label must be a word or a number, got {value!r}: leave out rows without one")
    words = [value for value in values if isinstance(value, str)]
    if 0 < len(words) < len(values):
        other = next(value for value in values if not isinstance(value, str))
        raise ValueError(
            f"labels must be all words or all numbers, got {words[0]!r} and {other!r}: make them one kind first"
        )
    return np.array(values)


def _targets(values: list) -> np.ndarray:
    """Targets in double precision."""
    for value in values:
        if not isinstance(value, Real | np.bool_):
            raise ValueError(f"a target must be a number, got {value!r}: leave out rows without one")
    return np.array(values, np.float64)


def _real(name: str, value: Any) -> float:
    if not isinstance(value, Real):
        raise ValueError(f"{name} must be a number, got {value!r}")
    return float(value)


def _plain(value: Any) -> Any:
    """NumPy's whole numbers as Python's; what else there is, `Settings` refuses."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def _seed(value: Any) -> int:
    seed = _plain(value)
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**31:
        raise ValueError(f"seed must be a whole number from 0 to 2**31 - 1, got {value!r}")
    return seed
