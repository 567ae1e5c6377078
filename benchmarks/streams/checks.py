"""Why MESU loses on some streams: its settings, changed one at a time, compared with the models that win.

`python -m benchmarks.streams.checks`, one seed: per cent of the first 200 and the last 197 rows of three tasks of permuted
digits, and of all their rows; per cent on bananas; mean absolute errors on three streams of numbers. Then what more passes do
on bananas.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from benchmarks.streams import prequential
from benchmarks.streams.data import STREAMS, Stream
from benchmarks.streams.least_squares import LeastSquares
from benchmarks.streams.models import MODELS, SHORT, mesu_model
from river import datasets

import mesu
from mesu.online.settings import WIDE

TASK, TASKS = 1_797, 3
EARLY = 4  # blocks of 50 rows
VARIANTS: dict[str, dict[str, Any]] = {
    "MESU": {},
    f"memory {SHORT:,}": {"memory": SHORT},
    "memory 500": {"memory": 500},
    "start half as wide": {"init_scale": WIDE / 2},
    "start twice as wide": {"init_scale": WIDE * 2},
    "200 hidden units": {"hidden": (200,)},
    "drawn updates, as before": {"estimator": "local", "hidden": (50,)},
    "no hidden layer": {"hidden": ()},
    f"no hidden layer, memory {SHORT:,}": {"hidden": (), "memory": SHORT},
}


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
        cells = _cells(lambda stream, seed, choices=variant: mesu_model(stream, seed, **choices))
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
