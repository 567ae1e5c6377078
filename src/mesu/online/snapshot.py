"""A snapshot: everything that an online model is at one moment.

Nothing in a snapshot is ever written to. Predictions are made from one, so that readers on other threads always see a whole
model; a refused chunk goes back to one; and one is what a file holds.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from mesu.engine.predict import Weights, classify, regress
from mesu.online.network import start_weights
from mesu.online.scaling import Scale, standardised, unknown
from mesu.online.settings import Settings
from mesu.posterior.results import Prediction, RegressionPrediction

WINDOW = (
    1024  # rows kept in `recent_epistemic`: enough for a quantile of one in a hundred, and the first rows soon leave it
)
LARGEST = 1e12  # for inputs that are not standardised: single precision does not hold the variances of larger ones
LEAST_NOISE = 1e-3  # least noise of a target, in units of its spread: a stream without noise must not stop the weights
# Errors of size 1 that are assumed before the first row: one lucky prediction is no reason to trust the targets blindly.
ASSUMED_ERRORS = 16


@dataclass(frozen=True)
class Snapshot:
    """Everything that an online model is at one moment."""

    settings: Settings
    weights: Weights
    scoring_weights: Weights  # the weights some rows ago: rows are predicted by these before they are learned
    inputs: Scale
    targets: Scale
    target_scale: tuple[float, float]  # mean and spread that the network's outputs are in units of
    labels: tuple  # of the outputs, in the order in which they came; empty for regression
    rows: int  # examples learned
    updates: int  # of the weights: more than rows, where a set was gone over several times
    recent_epistemic: np.ndarray  # epistemic uncertainty of the last rows, each before it was learned
    recent_errors: np.ndarray  # squared errors of the same predictions, in units of the target scale
    noise_std: float  # of the targets, in the same units: the size of recent errors

    def with_predict_samples(self, predict_samples: int) -> "Snapshot":
        """The same, with predictions averaged over this many draws."""
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
        return x.astype(self.settings.dtype)

    def predict(self, x: np.ndarray) -> Any:
        """A `Prediction`, its columns in the order of `labels`, or a `RegressionPrediction` in the target's units.

        Args:
            x: Rows ``[B, d]`` of finite numbers; NaN where something is missing, if the settings allow it.
        """
        found = self._predict_by(self.weights, self.inputs_for(x))
        if isinstance(found, Prediction):
            return found
        centre, spread = self.target_scale
        return RegressionPrediction(
            centre + spread * found.mean, *(spread**2 * variance for variance in found.uncertainty)
        )

    def epistemic(self, x: np.ndarray) -> np.ndarray:
        """Epistemic uncertainty of rows, in the units of `recent_epistemic`."""
        return self._predict_by(self.weights, self.inputs_for(x)).epistemic

    def _predict_by(self, weights: Weights, z: np.ndarray) -> Prediction | RegressionPrediction:
        if self.settings.regression:
            found = regress(weights, z, self.settings.predict_samples, self.noise_std**2)
        else:
            found = classify(weights, z, self.settings.predict_samples)
        if not np.isfinite(found.epistemic).all():
            raise ValueError(
                f"inputs must be smaller, got one of size {np.abs(z).max():.3g} for the network, whose prediction is not a "
                "finite number: scale the columns down"
            )
        return found

    def scored(self, z: np.ndarray, y: np.ndarray) -> "Snapshot":
        """After predicting standardised rows that are about to be learned."""
        found = self._predict_by(self.scoring_weights, z)
        epistemic = np.concatenate([self.recent_epistemic, found.epistemic])[-WINDOW:]
        if isinstance(found, Prediction):
            return replace(self, recent_epistemic=epistemic)
        errors = np.concatenate([self.recent_errors, (y[:, 0] - found.mean) ** 2])[-WINDOW:]
        return replace(self, recent_epistemic=epistemic, recent_errors=errors)

    def with_scoring_weights(self, weights: Weights) -> "Snapshot":
        """The same, with other weights to score the next rows by, and the noise of the targets estimated anew."""
        if not self.settings.regression or not len(self.recent_epistemic):
            return replace(self, scoring_weights=weights)
        # No less than the network's own uncertainty: a target that is trusted more than that makes the weights leap.
        noise_var = max(float(self.recent_errors.mean()), float(self.recent_epistemic.mean()), LEAST_NOISE**2)
        return replace(self, scoring_weights=weights, noise_std=noise_var**0.5)

    def copied(self) -> "Snapshot":
        """The same in arrays of its own: those of a memory-mapped file may be read-only."""

        def copy(part: Any) -> Any:
            if isinstance(part, np.ndarray):
                return np.array(part)
            return type(part)(*map(copy, part)) if isinstance(part, Weights | Scale) else part

        return replace(self, **{field.name: copy(getattr(self, field.name)) for field in fields(self)})


def first_snapshot(settings: Settings, inputs: int, outputs: int = 1) -> Snapshot:
    """A model that has seen nothing."""
    weights = start_weights(settings, (inputs, *settings.hidden, outputs))
    return Snapshot(
        settings=settings,
        weights=weights,
        scoring_weights=weights,
        inputs=unknown(inputs),
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
