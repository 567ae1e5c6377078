"""What `init_scale` does for the estimators, by how many rows have come: accuracy or R² on rows held out, five orders."""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn import datasets

import mesu

SCALES = (0.5, 1.0, 2.0, 4.0, 8.0)  # 2 is the default
SEEDS = 5
HELD_OUT = 150


def friedman() -> tuple[np.ndarray, np.ndarray]:
    """Friedman's first function of ten columns, five of them idle, with noise."""
    return datasets.make_friedman1(2_150, noise=1.0, random_state=0)


SETS: dict[str, tuple[type, Callable[[], Any], tuple[int, ...]]] = {
    "digits, accuracy": (mesu.MESUClassifier, lambda: datasets.load_digits(return_X_y=True), (100, 200, 500, 1_600)),
    "breast cancer, accuracy": (
        mesu.MESUClassifier,
        lambda: datasets.load_breast_cancer(return_X_y=True),
        (50, 100, 400),
    ),
    "diabetes, R²": (mesu.MESURegressor, lambda: datasets.load_diabetes(return_X_y=True), (50, 100, 290)),
    "Friedman, R²": (mesu.MESURegressor, friedman, (100, 500, 2_000)),
}


def measured(kind: type, X: np.ndarray, y: np.ndarray, rows: int, scale: float) -> float:
    """The score on held-out rows after one pass over the first ones, averaged over orders."""
    scores = []
    for seed in range(SEEDS):
        order = np.random.default_rng(seed).permutation(len(y))
        first, held_out = order[:rows], order[-HELD_OUT:]
        model = kind(init_scale=scale, random_state=seed).partial_fit(X[first], y[first])
        scores.append(model.score(X[held_out], y[held_out]))
    return float(np.mean(scores))


def main() -> None:
    """Print the table as Markdown."""
    print(f"| after | {' | '.join(f'`init_scale={scale:g}`' for scale in SCALES)} |")
    print("|---" * (len(SCALES) + 1) + "|")
    for name, (kind, load, lengths) in SETS.items():
        X, y = load()
        for rows in lengths:
            cells = (f"{measured(kind, X, y, rows, scale):.2f}" for scale in SCALES)
            print(f"| {rows:,} rows of {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
