"""An alarm for streams that change: how surprised a model is by labels and how unsure it is of inputs, as sequential tests."""

from collections.abc import Iterable
from math import inf, isnan, sqrt
from typing import Any, NamedTuple

import numpy as np

from mesu.online.evidence import LEAST, Evidence
from mesu.posterior.results import Prediction


class Signals(NamedTuple):
    """What a model says of rows before it learns them: a number each for one row, arrays for several."""

    surprise: Any  # -log p(y | x), in nats; NaN where there is no label yet
    doubt: Any  # epistemic uncertainty


class DriftAlarm:
    """An alarm that a stream has changed: labels surprise the model, or inputs make it doubt, more than they used to.

    It takes the `signals` of a model of mesu, or any numbers that get larger when something is wrong, such as errors. Each is
    ranked among its own last `window` values, and evidence that ranks have gone up is added up (`mesu.online.evidence`). The
    alarm is raised when the mean of the evidence of all signals reaches `every`. It then starts anew.

    Args:
        every: Rows between two false alarms on average, or more, if the rows come in an order that says nothing. A model that
            is still learning is not quite such a stream.
        window: How many values one is ranked among.
        grace: How many rows are ignored after a start and after an alarm: a model has to settle first.

    Attributes:
        drift_detected: Whether the last row raised the alarm.
        warning_detected: Whether there is evidence for an alarm, not yet enough: that for one in the root of `every` rows.
        cause: Of the last alarm, which signal had the most evidence: "surprise", "doubt", or its number.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(1000, 4))
        >>> y = X[:, 0] > 0
        >>> y[600:] = ~y[600:]  # the labels trade places
        >>> model, alarm = mesu.MESUClassifier(random_state=0).partial_fit(X[:10], y[:10]), mesu.DriftAlarm()
        >>> for at in range(10, 1000, 10):
        ...     rows = slice(at, at + 10)
        ...     for row in alarm.watch(model.signals(X[rows], y[rows])):
        ...         print("drift at row", at + row, "cause:", alarm.cause)
        ...     model = model.partial_fit(X[rows], y[rows])
        drift at row 604 cause: surprise
    """

    takes_signals = True  # for `mesu.river.DriftRetrainingClassifier`, which passes others the doubt alone

    def __init__(self, every: float = 100_000, window: int = 1000, grace: int = 50) -> None:
        super().__init__()
        if not 1 < every < inf:
            raise ValueError(f"every must be a number of rows greater than 1, got {every!r}")
        if window < LEAST:
            raise ValueError(f"window must be {LEAST} values or more, got {window!r}")
        if grace < 0:
            raise ValueError(f"grace must be 0 rows or more, got {grace!r}")
        self.every = every
        self.window = window
        self.grace = grace
        self.cause: str | int | None = None
        self._begin()

    def _begin(self) -> None:
        self._seen = 0
        self._evidence: list[Evidence] = []
        self._drift_detected, self._warning_detected = False, False

    def update(self, x: Any) -> None:
        """Take the signals of the next row into account.

        Args:
            x: A number, or several of one row, such as the `Signals` of a model. One of several may be NaN: it is left out.
        """
        values = [float(value) for value in x] if isinstance(x, Iterable) else [float(x)]
        if not values or all(isnan(value) for value in values):
            raise ValueError(f"an alarm needs a number, got {x!r}: leave such rows out")
        if self._evidence and len(values) != len(self._evidence):
            raise ValueError(
                f"an alarm that began with {len(self._evidence)} signals a row got {len(values)}: keep to one number"
            )
        if self._drift_detected:
            self._begin()
        self._seen += 1
        if not self._evidence:
            self._evidence = [Evidence(self.window) for _ in values]
        if self._seen <= self.grace:
            return
        for evidence, value in zip(self._evidence, values, strict=True):
            evidence.add(value)
        found = [evidence.value for evidence in self._evidence]
        mean = sum(found) / len(found)
        self._drift_detected = mean >= self.every
        self._warning_detected = not self._drift_detected and mean >= sqrt(self.every)
        if self._drift_detected:
            most = found.index(max(found))
            self.cause = x._fields[most] if isinstance(x, Signals) else most

    def watch(self, signals: Any) -> list[int]:
        """Take the signals of several rows into account, in order, and give the rows that raise the alarm.

        Args:
            signals: The `Signals` of some rows, or one array of numbers.
        """
        rows = map(Signals._make, zip(*signals, strict=True)) if isinstance(signals, Signals) else np.asarray(signals)
        raised = []
        for number, row in enumerate(rows):
            self.update(row)
            if self._drift_detected:
                raised.append(number)
        return raised

    @property
    def drift_detected(self) -> bool:
        """Whether the last row raised the alarm."""
        return self._drift_detected

    @property
    def warning_detected(self) -> bool:
        """Whether there is evidence for an alarm, not yet enough."""
        return self._warning_detected


def signals_of(found: Any, y: Any = None) -> Signals:
    """The signals of rows, from their predictions.

    Args:
        found: A `Prediction` or a `RegressionPrediction`, in NumPy arrays.
        y: The number of each row's class, -1 for a class that the model does not know, or each row's target; None if unknown.
    """
    if y is None:
        surprise = np.full(len(found.epistemic), np.nan)
    elif isinstance(found, Prediction):
        picked = np.where(y < 0, 0.0, found.probs[np.arange(len(y)), y])
        with np.errstate(divide="ignore"):
            surprise = -np.log(picked)
    else:
        surprise = 0.5 * (np.log(2 * np.pi * found.total) + (y - found.mean) ** 2 / found.total)
    return Signals(surprise, found.epistemic)
