"""A snapshot: the whole state of an online model at one moment.

Nothing in a snapshot is ever written to. Predictions are made from one, so that readers on other threads always see a whole
model; a refused chunk goes back to one; and one is what a file holds.
"""

from dataclasses import dataclass, field, fields, replace
from math import isfinite
from typing import Any

import numpy as np

from mesu.engine.predict import Weights, classify, regress
from mesu.online import noise
from mesu.online.locks import once
from mesu.online.network import drawn_weights, start_weights
from mesu.online.outliers import open_watches, watches
from mesu.online.scaling import FURTHEST, Columns, Scale, standardised, unknown, unknown_columns
from mesu.online.settings import Settings
from mesu.posterior.results import Prediction, RegressionPrediction
from mesu.posterior.sizes import divisor

# Rows kept in `recent_epistemic`: enough for a quantile of one in a hundred, and the first rows soon leave it
WINDOW = 1024
LARGEST = 1e12  # for inputs that are not standardised: single precision does not hold the variances of larger ones
# Errors of size 1 that are assumed before the first row: one lucky prediction is no reason to trust the targets blindly.
ASSUMED_ERRORS = 16


@dataclass(frozen=True)
class Snapshot:
    """The whole state of an online model at one moment."""

    settings: Settings
    weights: Weights
    scoring_weights: Weights  # the weights some rows ago: rows are predicted by these before they are learned
    drawn_for_scoring: Weights  # the same, as wide as they are drawn: made once, for many rows
    inputs: Columns
    targets: Scale
    target_scale: tuple[float, float]  # mean and spread that the network's outputs are in units of
    labels: tuple  # of the outputs, in the order in which they came; empty for regression
    rows: int  # examples learned
    updates: int  # of the weights: more than rows, where a set was gone over several times
    recent_epistemic: np.ndarray  # epistemic uncertainty of the last rows, each before it was learned
    recent_errors: np.ndarray  # squared errors of the same predictions, in units of the target scale
    noise_std: float  # of the targets, in the same units: the size of recent errors
    # At the last refresh: the noise variance of predictions, and the factor on their epistemic one
    reported: tuple[float, float] = (1.0, 1.0)
    noise_since: int = 0  # updates when the noise was last estimated anew, because the targets had jumped
    # Targets, predictions and variances [n, 3] of rows since the last refresh, in the same units, if jumps are looked for
    recent_rows: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))

    def changed(self, **parts: Any) -> "Snapshot":
        """The snapshot with other parts: `dataclasses.replace`, which takes five times as long."""
        twin = object.__new__(Snapshot)
        vars(twin).update(vars(self))
        vars(twin).update(parts)
        for name in ("_drawn", "_divisor", *(("numbers", "in_order") if "labels" in parts else ())):
            vars(twin).pop(name, None)  # found for other parts
        return twin

    @once
    def numbers(self) -> dict[Any, int]:
        """The output of each class."""
        return {label: i for i, label in enumerate(self.labels)}

    @once
    def in_order(self) -> tuple[np.ndarray, np.ndarray]:
        """The classes sorted, and the outputs that they have."""
        classes = np.array(self.labels)
        order = np.argsort(classes)
        return classes[order], order

    def with_predict_samples(self, predict_samples: int) -> "Snapshot":
        """The snapshot with predictions averaged over this many draws."""
        if predict_samples == self.settings.predict_samples:
            return self
        return replace(self, settings=replace(self.settings, predict_samples=predict_samples))

    def inputs_for(self, x: np.ndarray) -> np.ndarray:
        """Rows as the network takes them.

        Raises:
            ValueError: for another width, and for values that are too large.
        """
        check_width(x, self.weights.sizes[0])
        if self.settings.standardise:
            return standardised(self.inputs, x).astype(self.settings.dtype)
        x = np.nan_to_num(x) if self.settings.allow_missing else x
        if np.abs(x).max(initial=0.0) > LARGEST:
            where = tuple(int(i) for i in np.argwhere(np.abs(x) > LARGEST)[0])
            raise ValueError(f"inputs must be smaller, got {x[where]:.3g} at index {where}: use standardise=True")
        return np.ascontiguousarray(x / self._divisor, self.settings.dtype)

    @once
    def _divisor(self) -> float:
        """What inputs that are not standardised are divided by: their size is kept as the variance of every column."""
        known = self.inputs.rows.any() and not self.settings.standardise
        return float(np.sqrt(self.inputs.var.max())) if known else 1.0

    def sized_by(self, x: np.ndarray) -> "Snapshot":
        """The same, told by the first inputs how large they are, if they are not standardised (see `mesu.posterior.sizes`)."""
        if self.settings.standardise or self.settings.estimator == "local" or self.updates or not x.size:
            return self
        known = np.nan_to_num(x)
        by = divisor(float(np.sqrt(np.square(known).mean())), x.size)
        if by == 1:
            return self
        rows, mean, var = (np.full(x.shape[1], number) for number in (1.0, 0.0, by**2))
        return replace(self, inputs=Columns(rows, mean, var, watches(x.shape[1])))

    def predict(self, x: np.ndarray) -> Any:
        """A `Prediction`, its columns in the order of `labels`, or a `RegressionPrediction` in the target's units.

        Args:
            x: Rows ``[B, d]`` of finite numbers; NaN where something is missing, if the settings allow it.
        """
        found = self._predict_by(self._drawn, self.inputs_for(x))
        if isinstance(found, Prediction):
            return found
        centre, spread = self.target_scale
        found = self._calibrated(found, noise.reported(*self._recent))
        return RegressionPrediction(
            centre + spread * found.mean, *(spread**2 * variance for variance in found.uncertainty)
        )

    @property
    def _recent(self) -> tuple[np.ndarray, np.ndarray, int]:
        return self.recent_errors, self.recent_epistemic, self.updates - self.noise_since

    def _calibrated(self, found: RegressionPrediction, reported: tuple[float, float]) -> RegressionPrediction:
        """With variances that add up to the size of recent errors."""
        if not self.settings.joint:
            return found
        aleatoric, factor = reported
        epistemic = factor * found.epistemic
        return RegressionPrediction(found.mean, aleatoric + epistemic, np.full(len(epistemic), aleatoric), epistemic)

    def epistemic(self, x: np.ndarray) -> np.ndarray:
        """Epistemic uncertainty of rows, in the units of `recent_epistemic`."""
        return self._predict_by(self._drawn, self.inputs_for(x)).epistemic

    @once
    def _drawn(self) -> Weights:
        return drawn_weights(self.settings, self.weights)

    def _predict_by(self, weights: Weights, z: np.ndarray) -> Prediction | RegressionPrediction:
        if self.settings.regression:
            found = regress(weights, z, self.settings.predict_samples, self.noise_std**2)
        else:
            found = classify(weights, z, self.settings.predict_samples)
        epistemic = found.epistemic
        if not (isfinite(epistemic[0]) if len(epistemic) == 1 else np.isfinite(epistemic).all()):
            raise ValueError(
                f"inputs must be smaller, got one of size {np.abs(z).max():.3g} for the network, whose prediction is not a "
                "finite number: scale the columns down"
            )
        return found

    def scores(self, z: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
        """What changes in the snapshot when standardised rows are predicted that are about to be learned.

        Args:
            z: The rows.
            y: Their classes ``[T]``, or targets ``[T, 1]`` in units of the target scale.
        """
        found = self._predict_by(self.drawn_for_scoring, z)
        epistemic = np.concatenate([self.recent_epistemic, found.epistemic])[-WINDOW:]
        if isinstance(found, Prediction):
            return {"recent_epistemic": epistemic}
        errors = np.concatenate([self.recent_errors, (np.clip(y[:, 0], -FURTHEST, FURTHEST) - found.mean) ** 2])[
            -WINDOW:
        ]
        rows = self.recent_rows
        if self.settings.joint:
            rows = np.concatenate(
                [rows, np.stack([y[:, 0], found.mean, self._calibrated(found, self.reported).total], 1)]
            )
        return {"recent_epistemic": epistemic, "recent_errors": errors, "recent_rows": rows}

    def with_scoring_weights(self, weights: Weights) -> "Snapshot":
        """The snapshot with other weights to score the next rows by, and the noise of the targets estimated anew."""
        drawn = drawn_weights(self.settings, weights)
        if not self.settings.regression or not len(self.recent_epistemic):
            return replace(self, scoring_weights=weights, drawn_for_scoring=drawn)
        if not self.settings.joint:
            std = noise.of_all(self.recent_errors, self.recent_epistemic)
            return replace(self, scoring_weights=weights, drawn_for_scoring=drawn, noise_std=std)
        return replace(
            self,
            scoring_weights=weights,
            drawn_for_scoring=drawn,
            noise_std=noise.of_recent(*self._recent),
            reported=noise.reported(*self._recent),
            recent_rows=self.recent_rows[:0],
        )

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # not what was found and kept

    def __setstate__(self, kept: dict[str, Any]) -> None:
        first = {"recent_rows": np.zeros((0, 3)), "drawn_for_scoring": kept["scoring_weights"]}  # of earlier versions
        inputs = kept["inputs"]
        if isinstance(inputs, Scale):
            inputs = Columns(*inputs, open_watches(len(inputs.mean)))
        self.__dict__.update({**first, **kept, "inputs": inputs})

    def copied(self) -> "Snapshot":
        """The snapshot in arrays of its own: those of a memory-mapped file may be read-only."""

        def copy(part: Any) -> Any:
            if isinstance(part, np.ndarray):
                return np.array(part)
            return type(part)(*map(copy, part)) if isinstance(part, Weights | Scale | Columns) else part

        return replace(self, **{field.name: copy(getattr(self, field.name)) for field in fields(self)})


def first_snapshot(settings: Settings, inputs: int, outputs: int = 1) -> Snapshot:
    """A model that has seen nothing."""
    weights = start_weights(settings, (inputs, *settings.hidden, outputs))
    return Snapshot(
        settings=settings,
        weights=weights,
        scoring_weights=weights,
        drawn_for_scoring=drawn_weights(settings, weights),
        inputs=unknown_columns(inputs),
        targets=unknown(1),
        target_scale=(0.0, 1.0),
        labels=(),
        rows=0,
        updates=0,
        recent_epistemic=np.empty(0),
        recent_errors=np.ones(ASSUMED_ERRORS if settings.regression else 0),
        noise_std=1.0,
    )


def check_width(x: np.ndarray, inputs: int) -> None:
    """Refuse rows that have not as many columns as the network has inputs."""
    if x.ndim != 2 or x.shape[1] != inputs:
        raise ValueError(f"an input of shape {x.shape} does not fit: the network takes {inputs} columns")
