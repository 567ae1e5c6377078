"""Cost of one row for the scikit-learn estimators, by how many come at once: 20 columns, 10 classes, 100 hidden units."""

import pickle
import resource
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

import mesu

ROUNDS = 7
LENGTHS = (1, 10, 100, 1_000, 10_000)


def cost(call: Callable[[], object], rows: int) -> float:
    """Median CPU microseconds a row."""
    repeats = max(1, 200 // rows)
    call()
    seconds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(repeats):
            call()
        seconds.append((time.process_time() - began) / (rows * repeats))
    return statistics.median(seconds) * 1e6


def main() -> None:
    """Print the tables as Markdown."""
    torch.set_num_threads(1)
    draw = np.random.default_rng(0)
    y = draw.integers(0, 10, max(LENGTHS))
    X = draw.normal(size=(10, 20))[y] + draw.normal(size=(len(y), 20))
    model = mesu.MESUClassifier(random_state=0).partial_fit(X, y)
    numbers = mesu.MESURegressor(random_state=0).partial_fit(X, X[:, 0])
    calls: dict[str, Callable[[int], object]] = {
        "`MESUClassifier.partial_fit`": lambda n: model.partial_fit(X[:n], y[:n]),
        "`predict_proba`": lambda n: model.predict_proba(X[:n]),
        "`is_novel`": lambda n: model.is_novel(X[:n]),
        "`MESURegressor.partial_fit`": lambda n: numbers.partial_fit(X[:n], X[:n, 0]),
        "`predict(return_std=True)`": lambda n: numbers.predict(X[:n], return_std=True),
    }
    print(f"| us a row, of rows at once | {' | '.join(f'{n:,}' for n in LENGTHS)} |")
    print("|---" * (len(LENGTHS) + 1) + "|")
    for name, call in calls.items():
        costs = [cost(lambda n=n, call=call: call(n), n) for n in LENGTHS]
        print(f"| {name} | {' | '.join(f'{us:,.1f}' for us in costs)} |", flush=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for _ in range(10):
        model.partial_fit(X, y)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"\nThe model is {len(pickle.dumps(model)) / 1024:.0f} KiB after {model._online.snapshot.rows:,} rows; ", end=""
    )
    print(f"100,000 rows more raised the peak of the process by {after - before:.0f} MiB, to {after:.0f}.")


if __name__ == "__main__":
    main()
