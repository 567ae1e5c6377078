"""What the scikit-learn and the River classes share: settings, saving, the memory report, and the snapshot that predicts."""

import warnings
from collections.abc import Mapping
from os import PathLike
from typing import Any

from mesu.health import LearningWarning
from mesu.memory import MemoryReport
from mesu.online.files import save
from mesu.online.memory_report import report
from mesu.online.scaling import newly_far, unknown_columns
from mesu.online.settings import Settings
from mesu.online.snapshot import Snapshot


class Face:
    """A class for users, around an `OnlineModel`."""

    # parameters, as the user gave them
    hidden: Any
    memory: Any
    prior_std: Any
    samples: Any
    predict_samples: Any
    standardise: Any
    init_scale: Any
    estimator: Any
    # limits, which models of earlier versions do not have
    max_features: Any = None
    max_classes: Any = None

    _regression: bool
    _saved_as: str  # what a file calls the class
    _online: Any  # an `OnlineModel`; None, or absent, before the first row
    _carried: dict[str, Any] | None = None

    def memory_report(self) -> MemoryReport:
        """What the model still remembers: `print` it, or draw its `figure()`."""
        return report(self._learned())

    def save(self, path: str | PathLike, carry: Mapping[str, Any] | None = None) -> None:
        """Write the model to one file, which `mesu.load` reads; an older file of that name is replaced in one step.

        Args:
            path: The file.
            carry: What the file holds besides: how far a reader has come, for example, ``{"offset": 123}``. State and position
                then change together, and a crash repeats and skips no row. Words, finite numbers, True, False, None, and lists
                and dicts of them, at most 64 KiB as JSON.

        Raises:
            ValueError: if something cannot be written down exactly; the older file stays then.
        """
        save(self, path, carry)

    @property
    def carried(self) -> dict[str, Any] | None:
        """What the file carried that this model was loaded from; None if nothing, or if it was not loaded from a file.

        A later `save` writes only what it is given.
        """
        return self._carried

    def _asked(self, seed: Any, allow_missing: bool = False) -> Settings:
        """The settings that the parameters ask for, checked."""
        return Settings.of(
            hidden=self.hidden,
            memory=self.memory,
            prior_std=self.prior_std,
            samples=self.samples,
            predict_samples=self.predict_samples,
            init_scale=self.init_scale,
            standardise=self.standardise,
            regression=self._regression,
            seed=seed,
            estimator=self.estimator,
            allow_missing=allow_missing,
        )

    def _warn_of_far(self, before: Snapshot | None, now: Snapshot) -> None:
        """Name the columns that have met their first values far from all others since the snapshot `before`."""
        known = unknown_columns(0) if before is None else before.inputs
        if known is now.inputs or not now.settings.standardise:
            return
        for column, value in newly_far(known, now.inputs):
            name = self._name_of(column)
            middle, spread = now.inputs.mean[column], now.inputs.spread[column]
            warnings.warn(
                f"column {name!r} has a value of {value:.6g}, far from its others ({middle:.3g} plus or minus "
                f"{spread:.3g}): such values are limited and do not count. Leave them out or replace them if they stand for "
                "missing ones; take logarithms if they are real",
                LearningWarning,
                stacklevel=4,
            )

    def _learned(self) -> Snapshot:
        """The snapshot to read, or an error if nothing has been learned yet."""
        raise NotImplementedError

    def _name_of(self, column: int) -> Any:
        """What the user calls a column."""
        raise NotImplementedError

    def _kept(self) -> tuple[Snapshot, dict[str, Any], list | None]:
        """What is saved: the snapshot, the parameters, and the names of the columns if there are any."""
        raise NotImplementedError
