"""What deep networks keep of tasks that follow each other; docs/learning.md has the table.

    python -m benchmarks.keeping             three seeds, a few minutes
    python -m benchmarks.keeping --seeds 1

Six permutations of MNIST's pixels, 8,000 images each, one after the other, once, in batches of 20; nobody is told where a task
ends. Then all six are tested, on 2,000 images each. Predictions are those of the mean network.
"""

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from benchmarks.learning import networks
from benchmarks.learning.work import rows
from torch import Tensor, nn

import mesu

DOCS = Path(__file__).parents[1] / "docs"
TASKS, BATCH = 6, 20
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "perceptron of six hidden layers": networks.deep_perceptron,
    "LeNet-5": networks.lenet,
}
LEARNERS: dict[str, dict[str, Any]] = {
    "Adam, 0.001": {"lr": 0.001},
    "Adam, 0.0003": {"lr": 0.0003},
    "MESU, memory 1,000": {"memory": 1_000},
    "MESU, memory 4,000": {"memory": 4_000},
    "MESU, no end of memory": {"memory": float("inf")},
    "MESU, memory 4,000, update='exact'": {"memory": 4_000, "update": "exact"},
}
FIELDS = ("network", "learner", "seed", "all", "first", "newest", "cpu_seconds")


def kept(build: Callable[[], nn.Module], settings: dict[str, Any], seed: int) -> tuple[float, float, float, float]:
    """Accuracy on all tasks, on the first and on the newest, in per cent, and the CPU time of training."""
    own = rows("mnist")
    torch.manual_seed(seed)
    draw = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(784, generator=draw) for _ in range(TASKS)]
    plain = build()
    net: Any = mesu.Bayesian(plain, seed=seed) if "memory" in settings else plain
    opt: Any = mesu.MESU(net, **settings) if "memory" in settings else torch.optim.Adam(net.parameters(), **settings)
    began = time.process_time()
    for order in orders:
        for some in torch.randperm(len(own.x), generator=draw).split(BATCH):
            x, y = permuted(own.x[some], order), own.y[some]
            cost = net.nll(x, y) if "memory" in settings else F.cross_entropy(net(x), y)
            cost.backward()
            opt.step()
            opt.zero_grad()
    seconds = time.process_time() - began
    with torch.no_grad():
        mean = net.at_mean if "memory" in settings else net
        right = [
            100 * float((mean(permuted(own.x_test, each)).argmax(1) == own.y_test).float().mean()) for each in orders
        ]
    return sum(right) / TASKS, right[0], right[-1], seconds


def permuted(x: Tensor, order: Tensor) -> Tensor:
    """Images with their pixels in another order."""
    return x.flatten(1)[:, order].view_as(x)


def markdown(found: list[dict[str, Any]]) -> str:
    """The table of the means and standard deviations over seeds."""
    lines = [
        "| network | learner | all six, % | first, % | newest, % | CPU, s | seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for network in NETWORKS:
        for learner in LEARNERS:
            own = [row for row in found if row["network"] == network and row["learner"] == learner]
            if not own:
                continue
            cells = [spread([float(row[name]) for row in own]) for name in ("all", "first", "newest")]
            seconds = np.mean([float(row["cpu_seconds"]) for row in own])
            lines.append(f"| {network} | {learner} | {' | '.join(cells)} | {seconds:.0f} | {len(own)} |")
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    """Mean and sample standard deviation."""
    return f"{np.mean(values):.1f}" + (f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else "")


def main() -> None:
    """Run what is missing, write it down as it is found, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=DOCS / "keeping.csv", help="table that is read and added to")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    if given.out.exists():
        with given.out.open(newline="") as file:
            found = list(csv.DictReader(file))
    done = {(row["network"], row["learner"], int(row["seed"])) for row in found}
    for seed in range(given.seeds):
        for network, build in NETWORKS.items():
            for learner, settings in LEARNERS.items():
                if (network, learner, seed) in done:
                    continue
                measured = [round(value, 3) for value in kept(build, settings, seed)]
                found.append(dict(zip(FIELDS, (network, learner, seed, *measured), strict=True)))
                print(found[-1], flush=True)
                with given.out.open("w", newline="") as file:
                    writer = csv.DictWriter(file, FIELDS)
                    writer.writeheader()
                    writer.writerows(found)
    print(markdown(found))


if __name__ == "__main__":
    main()
