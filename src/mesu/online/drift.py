"""Drift detectors for River, and the wrapper that passes them what a model says of each row before it is learned."""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from math import inf, log
from typing import Any

from mesu.online import alarm
from mesu.online.needs_river import base, compose, drift

ALLOWED = 1 / 8  # by how much ranks may on average lie above the middle without an alarm
RATE = 3.25  # solves sinh(r/2) / (r/2) = exp(r ALLOWED): exp(r S) of uniform ranks is then a martingale between alarms
LEAST = 50  # fewest values to rank one among


class EpistemicDrift(base.DriftAndWarningDetector):
    """A drift detector: it raises an alarm when the epistemic uncertainty of rows is higher than it used to be.

    Each value is ranked among the last `window` ones, so that units and scale do not matter, and the ranks are added up:

        S' = max(0, S + rank - 1/2 - 1/8)                drift if S > log(1 / delta) / 3.25, warning at half of it

    Ranks on a stream that stays the same are uniform, and S then passes a threshold h from 0 with a chance of at most
    exp(-3.25 h). A model that grows more certain has lower and lower ranks, which raise no alarm. If every row is more
    uncertain than all rows before it, the alarm comes after 16 of them.

    `mesu.river.DriftRetrainingClassifier` passes the epistemic uncertainty of each row to its detector. River's own wrapper of
    that name passes the error of a prediction, a 0 or a 1, which this detector refuses unless `listen` is False.

    Args:
        delta: Chance of a false alarm, each time that a row is more uncertain than usual.
        window: How many values one is ranked among.
        grace: How many values are ignored after a start and after a drift: a new model has to settle first.
        listen: True expects uncertainties, and refuses the 0 or 1 of a wrapper that passes errors; False ranks any numbers.

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
        """Take the epistemic uncertainty of the next row into account, or with ``listen=False`` any number."""
        if self.listen and isinstance(x, int):
            raise ValueError(
                f"EpistemicDrift ranks uncertainties, and {x!r} is the error that River's wrapper passes: use "
                "mesu.river.DriftRetrainingClassifier, or EpistemicDrift(listen=False) for numbers of your own"
            )
        if self._drift_detected:
            self._reset()
        value = float(x)
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


class DriftAlarm(alarm.DriftAlarm, base.DriftAndWarningDetector):
    """A drift detector that raises an alarm when labels surprise a model, or inputs make it doubt, more than they used to.

    It is `mesu.DriftAlarm`, as a detector of River's. `mesu.river.DriftRetrainingClassifier` passes it the `signals_one` of
    each row. Wherever else River takes a drift detector, it watches the errors, or any other numbers, that it is passed.

    Args:
        every: Rows between two false alarms on average, or more, if the rows come in an order that says nothing.
        window: How many values one is ranked among.
        grace: How many rows are ignored after a start and after an alarm.

    Example:
        >>> from mesu import river
        >>> model, detector = river.MESUClassifier(seed=0), river.DriftAlarm()
        >>> for row in range(900):
        ...     x = {"a": row % 7, "b": row % 5}
        ...     y = (x["a"] > x["b"]) == (row < 600)  # from row 600 on the other way round
        ...     detector.update(model.signals_one(x, y))
        ...     model.learn_one(x, y)
        ...     if detector.drift_detected:
        ...         print("drift at row", row, "cause:", detector.cause)
        drift at row 603 cause: surprise
    """


class DriftRetrainingClassifier(drift.DriftRetrainingClassifier):
    """River's wrapper of that name, except that its detector is passed what the model says of each row, not the error.

    A `DriftAlarm` is passed the signals of each row, any other detector its epistemic uncertainty. A drift replaces the model
    by one that has learned since the warning.

    Args:
        model: A classifier of `mesu.river`, or a pipeline that ends in one.
        drift_detector: A `DriftAlarm`, an `EpistemicDrift`, or any detector that takes numbers; None is `DriftAlarm()`.
        train_in_background: Whether a new model learns from the warning on; otherwise it starts at the drift.

    Example:
        >>> from mesu import river
        >>> model = river.DriftRetrainingClassifier(river.MESUClassifier(seed=0), river.DriftAlarm())
        >>> model.learn_one({"warm": 1}, "summer")
        >>> model.predict_one({"warm": 1})
        'summer'
    """

    def __init__(self, model: Any, drift_detector: Any = None, train_in_background: bool = True) -> None:
        super().__init__(model, DriftAlarm() if drift_detector is None else drift_detector, train_in_background)

    def _update_detector(self, x: Any, y: Any) -> None:
        detector: Any = self.drift_detector
        signals = _signals(self.model, x, y)
        if signals.doubt == inf:  # nothing has been learned yet
            return
        detector.update(signals if getattr(detector, "takes_signals", False) else signals.doubt)
        if self.train_in_background and detector.warning_detected:
            self.bkg_model.learn_one(x, y)
        elif self.train_in_background and detector.drift_detected:
            self.model, self.bkg_model = self.bkg_model, self.bkg_model.clone()
        elif detector.drift_detected:
            self.model = self.model.clone()


def _signals(model: Any, x: Any, y: Any) -> alarm.Signals:
    """The signals of a row under a model, or under the last step of a pipeline."""
    if isinstance(model, compose.Pipeline):
        x, model = model.transform_one(x), list(model.steps.values())[-1]
    if not hasattr(model, "signals_one"):
        raise TypeError(
            f"the model must be one of mesu.river, which says how uncertain it is, got {type(model).__name__}"
        )
    return model.signals_one(x, y)
