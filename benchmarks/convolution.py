"""What an update of the paper's convolutional network costs: MESU against Adam, one thread, batch 200, CPU time.

    python benchmarks/convolution.py [--rounds 5] [--json]

Each row runs in its own process, as in real use: in a shared process small rows reuse memory that large rows allocated, which
saves a tenth of their time. Rounds are interleaved and the median is taken, so that other load
slows all rows alike. Peak memory is what learning adds to a process that has built its network (measured on Linux only).
"""

import argparse
import json
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.nn.functional as F

from mesu import optim
from mesu.lab.experiments.cifar.conv_net import ConvNet
from mesu.posterior.bayesian import Bayesian

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
    x = x.contiguous(memory_format=torch.channels_last)  # as the experiment has it
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


def work(name: str, pipe: Connection) -> None:
    """The process of one row: tells its memory, and makes an update whenever it is asked, telling the CPU seconds."""
    torch.set_num_threads(1)
    step = update(name)
    pipe.send(peak())
    while pipe.recv():
        began = time.process_time()
        step()
        pipe.send((time.process_time() - began, peak()))


def peak() -> float:
    """Megabytes that this process had at the most; getrusage would count its parent's."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    line = next((each for each in lines if each.startswith("VmHWM")), "VmHWM: nan")
    return float(line.split()[1]) / 1024


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    context = multiprocessing.get_context("spawn")
    pipes, before = {}, {}
    for name in ROWS:
        pipes[name], end = context.Pipe()
        context.Process(target=work, args=(name, end), daemon=True).start()
        before[name] = pipes[name].recv()
    times: dict[str, list[float]] = {name: [] for name in ROWS}
    memory = dict(before)
    for _ in range(given.rounds + 1):
        for name, pipe in pipes.items():
            pipe.send(True)
            second, memory[name] = pipe.recv()
            times[name].append(second)
    for pipe in pipes.values():
        pipe.send(False)
    result = {}
    for name, each in times.items():
        median = statistics.median(each[1:])  # the first update plans the convolutions
        result[name] = {
            "cpu_seconds": median,
            "times_adam": median / statistics.median(times["adam"][1:]),
            "peak_mb": memory[name] - before[name],
        }
    if given.json:
        print(json.dumps(result))
        return
    print(f"{'an update of':22}{'CPU s':>8}{'x Adam':>9}{'peak MB':>9}")
    for name, row in result.items():
        print(f"{name:22}{row['cpu_seconds']:8.3f}{row['times_adam']:9.2f}{row['peak_mb']:9.0f}")


if __name__ == "__main__":
    main()
