"""The scikit-learn classes: estimators that learn a stream in the compiled engine.

`fit` starts anew and goes over a set several times; `partial_fit` continues with the stream, in order and once. Prediction
never changes the model. Learning itself is in `mesu.online.model`; this module has what scikit-learn requires.
"""

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from mesu.online.face import Face
from mesu.online.growth import check_labels
from mesu.online.locks import lock_of
from mesu.online.model import OnlineModel
from mesu.online.settings import FIRST_VERSION
from mesu.online.snapshot import Snapshot
from mesu.posterior.results import Uncertainty
from mesu.rules.checks import whole


class StreamEstimator(Face, BaseEstimator):
    """What the classifier and the regressor share."""

    _online: OnlineModel

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

    def _predicted(self, X) -> Any:
        rows = self._rows(X)
        return self._learned().predict(rows)

    def _learned(self) -> Snapshot:
        check_is_fitted(self)
        return self._online.snapshot.with_predict_samples(whole("predict_samples", self.predict_samples))

    def _unchanged(self) -> Snapshot:
        """The snapshot to continue from. Refuses parameters that were changed and take effect only at a new start."""
        now = self._learned()
        now.settings.must_equal(self._asked(now.settings.seed), "call fit to begin anew with it")
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

    def _fit(self, X, y) -> Self:
        with lock_of(self).held():
            fresh = copy.copy(self)
            X, y = fresh._learnable(X, y, reset=True)
            order = check_random_state(self.random_state)
            online = fresh._begin(X.shape[1], order)
            online.learn_set(X, y, whole("epochs", self.epochs), order)
            fresh._online = online
            self.__dict__ = fresh.__dict__  # in one step: other threads may be predicting
        return self

    def _partial_fit(self, X, y, classes=()) -> Self:
        if not self.__sklearn_is_fitted__():
            with lock_of(self).held():
                if not self.__sklearn_is_fitted__():  # else another thread has learned the first rows meanwhile
                    return self._first_partial_fit(X, y, classes)
        settings = self._unchanged().settings
        X, y = self._learnable(X, y, reset=False)
        self._online.set_predict_samples(settings.predict_samples)
        self._online.learn(X, y, classes)
        return self

    def _first_partial_fit(self, X, y, classes) -> Self:
        fresh = copy.copy(self)
        X, y = fresh._learnable(X, y, reset=True)
        fresh._online = fresh._begin(X.shape[1], check_random_state(self.random_state))
        fresh._online.learn(X, y, classes)
        self.__dict__ = fresh.__dict__
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
        check_is_fitted(self)
        with _naming_words(X):
            return _numbers("X", validate_data(self, X, reset=False))

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

    def fit(self, X, y) -> Self:
        """Start anew and learn a set as a whole, `epochs` times over in random order.

        A set that is refused leaves the model as it was.
        """
        return self._fit(X, y)

    def partial_fit(self, X, y, classes=None) -> Self:
        """Learn the next rows of the stream, in order, once. The result does not depend on how the rows are cut into calls.

        Args:
            X: Rows.
            y: Their classes; new ones get an output where they first appear.
            classes: Classes that will come, if you know them; not needed.
        """
        return self._partial_fit(X, y, () if classes is None else np.unique(_labels(classes)).tolist())

    def predict(self, X) -> np.ndarray:
        """The most probable class of each row."""
        rows, now = self._rows(X), self._learned()
        classes, order = _sorted(now.labels)
        return classes[now.predict(rows).probs[:, order].argmax(1)]

    def predict_proba(self, X) -> np.ndarray:
        """The probability of each class, in the order of `classes_`."""
        rows, now = self._rows(X), self._learned()
        return now.predict(rows).probs[:, _sorted(now.labels)[1]]

    @property
    def classes_(self) -> np.ndarray:
        """The classes seen so far, sorted."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"this {type(self).__name__} has no classes_ yet: fit it first")
        return _sorted(self._online.snapshot.labels)[0]

    def _learnable(self, X, y, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        if y is not None:
            _array_of_labels(y)
        X, y = super()._learnable(X, y, reset)
        return X, _labels(y, () if reset else self._online.snapshot.labels)


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

    def fit(self, X, y) -> Self:
        """Start anew and learn a set as a whole, `epochs` times over in random order.

        A set that is refused leaves the model as it was.
        """
        return self._fit(X, y)

    def partial_fit(self, X, y) -> Self:
        """Learn the next rows of the stream, in order, once. The result does not depend on how the rows are cut into calls."""
        return self._partial_fit(X, y)

    def predict(self, X, return_std: bool = False) -> Any:
        """The predictive mean of each row; with `return_std` its standard deviation too, noise included."""
        found = self._predicted(X)
        return (found.mean, found.std) if return_std else found.mean

    def _learnable(self, X, y, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        X, y = super()._learnable(X, y, reset)
        return X, _numbers("y", y)


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


def _sorted(labels: tuple) -> tuple[np.ndarray, np.ndarray]:
    """Classes in scikit-learn's order, and the outputs that they have."""
    classes = np.array(labels)
    order = np.argsort(classes)
    return classes[order], order


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
