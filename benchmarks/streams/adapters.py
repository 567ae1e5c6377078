"""Adapters: models of River and scikit-learn with the methods that the protocol calls."""

import math
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler


class RiverClassifier:
    """A classifier of River's kind."""

    takes_dicts = True

    def __init__(self, model: Any) -> None:
        self.model = model

    def predict(self, x: dict) -> dict[Any, float]:
        """The probability of each label."""
        return self.model.predict_proba_one(x)

    def learn(self, x: dict, y: Any) -> None:
        """Learn a row."""
        self.model.learn_one(x, y)


class RiverRegressor(RiverClassifier):
    """A regressor of River's kind."""

    def predict(self, x: dict) -> float:  # type: ignore[override]
        """The number that is expected."""
        return self.model.predict_one(x)


class ScikitClassifier:
    """A classifier of scikit-learn's with `partial_fit`, behind a `StandardScaler` that learns row by row too."""

    takes_dicts = False

    def __init__(self, model: Any, classes: list) -> None:
        self.model, self.classes, self.scaler = model, classes, StandardScaler()
        self.number = {label: i for i, label in enumerate(classes)}
        self.began = False

    def predict(self, x: np.ndarray) -> dict[Any, float]:
        """The probability of each label; none before the first row."""
        if not self.began:
            return {}
        shares = self.model.predict_proba(self.scaler.transform(x))[0]
        return dict(zip(self.classes, shares.tolist(), strict=True))

    def learn(self, x: np.ndarray, y: Any) -> None:
        """Learn a row. The first time, scikit-learn has to be told all the classes that will come."""
        z = self.scaler.partial_fit(x).transform(x)
        known = {} if self.began else {"classes": list(self.number.values())}
        self.model.partial_fit(z, [self.number[y]], **known)
        self.began = True


class ScikitRegressor:
    """A regressor of scikit-learn's with `partial_fit`; columns and targets are standardised as they come."""

    takes_dicts = False

    def __init__(self, model: Any) -> None:
        self.model, self.scaler, self.targets = model, StandardScaler(), Running()

    def predict(self, x: np.ndarray) -> float:
        """The number that is expected; 0 before the first row."""
        if not self.targets.rows:
            return 0.0
        return self.targets.back(float(self.model.predict(self.scaler.transform(x))[0]))

    def learn(self, x: np.ndarray, y: float) -> None:
        """Learn a row."""
        z = self.scaler.partial_fit(x).transform(x)
        self.targets.follow(y)
        self.model.partial_fit(z, [self.targets.scaled(y)])


class Running:
    """Mean and variance of what has come so far: a number, or an array."""

    def __init__(self) -> None:
        self.rows, self.mean, self.squares = 0, 0.0, 0.0

    def follow(self, x: Any) -> None:
        """Take one more into account."""
        self.rows += 1
        before = x - self.mean
        self.mean = self.mean + before / self.rows
        self.squares = self.squares + before * (x - self.mean)

    @property
    def spread(self) -> Any:
        """What is divided by: the standard deviation, or 1 where nothing has moved."""
        if isinstance(self.squares, np.ndarray):
            spread = np.sqrt(self.squares / self.rows)
            return np.where(spread > 0, spread, 1.0)
        return math.sqrt(self.squares / self.rows) or 1.0

    def scaled(self, x: Any) -> Any:
        """With mean 0 and variance 1."""
        return (x - self.mean) / self.spread

    def back(self, z: Any) -> Any:
        """In its own units."""
        return self.mean + self.spread * z
