"""Why MESU loses on some streams: its settings, changed one at a time, compared with the models that win.

`python -m benchmarks.streams.checks`, one seed: per cent of the first 200 and the last 197 rows of three tasks of permuted
digits, and of all their rows; per cent on bananas; mean absolute errors on three streams of numbers. Then what more passes do
on bananas.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from benchmarks.streams import prequential
from benchmarks.streams.adapters import Running
from benchmarks.streams.data import STREAMS, Stream
from benchmarks.streams.models import MODELS, SHORT, mesu_model
from river import datasets

import mesu
from mesu.posterior import initial

TASK, TASKS = 1_797, 3
EARLY = 4  # blocks of 50 rows
VARIANTS: dict[str, dict[str, Any]] = {
    "MESU": {},
    f"memory {SHORT:,}": {"memory": SHORT},
    "memory 500": {"memory": 500},
    "start half as wide": {"start": 0.5},
    "start twice as wide": {"start": 2.0},
    "200 hidden units": {"hidden": (200,)},
    "30 samples an update": {"samples": 30},
    "no hidden layer": {"hidden": ()},
    f"no hidden layer, memory {SHORT:,}": {"hidden": (), "memory": SHORT},
}


class LeastSquares:
    """Recursive least squares: the exact posterior of a linear model, covariances included, which forgets nothing."""

    takes_dicts = False

    def __init__(self, columns: int) -> None:
        self.inputs, self.targets = Running(), Running()
        self.weights, self.covariance = np.zeros(columns + 1), np.eye(columns + 1)

    def predict(self, x: np.ndarray) -> float:
        """The number that is expected; 0 before the first row."""
        return self.targets.back(self.weights @ self._scaled(x)) if self.targets.rows else 0.0

    def learn(self, x: np.ndarray, y: float) -> None:
        """Learn a row."""
        self.inputs.follow(x[0])
        self.targets.follow(y)
        z = self._scaled(x)
        gain = self.covariance @ z / (1 + z @ self.covariance @ z)
        self.weights = self.weights + gain * (self.targets.scaled(y) - self.weights @ z)
        self.covariance = self.covariance - np.outer(gain, z @ self.covariance)

    def _scaled(self, x: np.ndarray) -> np.ndarray:
        return np.append(self.inputs.scaled(x[0]), 1.0)


@contextmanager
def _start(scale: float) -> Iterator[None]:
    """Another first sigma, for River's models and scikit-learn's alike."""
    usual = initial.STARTS["keep"]
    initial.STARTS["keep"] = usual._replace(std_scale=scale * usual.std_scale)
    try:
        yield
    finally:
        initial.STARTS["keep"] = usual


def _cells(build: Callable[[Stream, int], Any]) -> list[str]:
    permuted, bananas = STREAMS["permuted"](0).first(TASK * TASKS), STREAMS["bananas"](0)
    tasks = prequential.run(permuted, build(permuted, 0)).blocks.reshape(TASKS, -1)
    early, late = tasks[:, :EARLY].sum(1) / 200, tasks[:, -EARLY:].sum(1) / 197
    right = prequential.run(bananas, build(bananas, 0)).blocks.sum() / len(bananas)
    cells = [f"{100 * a:.0f}, {100 * b:.0f}" for a, b in zip(early, late, strict=True)]
    return [*cells, f"{100 * tasks.sum() / len(permuted):.1f}", f"{100 * right:.1f}", *_errors(build)]


def _errors(build: Callable[[Stream, int], Any]) -> list[str]:
    streams = [STREAMS[name](0) for name in ("chicks", "approval", "water")]
    errors = [prequential.run(stream, build(stream, 0)).blocks.sum() / len(stream) for stream in streams]
    return [f"{error:.2f}" for error in errors]


def main() -> None:
    """Print the tables as Markdown."""
    torch.set_num_threads(1)
    print("| | task 1 | task 2 | task 3 | all | bananas | chicks | approval | water |")
    print("|---" * 9 + "|")
    for name, variant in VARIANTS.items():
        choices = dict(variant)
        with _start(choices.pop("start", 1.0)):
            cells = _cells(lambda stream, seed, choices=choices: mesu_model(stream, seed, **choices))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    for name in ("linear", "mlp"):
        print(f"| {MODELS[name].label} | {' | '.join(_cells(MODELS[name].build))} |", flush=True)
    errors = _errors(lambda stream, seed: LeastSquares(len(stream.columns)))
    print(f"| recursive least squares | {' | '.join([''] * 5 + errors)} |")

    print("\n| passes over 2,000 bananas | right of the other 3,300, % |\n|---|---|")
    rows = list(datasets.Bananas())
    X, y = np.array([list(x.values()) for x, _ in rows]), np.array([label for _, label in rows])
    for passes in (1, 5, 20):
        model = mesu.MESUClassifier(epochs=passes, random_state=0).fit(X[:2000], y[:2000])
        print(f"| {passes} | {100 * np.mean(model.predict(X[2000:]) == y[2000:]):.0f} |")


if __name__ == "__main__":
    main()
