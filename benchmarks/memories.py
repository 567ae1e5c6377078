"""How short may a memory be? scikit-learn's digits, one at a time for 12,000 rows, with memories of several lengths.

python -m benchmarks.memories
"""

import warnings
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import mesu

MEMORIES, ROWS = (10, 30, 100, 300, 1000, 10_000), 12_000


def learned(memory: float, seed: int) -> tuple[float, float]:
    """Accuracy in per cent on rows held out, and the share of the weights that are consolidated."""
    data: Any = load_digits()
    draw = np.random.RandomState(0)
    order = draw.permutation(len(data.target))
    x, y = ((data.data[order] - 4.9) / 6.0).astype(np.float32), data.target[order]
    torch.manual_seed(seed)
    net = mesu.Bayesian(nn.Sequential(nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10)), seed=seed)
    optimizer = mesu.MESU(net, memory=memory)
    learner = mesu.BayesianLearner(net, optimizer)
    rows = draw.randint(1437, size=ROWS)
    learner.learn(x[rows], y[rows])
    right = learner.predict(x[1437:], samples=50).labels.numpy() == y[1437:]
    return 100 * float(right.mean()), mesu.memory_report(net, optimizer).all.consolidated


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", mesu.LearningWarning)  # of memories that are too short
    print("| memory | accuracy | consolidated |")
    for memory in MEMORIES:
        accuracy, consolidated = np.mean([learned(memory, seed) for seed in range(3)], axis=0)
        print(f"| {memory:,} | {accuracy:.0f} | {100 * consolidated:.1f} |", flush=True)


if __name__ == "__main__":
    main()
