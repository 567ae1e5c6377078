"""What an update of the paper's convolutional network costs: MESU against Adam, one thread, batch 200, CPU time.

    python benchmarks/convolution.py [--rounds 5] [--json]

Rounds are interleaved and the median is taken, so that a busy machine harms all rows alike. Peak memory is of a process of its
own for each row, less that of one that only imports and builds (where the system tells: Linux).
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from mesu import optim
from mesu.experiments.conv_net import ConvNet
from mesu.posterior import Bayesian

BATCH = 200
ROWS = {
    "adam": None,
    "weights, 8 samples": ("weights", 8),
    "local, 1 sample": ("local", 1),
    "weights, 1 sample": ("weights", 1),
}


def update(name: str):
    """A function that makes one update of a fresh network."""
    torch.manual_seed(0)
    x, y = torch.rand(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))
    net = ConvNet(heads=11, classes=10)
    kind = ROWS[name]
    if kind is None:
        adam = torch.optim.Adam(net.parameters(), 1e-3)

        def step() -> None:
            F.cross_entropy(net(x, head=0), y, reduction="sum").backward()
            adam.step()
            adam.zero_grad()

        return step
    estimator, samples = kind
    posterior = Bayesian(net, estimator=estimator, init="cifar", seed=0)
    rule = optim.MESU(posterior, 500_000, lr_mean=5.0, lr_std=132.0, update="paper", max_step=0.02)

    def step() -> None:
        posterior.nll(x, y, samples=samples, head=0).backward()
        rule.step()
        rule.zero_grad()

    return step


def seconds(step) -> float:
    """CPU seconds of one update."""
    began = time.process_time()
    step()
    return time.process_time() - began


def peak(name: str, updates: int) -> float:
    """Megabytes at the most, in a process that makes so many updates."""
    program = [sys.executable, __file__, "--peak", name, "--rounds", str(updates)]
    return float(subprocess.run(program, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--peak", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    torch.set_num_threads(1)
    if given.peak:
        step = update(given.peak)
        for _ in range(given.rounds):
            step()
        status = Path("/proc/self/status")  # getrusage would count what the parent had before this program began
        line = next((each for each in status.read_text().splitlines() if each.startswith("VmHWM")), "VmHWM: nan")
        print(float(line.split()[1]) / 1024)
        return
    steps = {name: update(name) for name in ROWS}
    for step in steps.values():
        step()
    times: dict[str, list[float]] = {name: [] for name in ROWS}
    for _ in range(given.rounds):
        for name, step in steps.items():
            times[name].append(seconds(step))
    result = {}
    for name, each in times.items():
        result[name] = {
            "cpu_seconds": statistics.median(each),
            "times_adam": statistics.median(each) / statistics.median(times["adam"]),
            "peak_mb": peak(name, 2) - peak(name, 0),
        }
    if given.json:
        print(json.dumps(result))
        return
    print(f"{'an update of':22}{'CPU s':>8}{'x Adam':>9}{'peak MB':>9}")
    for name, row in result.items():
        print(f"{name:22}{row['cpu_seconds']:8.3f}{row['times_adam']:9.2f}{row['peak_mb']:9.0f}")


if __name__ == "__main__":
    main()
