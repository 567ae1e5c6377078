"""The scikit-learn classes: estimators that learn a stream in the compiled engine.

`fit` starts anew and goes over a set several times; `partial_fit` continues with the stream, in order and once. Prediction
never changes the model. Learning itself is in `mesu.online.model`; this module has what scikit-learn requires.
"""

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from operator import is_not
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from mesu.online.alarm import Signals, signals_of
from mesu.online.face import Face
from mesu.online.growth import check_count, check_labels
from mesu.online.locks import lock_of
from mesu.online.model import OnlineModel
from mesu.online.settings import FIRST_VERSION, evidence
from mesu.online.snapshot import Snapshot
from mesu.posterior.results import Uncertainty
from mesu.rules.checks import whole

# parameters that take effect only at a new start, or at once
SETTINGS = (
    "hidden",
    "memory",
    "prior_std",
    "samples",
    "predict_samples",
    "standardise",
    "init_scale",
    "estimator",
)
CONSTANT = frozenset({int, float, str, bool, tuple, type(None)})


class StreamEstimator(Face, BaseEstimator):
    """What the classifier and the regressor share."""

    _online: OnlineModel
    n_features_in_: int

    def __init__(
        self,
        hidden=(100,),
        memory=100_000,
        *,
        prior_std=None,
        samples=10,
        predict_samples=64,
        epochs=10,
        standardise=True,
        init_scale=None,
        random_state=None,
        estimator=None,
        max_classes=None,
    ) -> None:
        self.hidden = hidden
        self.memory = memory
        self.prior_std = prior_std
        self.samples = samples
        self.predict_samples = predict_samples
        self.epochs = epochs
        self.standardise = standardise
        self.init_scale = init_scale
        self.random_state = random_state
        self.estimator = estimator
        self.max_classes = max_classes

    def uncertainty(self, X) -> Uncertainty:
        """How uncertain the prediction of each row is, and why."""
        return self._predicted(X).uncertainty

    def score_samples(self, X) -> np.ndarray:
        """How normal each row is: minus its epistemic uncertainty. Higher is more normal."""
        rows = self._rows(X)
        return -self._learned().epistemic(rows)

    def is_novel(self, X, share: float = 0.01) -> np.ndarray:
        """Which rows are more uncertain than all but a `share` of the last 1,024 rows were before they were learned."""
        if not 0 <= share <= 1:
            raise ValueError(f"share must be between 0 and 1, got {share!r}")
        rows, now = self._rows(X), self._learned()
        return now.epistemic(rows) > np.quantile(now.recent_epistemic, 1 - share)

    def signals(self, X, y=None) -> Signals:
        """How much each label or target surprises the model, and how much it doubts each row: for a `mesu.DriftAlarm`.

        Args:
            X: Rows, before they are learned.
            y: Their classes or targets; None if they are not known, and the surprise is NaN then.
        """
        rows, now = self._rows(X), self._learned()
        if y is not None:
            y = np.ravel(y)
            check_consistent_length(rows, y)
            known = {label: i for i, label in enumerate(now.labels)}
            y = _numbers("y", y) if self._regression else np.array([known.get(label, -1) for label in y.tolist()])
        return signals_of(now.predict(rows), y)

    def _predicted(self, X) -> Any:
        rows = self._rows(X)
        return self._learned().predict(rows)

    def _learned(self) -> Snapshot:
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)
        return self._online.snapshot.with_predict_samples(whole("predict_samples", self.predict_samples))

    def _unchanged(self) -> Snapshot:
        """The snapshot to continue from. Refuses parameters that were changed and take effect only at a new start."""
        now = self._learned()
        given = [getattr(self, name) for name in SETTINGS]
        checked = self._online.checked
        # objects that cannot change, and are still the same ones, need no other look
        if checked is None or any(map(is_not, checked, given)):
            now.settings.must_equal(self._asked(now.settings.seed), "call fit to begin anew with it")
            self._online.checked = given if CONSTANT.issuperset(map(type, given)) else None
        return now

    def _kept(self) -> tuple[Snapshot, dict[str, Any], Any]:
        return self._unchanged(), self.get_params(deep=False), getattr(self, "feature_names_in_", None)

    @classmethod
    def _from_kept(cls, snapshot: Snapshot, parameters: dict[str, Any], names: list | None) -> Self:
        """The model that a file keeps."""
        model: Any = cls(**{**FIRST_VERSION, **parameters})
        if snapshot.settings.allow_missing:
            raise ValueError("its settings are those of a model for River")
        model.n_features_in_ = snapshot.weights.sizes[0]
        model._online = OnlineModel(snapshot.settings, model.n_features_in_, snapshot)
        if names is not None:
            if not all(type(name) is str for name in names):
                raise ValueError("its columns have other names")
            model.feature_names_in_ = np.array(names, dtype=object)
        return model

    def _name_of(self, column: int) -> Any:
        names = getattr(self, "feature_names_in_", None)
        return column if names is None else names[column]

    def _fit(self, X, y, sample_weight) -> Self:
        with lock_of(self).held():
            fresh = copy.copy(self)
            X, y = fresh._learnable(X, y, reset=True)
            order = check_random_state(self.random_state)
            online = fresh._begin(X.shape[1], order)
            X, y, counts = fresh._weighted(X, y, sample_weight)
            if len(X) == 0:
                raise ValueError("sample_weight is zero for all rows: there is nothing to learn")
            online.learn_set(X, y, whole("epochs", self.epochs), order, counts)
            fresh._online = online
            self.__dict__ = fresh.__dict__  # in one step: other threads may be predicting
        self._warn_of_far(None, online.snapshot)
        return self

    def _partial_fit(self, X, y, sample_weight, classes=()) -> Self:
        if not self.__sklearn_is_fitted__():
            with lock_of(self).held():
                if not self.__sklearn_is_fitted__():  # else another thread has learned the first rows meanwhile
                    return self._first_partial_fit(X, y, sample_weight, classes)
        before = self._unchanged()
        if not (self._is_plain(X) and self._is_plain_target(y, len(X))):
            X, y = self._learnable(X, y, reset=False)
        self._online.set_predict_samples(before.settings.predict_samples)
        X, y, counts = self._weighted(X, y, sample_weight)
        self._online.learn(X, y, classes, counts=counts)
        self._warn_of_far(before, self._online.snapshot)
        return self

    def _weighted(self, X, y, sample_weight) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """The rows that count, and how many times each does, if not once."""
        if sample_weight is None:
            return X, y, None
        counts = evidence(sample_weight, len(X), self.memory)
        kept = counts > 0
        return X[kept], y[kept], counts[kept]

    def _first_partial_fit(self, X, y, sample_weight, classes) -> Self:
        fresh = copy.copy(self)
        X, y = fresh._learnable(X, y, reset=True)
        fresh._online = fresh._begin(X.shape[1], check_random_state(self.random_state))
        X, y, counts = fresh._weighted(X, y, sample_weight)
        if len(X) == 0:
            raise ValueError("sample_weight is zero for all of the first rows: begin with some that count")
        fresh._online.learn(X, y, classes, counts=counts)
        self.__dict__ = fresh.__dict__
        self._warn_of_far(None, self._online.snapshot)
        return self

    def _begin(self, inputs: int, random: np.random.RandomState) -> OnlineModel:
        return OnlineModel(self._asked(int(random.randint(2**31 - 1))), inputs)

    def _learnable(self, X, y, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        """Rows and targets, checked. Nothing later looks for values that are not finite."""
        with _naming_words(X):
            checked: Any = validate_data(self, X, y, reset=reset, y_numeric=self._regression)
            return _numbers("X", checked[0]), checked[1]

    def _rows(self, X) -> np.ndarray:
        """Rows to predict, checked as those to learn are."""
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)
        if self._is_plain(X):
            return X
        with _naming_words(X):
            return _numbers("X", validate_data(self, X, reset=False))

    def _is_plain(self, X) -> bool:
        """Whether these are rows in which `validate_data` would find nothing to refuse, to convert or to warn of."""
        return (
            type(X) is np.ndarray
            and X.dtype == np.float64
            and X.ndim == 2
            and X.shape[1] == self.n_features_in_
            and len(X) > 0
            and "feature_names_in_" not in vars(self)
            and bool(np.isfinite(X).all())
        )

    def _is_plain_target(self, y, rows: int) -> bool:
        """The same of their targets."""
        raise NotImplementedError

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**FIRST_VERSION, **state})

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_online")


class MESUClassifier(ClassifierMixin, StreamEstimator):
    """A classifier for an endless stream: new classes may appear, old evidence fades over `memory` examples.

    Args:
        hidden: Units of each hidden layer.
        memory: How many examples the posterior remembers; ``float("inf")`` never forgets.
        prior_std: What the sigma of an unused weight relaxes to: a number, or ``"start"`` for where it began. None is that for
            the estimator "linear", and 1 for "local".
        samples: Monte Carlo samples of each update; ignored by the estimator "linear", which draws nothing.
        predict_samples: Draws that a prediction averages; every row has the same draws.
        epochs: How often `fit` goes over its set.
        standardise: Bring each input to mean 0 and variance 1 as the stream has them so far.
        init_scale: What the first sigmas are multiplied by. None is 2 for the estimator "linear", and 1 for "local".
        random_state: Seed of the first weights, the noise, and the order of `fit`.
        estimator: ``"linear"`` learns from the gradient and the curvature at the means; ``"local"`` draws pre-activations (see
            `mesu.Bayesian`). None is "linear"; for numbers all weights then move together.
        max_classes: Most classes that may come; a row with one more is refused. A regressor has none.

    Example:
        >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]] * 10), np.array(["low", "low", "high", "high"] * 10)
        >>> model = mesu.MESUClassifier(random_state=0).fit(X, y)
        >>> model.predict([[0.0], [3.0]])
        array(['low', 'high'], dtype='<U4')
        >>> model.partial_fit([[9.0]], ["huge"]).classes_  # the head grows
        array(['high', 'huge', 'low'], dtype='<U4')
    """

    _regression = False
    _saved_as = "MESUClassifier"

    def fit(self, X, y, sample_weight=None) -> Self:
        """Start anew and learn a set as a whole, `epochs` times over in random order.

        A set that is refused leaves the model as it was.

        Args:
            X: Rows.
            y: Their targets.
            sample_weight: How many times the evidence of each row counts; rows of weight 0 are left out.
        """
        return self._fit(X, y, sample_weight)

    def partial_fit(self, X, y, classes=None, sample_weight=None) -> Self:
        """Learn the next rows of the stream, in order, once. The result does not depend on how the rows are cut into calls.

        Args:
            X: Rows.
            y: Their classes; new ones get an output where they first appear.
            classes: Classes that will come, if you know them; not needed.
            sample_weight: How many times the evidence of each row counts; rows of weight 0 are left out.
        """
        if type(y) is list and y and self.__sklearn_is_fitted__() and self._are_known(y):
            y = np.array(y)
        if self.max_classes is not None and classes is not None:
            check_count("max_classes", np.unique(_labels(classes)).tolist(), (), whole("max_classes", self.max_classes))
        return self._partial_fit(X, y, sample_weight, self._new(classes))

    def predict(self, X) -> np.ndarray:
        """The most probable class of each row."""
        rows, now = self._rows(X), self._learned()
        classes, order = now.in_order
        return classes[now.predict(rows).probs[:, order].argmax(1)]

    def predict_proba(self, X) -> np.ndarray:
        """The probability of each class, in the order of `classes_`."""
        rows, now = self._rows(X), self._learned()
        return now.predict(rows).probs[:, now.in_order[1]]

    @property
    def classes_(self) -> np.ndarray:
        """The classes seen so far, sorted."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"this {type(self).__name__} has no classes_ yet: fit it first")
        return self._online.snapshot.in_order[0].copy()

    def _new(self, classes) -> list:
        """The classes that were announced, if some of them are not known yet."""
        if classes is None or (self.__sklearn_is_fitted__() and self._are_known(classes)):
            return []
        return np.unique(_labels(classes)).tolist()

    def _are_known(self, labels) -> bool:
        """Whether these are plain words or numbers, one after the other, and classes of the model."""
        if type(labels) is np.ndarray and labels.ndim == 1 and labels.dtype.kind in "biuU":
            return self._online.snapshot.numbers.keys() >= set(labels.tolist())
        plain = type(labels) in (list, tuple, range) and {int, str}.issuperset(map(type, labels))
        return plain and self._online.snapshot.numbers.keys() >= set(labels)

    def _is_plain_target(self, y, rows: int) -> bool:
        return type(y) is np.ndarray and self._are_known(y) and len(y) == rows

    def _learnable(self, X, y, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        if y is not None:
            _array_of_labels(y)
        X, y = super()._learnable(X, y, reset)
        known = () if reset else self._online.snapshot.labels
        y = _labels(y, known)
        if self.max_classes is not None:
            check_count("max_classes", known, y.tolist(), whole("max_classes", self.max_classes))
        return X, y


class MESURegressor(RegressorMixin, StreamEstimator):
    """A regressor for an endless stream, which learns the noise of its targets too.

    Arguments as for `MESUClassifier`. Targets are standardised as the stream has them so far.

    Example:
        >>> X = np.linspace(-1, 1, 200)[:, None]
        >>> model = mesu.MESURegressor(random_state=0).fit(X, 3 * X[:, 0])
        >>> mean, std = model.predict([[0.5], [50.0]], return_std=True)
        >>> bool(abs(mean[0] - 1.5) < 0.1), bool(std[1] > 10 * std[0])  # far away it knows that it does not know
        (True, True)
    """

    _regression = True
    _saved_as = "MESURegressor"

    def fit(self, X, y, sample_weight=None) -> Self:
        """Start anew and learn a set as a whole, `epochs` times over in random order.

        A set that is refused leaves the model as it was.

        Args:
            X: Rows.
            y: Their targets.
            sample_weight: How many times the evidence of each row counts; rows of weight 0 are left out.
        """
        return self._fit(X, y, sample_weight)

    def partial_fit(self, X, y, sample_weight=None) -> Self:
        """Learn the next rows of the stream, in order, once. The result does not depend on how the rows are cut into calls.

        Args:
            X: Rows.
            y: Their targets.
            sample_weight: How many times the evidence of each row counts; rows of weight 0 are left out.
        """
        return self._partial_fit(X, y, sample_weight)

    def predict(self, X, return_std: bool = False) -> Any:
        """The predictive mean of each row; with `return_std` its standard deviation too, noise included."""
        found = self._predicted(X)
        return (found.mean, found.std) if return_std else found.mean

    def _learnable(self, X, y, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        X, y = super()._learnable(X, y, reset)
        return X, _numbers("y", y)

    def _is_plain_target(self, y, rows: int) -> bool:
        plain = type(y) is np.ndarray and y.dtype == np.float64 and y.shape == (rows,)
        return plain and bool(np.isfinite(y).all())


def _labels(y, known: tuple = ()) -> np.ndarray:
    """Classes as an array of words or numbers, checked unless all are known."""
    y = _array_of_labels(y)
    try:
        kinds = np.unique(y)
    except TypeError as error:
        raise ValueError(
            f"labels must be all words or all numbers, got some of each: make them one kind first ({error})"
        ) from error
    if not set(kinds.tolist()) <= set(known):
        check_labels([*known, *kinds.tolist()])
        # repeated, so that a short chunk brings no warning of too many classes
        check_classification_targets(np.repeat(kinds, 3))
    return y


def _array_of_labels(y: Any) -> np.ndarray:
    """Classes as an array, which must not turn one into another: a date into a number, or a whole number into a float."""
    array = np.asarray(y)
    listed = array.ndim == 1 and isinstance(y, list | tuple)
    if array.dtype.kind == "c":
        return array  # scikit-learn refuses it, in words of its own
    if listed or array.dtype.kind not in "biufU":
        labels = y if listed else array.ravel()
        check_labels(labels)
        beyond = [label for label in labels if isinstance(label, int) and not -(2**63) <= label < 2**63]
        if beyond:
            raise ValueError(f"a label must fit into 64 bits, got {beyond[0]}: make it a word")
    return array


def _numbers(name: str, values: Any) -> np.ndarray:
    """Values in double precision; dates and the like are refused."""
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be numbers, got {values.dtype}: encode its columns as numbers first")
    return values.astype(np.float64, copy=False)


@contextmanager
def _naming_words(X: Any) -> Iterator[None]:
    """Name the column that contains words: NumPy's error says only that there is a word somewhere."""
    try:
        yield
    except ValueError as error:
        column, word = _first_word(X) if re.search("string|X must be numbers", str(error)) else (None, None)
        if word is None:
            raise
        raise ValueError(
            f"column {column!r} must be numbers, got {word!r}: encode it first, as with sklearn.preprocessing.OneHotEncoder()"
        ) from error


def _first_word(X: Any) -> tuple[Any, str | None]:
    """The name (or number) of the first column with a word that is not a number, and that word."""
    table = np.array(X, dtype=object)
    if table.ndim != 2:
        return None, None
    for name, column in zip(getattr(X, "columns", range(table.shape[1])), table.T, strict=True):
        for value in column:
            if isinstance(value, str):
                try:
                    float(value)
                except ValueError:
                    return name, value
    return None, None
