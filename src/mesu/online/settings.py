"""What an online model is made with: one set of values and one set of checks for scikit-learn's face and River's."""

from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any

import numpy as np

from mesu.rules import checks

DOUBLE_PRECISION = 2e6  # updates: a longer memory forgets less in one update than single precision can hold
SEEDS = 2**31


@dataclass(frozen=True)
class Settings:
    """What an online model is made with. Every value is checked; `Settings.of` also converts what users write."""

    hidden: tuple[int, ...]  # units of each hidden layer
    memory: float  # examples
    prior_std: float
    samples: int  # of each training step
    predict_samples: int
    standardise: bool  # inputs; targets always are
    regression: bool
    seed: int
    allow_missing: bool = False  # NaN in a row counts as its column's mean, or as 0 if inputs are not standardised
    init_scale: float = 1.0  # what the first sigmas are multiplied by

    def __post_init__(self) -> None:
        checks.memory_window(self.memory)
        checks.precision(self.prior_std)
        checks.positive("init_scale", self.init_scale)
        for width in self.hidden:
            checks.whole("hidden", width)
        checks.whole("samples", self.samples)
        checks.whole("predict_samples", self.predict_samples, 2)
        if isinstance(self.seed, bool) or not isinstance(self.seed, Integral) or not 0 <= self.seed < SEEDS:
            raise ValueError(f"seed must be a whole number from 0 to 2**31 - 1, got {self.seed!r}")

    @classmethod
    def of(
        cls,
        *,
        hidden: Any,
        memory: Any,
        prior_std: Any,
        samples: Any,
        predict_samples: Any,
        standardise: Any,
        init_scale: Any,
        seed: Any,
        regression: bool,
        allow_missing: bool = False,
    ) -> "Settings":
        """Settings from a user's parameters: one width or several, Python's numbers or NumPy's.

        Raises:
            ValueError: naming the parameter that is wrong.
        """
        widths = [hidden] if isinstance(hidden, Integral) else hidden
        return cls(
            hidden=tuple(checks.whole("hidden", width) for width in widths),
            memory=checks.number("memory", memory),
            prior_std=checks.number("prior_std", prior_std),
            samples=checks.whole("samples", samples),
            predict_samples=checks.whole("predict_samples", predict_samples, 2),
            standardise=bool(standardise),
            regression=regression,
            seed=int(seed) if isinstance(seed, np.integer) else seed,
            allow_missing=allow_missing,
            init_scale=checks.number("init_scale", init_scale),
        )

    @property
    def dtype(self) -> type:
        """Precision of the weights."""
        return np.float64 if DOUBLE_PRECISION < self.memory < float("inf") else np.float32

    def must_equal(self, given: "Settings", remedy: str) -> None:
        """Refuse settings that differ from these, with which a model began, and name the first one that does."""
        for field in fields(self):
            began, now = getattr(self, field.name), getattr(given, field.name)
            if now != began:
                raise ValueError(
                    f"{field.name} is {now!r} now, but this model began with {began!r}: {remedy}, or set it back"
                )
