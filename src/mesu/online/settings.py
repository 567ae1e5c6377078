"""The settings of an online model: one set of values and one set of checks for the scikit-learn and the River classes."""

from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any

import numpy as np

from mesu.rules import checks

DOUBLE_PRECISION = 2e6  # updates: a longer memory forgets less in one update than single precision can hold
SEEDS = 2**31
# Of the estimator "linear", chosen on digits, bananas, segments and Elec2 (docs/streams.md): a start half as wide or twice as
# wide, and draws wider than a thirtieth, had a worse log loss; with steps five times as long, so had digits.
WIDE, NARROWING, LONGEST_STEP, CAUTION = 2.0, 30.0, 0.2, 3.0
BLOCK = 256  # updates between two refreshes of the scoring weights
SHORT_BLOCK = 32  # for numbers: noise is estimated, and jumps are looked for, as often
ESTIMATORS = ("linear", "local")
FIRST_VERSION = {"estimator": "local"}  # parameters of models that were saved before there was a choice


@dataclass(frozen=True)
class Settings:
    """The settings of an online model. Every value is checked; `Settings.of` also converts what users write."""

    hidden: tuple[int, ...]  # units of each hidden layer
    memory: float  # examples
    prior_std: float | str  # "start": where each weight began
    samples: int  # of each training step, for the estimator "local"
    predict_samples: int
    standardise: bool  # inputs; targets always are
    regression: bool
    seed: int
    allow_missing: bool = False  # NaN in a row counts as its column's mean, or as 0 if inputs are not standardised
    init_scale: float = 1.0  # what the first sigmas are multiplied by
    estimator: str = "local"  # how gradients are found; models of earlier versions have this one
    narrowing: float = 1.0  # how much narrower than believed weights are drawn: see `mesu.Bayesian`

    def __post_init__(self) -> None:
        checks.memory_window(self.memory)
        if self.prior_std != "start":
            if isinstance(self.prior_std, str):
                raise ValueError(f"prior_std must be a number or 'start', got {self.prior_std!r}")
            checks.precision(self.prior_std)
        if self.estimator not in ESTIMATORS:
            raise ValueError(f"estimator must be 'linear' or 'local', got {self.estimator!r}")
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
        estimator: Any = None,
        allow_missing: bool = False,
    ) -> "Settings":
        """Settings from a user's parameters: one width or several, Python's numbers or NumPy's.

        An estimator of None is "linear". A prior_std or init_scale of None is that of the estimator: "start" and 2 for
        "linear", 1 and 1 for "local".

        Raises:
            ValueError: naming the parameter that is wrong.
        """
        widths = [hidden] if isinstance(hidden, Integral) else hidden
        estimator = "linear" if estimator is None else estimator
        linear = isinstance(estimator, str) and estimator == "linear"
        if prior_std is None:
            prior_std = "start" if linear else 1.0
        if init_scale is None:
            init_scale = WIDE if linear else 1.0
        return cls(
            hidden=tuple(checks.whole("hidden", width) for width in widths),
            memory=checks.number("memory", memory),
            prior_std=str(prior_std) if isinstance(prior_std, str) else checks.number("prior_std", prior_std),
            samples=checks.whole("samples", samples),
            predict_samples=checks.whole("predict_samples", predict_samples, 2),
            standardise=bool(standardise),
            regression=regression,
            seed=int(seed) if isinstance(seed, np.integer) else seed,
            allow_missing=allow_missing,
            init_scale=checks.number("init_scale", init_scale),
            estimator=estimator,
            narrowing=NARROWING if linear else 1.0,
        )

    @property
    def joint(self) -> bool:
        """Whether all weights move together (`mesu.posterior.joint`), and jumps of the targets are looked for."""
        return self.regression and self.estimator == "linear"

    @property
    def block(self) -> int:
        """Updates between two refreshes of the scoring weights, after as many have been made."""
        return SHORT_BLOCK if self.joint else BLOCK

    @property
    def dtype(self) -> type:
        """Precision of the weights."""
        return np.float64 if DOUBLE_PRECISION < self.memory < float("inf") else np.float32

    def must_equal(self, given: "Settings", remedy: str) -> None:
        """Refuse settings that differ from these, with which a model began, and name the first one that does."""
        for field in sorted(
            fields(self), key=lambda field: field.name != "estimator"
        ):  # first: others' defaults depend on it
            began, now = getattr(self, field.name), getattr(given, field.name)
            if now != began:
                raise ValueError(
                    f"{field.name} is {now!r} now, but this model began with {began!r}: {remedy}, or set it back"
                )


def evidence(weights: Any, rows: int, memory: float) -> np.ndarray:
    """How many times the evidence of each row counts, from what a user gave.

    Raises:
        ValueError: naming the weight that makes no sense.
    """
    try:
        counts = np.array(weights, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"the weights of rows must be numbers, got {weights!r}") from None
    counts = np.full(rows, counts) if counts.ndim == 0 else counts
    if counts.shape != (rows,):
        raise ValueError(
            f"there must be one weight a row: sample_weight has shape {counts.shape}, and there are {rows} rows"
        )
    wrong = counts[~((counts >= 0) & (counts < memory) & np.isfinite(counts))]
    if len(wrong):
        raise ValueError(
            f"the weight of a row must be 0 or more and less than the memory ({memory:g}), or it alone would make the model "
            f"forget everything: got {wrong[0]:g}"
        )
    return counts
