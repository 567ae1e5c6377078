"""Whether `MESURegressor` survives a jump of the target's level or units: R squared and intervals of 90 %, before and after.

`python benchmarks/jumps.py`. The stream is 2 x0 - x1 with noise of none or one, and jumps after half of its rows.
"""

from math import inf

import numpy as np

import mesu

ROWS, JUMP, CHUNK = 6_000, 3_000, 20
JUMPS = {"+ 100": (100.0, 1.0), "+ 1,000": (1000.0, 1.0), "x 0.001": (0.0, 1e-3), "x 1,000,000": (0.0, 1e6)}
BEFORE, SOON, LATER = slice(JUMP - 1000, JUMP), slice(JUMP + 200, JUMP + 400), slice(JUMP + 2000, ROWS)


def stream(noise: float, level: float, factor: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows and targets."""
    draw = np.random.default_rng(0)
    X = draw.standard_normal((ROWS, 2))
    y = 2 * X[:, 0] - X[:, 1] + noise * draw.standard_normal(ROWS)
    y[JUMP:] = level + factor * y[JUMP:]
    return X, y


def predicted(X: np.ndarray, y: np.ndarray, memory: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each target, a chunk of rows predicted before it is learned."""
    model, mean, std = mesu.MESURegressor(memory=memory, random_state=0), np.zeros(ROWS), np.ones(ROWS)
    for start in range(0, ROWS, CHUNK):
        chunk = slice(start, start + CHUNK)
        if start:
            mean[chunk], std[chunk] = model.predict(X[chunk], return_std=True)
        model.partial_fit(X[chunk], y[chunk])
    return mean, std


def main() -> None:
    """Print the table as Markdown."""
    print(
        "| noise | memory | jump | R² before | rows 200 to 400 after | later | intervals before, % | rows 40 to 240 | later |"
    )
    print("|---" * 9 + "|")
    for noise in (0.0, 1.0):
        for memory in (500, 100_000, inf):
            for name, jump in JUMPS.items():
                X, y = stream(noise, *jump)
                mean, std = predicted(X, y, memory)
                explained = [1 - np.mean((mean[a] - y[a]) ** 2) / np.var(y[a]) for a in (BEFORE, SOON, LATER)]
                inside = np.abs(mean - y) < 1.645 * std
                held = [100 * inside[a].mean() for a in (BEFORE, slice(JUMP + 40, JUMP + 240), LATER)]
                cells = [f"{r:.3f}" for r in explained] + [f"{share:.0f}" for share in held]
                print(f"| {noise:g} | {memory:,} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
