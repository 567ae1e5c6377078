"""What does uncertainty cost without draws, and how near is it to 100 draws? Small networks of several kinds.

    python -m benchmarks.closed_form --cache FOLDER         about ten minutes on a quiet machine, most of them for the draws

Each network learns 12,000 images of MNIST or Fashion-MNIST for three epochs with the defaults and `memory=10_000`, and is then
asked with ``samples=0`` and with ``samples=100``, these twice, with two seeds: how far two sets of draws are apart is how
exactly they can be met. Time is CPU time in forward passes of the plain network at the means, on the same rows, in one thread.
Log loss is on 4,000 test images; AUROC tells 2,000 images of the other set, by total and by epistemic uncertainty.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from benchmarks.learning.networks import Recurrent, group_norm, lenet, perceptron
from torch import Tensor, nn

import mesu
from mesu.lab.data import fashion_mnist, mnist
from mesu.measures import auroc
from mesu.prediction import CLOSED_IMAGES, CLOSED_ROWS

ROWS, TESTS, OUTLIERS, EPOCHS, MEMORY = 12_000, 4_000, 2_000, 3, 10_000
TIMED, TIMED_DRAWS, SEEDS = 1024, 4, (0, 1)  # rows and draws that are timed, and seeds of the draws
FIELDS = ("probs", "total", "aleatoric", "epistemic")


def two_convolutions() -> nn.Module:
    """Two convolutions and two linear layers."""
    features = (nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU())
    return nn.Sequential(*features, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1568, 64), nn.ReLU(), nn.Linear(64, 10))


# name: how it is made, what it learns, what is foreign to it, images an update
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable, Callable, int]] = {
    "perceptron": (perceptron, mnist, fashion_mnist, 32),
    "LeNet-5": (lenet, mnist, fashion_mnist, 200),
    "two convolutions": (two_convolutions, fashion_mnist, mnist, 64),
    "four convolutions, GroupNorm": (group_norm, mnist, fashion_mnist, 64),
    "LSTM": (Recurrent, mnist, fashion_mnist, 64),
}


def images(rows: np.ndarray) -> Tensor:
    """Rows of pixels as images."""
    return torch.from_numpy(np.ascontiguousarray(rows, np.float32)).view(-1, 1, 28, 28)


def trained(name: str, cache: Path) -> mesu.Bayesian:
    """The network after its three epochs."""
    build, own, _, batch = NETWORKS[name]
    torch.manual_seed(0)
    net = mesu.Bayesian(build(), seed=0)
    path = cache / f"{name}.pt"
    if path.exists():
        net.load_state_dict(torch.load(path))
        return net
    data = own()
    x, y = images(data.x_train[:ROWS]), torch.from_numpy(data.y_train[:ROWS].astype(np.int64))
    optimizer, order = mesu.MESU(net, memory=MEMORY), torch.Generator().manual_seed(0)
    for _ in range(EPOCHS):
        for some in torch.randperm(ROWS, generator=order).split(batch):
            net.nll(x[some], y[some]).backward()
            optimizer.step()
            optimizer.zero_grad()
    torch.save(net.state_dict(), path)
    return net


def drawn(name: str, net: mesu.Bayesian, rows: list[Tensor], seed: int, cache: Path) -> list[mesu.Prediction]:
    """The predictions of 100 draws."""
    path = cache / f"{name}-draws-{seed}.pt"
    if not path.exists():
        made = [mesu.predict(net, x, samples=100, seed=seed) for x in rows]
        torch.save([[getattr(p, field) for field in FIELDS] for p in made], path)
    return [mesu.Prediction(*values) for values in torch.load(path)]


def quality(known: mesu.Prediction, strange: mesu.Prediction, y: Tensor) -> list[float]:
    """Log loss, and AUROC by total and by epistemic uncertainty."""
    loss = float(F.nll_loss(known.probs.clamp_min(1e-12).log(), y))
    return [loss, *(auroc(getattr(known, by).numpy(), getattr(strange, by).numpy()) for by in ("total", "epistemic"))]


def seconds(run: Callable[[], Any], times: int = 5) -> float:
    """The least CPU time of a few runs."""
    best = float("inf")
    for _ in range(times):
        began = time.process_time()
        run()
        best = min(best, time.process_time() - began)
    return best


def passes(net: mesu.Bayesian, x: Tensor) -> tuple[float, float]:
    """What the closed form and 100 draws cost, in forward passes of the plain network, each in chunks of its own choice."""
    plain, closed = net.mean_network().eval(), mesu.predictor(net)
    with torch.no_grad():
        convolves = any(isinstance(m, nn.Conv2d) for m in plain.modules())
        parts = x.split(CLOSED_IMAGES if convolves else CLOSED_ROWS)
        one = seconds(lambda: [plain(part) for part in parts])
        without = seconds(lambda: [closed(part) for part in parts])
    with_draws = seconds(lambda: mesu.predict(net, x, samples=TIMED_DRAWS), 2) * 100 / TIMED_DRAWS
    return without / one, with_draws / one


def main() -> None:
    """Print the table, network by network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, help="folder for trained networks and their draws")
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    print("| network | how | passes | log loss | AUROC, total | AUROC, epistemic |\n" + "|---" * 6 + "|")
    for name in given.networks:
        _, own, foreign, _ = NETWORKS[name]
        net, data = trained(name, given.cache), own()
        rows = [images(data.x_test[:TESTS]), images(foreign().x_test[:OUTLIERS])]
        y = torch.from_numpy(data.y_test[:TESTS].astype(np.int64))
        try:
            known, strange = (mesu.predict(net, x, samples=0) for x in rows)
        except TypeError as error:
            print(f"| {name} | closed form | refused | | | |\n\n{error}\n", flush=True)
            continue
        cost, cost_of_draws = passes(net, rows[0][:TIMED])
        numbers = " | ".join(f"{value:.3f}" for value in quality(known, strange, y))
        print(f"| {name} | closed form | {cost:.1f} | {numbers} |", flush=True)
        for seed in SEEDS:
            known, strange = drawn(name, net, rows, seed, given.cache)
            numbers = " | ".join(f"{value:.3f}" for value in quality(known, strange, y))
            print(f"| {name} | 100 draws, seed {seed} | {cost_of_draws:.0f} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
