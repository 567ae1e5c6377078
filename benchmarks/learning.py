"""Does the default learn as well as Adam? Networks of several kinds, each at its library's defaults.

    python -m benchmarks.learning            about 20 minutes on two cores; goes on where it was stopped
    python -m benchmarks.learning --quick    the two smallest networks, one seed

Every learner sees the same images in the same order: 12,000 of MNIST or Fashion-MNIST, three epochs. Adam has its default rate
of 0.001 and the mean of the cost; MESU its defaults, with `memory=10_000`. `mesu-local` is `estimator="local"`, the default of
earlier versions, with one sample instead of ten. Accuracy and log loss are of predictions averaged over 30 draws, on 4,000 test
images; AUROC tells 2,000 images of the other set by total uncertainty. CPU time is of training alone.
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
from torch import Tensor, nn

import mesu
from mesu.lab.data import fashion_mnist, mnist
from mesu.measures import auroc

ROWS, TESTS, OUTLIERS, EPOCHS, MEMORY, DRAWS = 12_000, 4_000, 2_000, 3, 10_000, 30
LEARNERS = ("adam", "mesu", "mesu-local")
FILE = Path(__file__).parents[1] / "docs" / "learning.csv"
FIELDS = ("network", "learner", "seed", "accuracy_1", "accuracy_2", "accuracy_3", "log_loss", "auroc", "cpu_seconds")


def perceptron() -> nn.Module:
    """784-50-10."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 50), nn.ReLU(), nn.Linear(50, 10))


def lenet() -> nn.Module:
    """LeNet-5."""
    features = (
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )
    head = (nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    return nn.Sequential(*features, nn.Flatten(), *head)


def small_conv() -> nn.Module:
    """Two convolutions and two linear layers."""
    features = (nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU())
    return nn.Sequential(*features, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1568, 64), nn.ReLU(), nn.Linear(64, 10))


def group_norm() -> nn.Module:
    """Four convolutions, each with GroupNorm."""
    layers: list[nn.Module] = []
    for before, after, pool in ((1, 16, True), (16, 32, True), (32, 32, True), (32, 64, False)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.ReLU()]
        layers += [nn.AvgPool2d(2)] if pool else []
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Recurrent(nn.Module):
    """An LSTM over the rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(28, 64, batch_first=True), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores."""
        return self.head(self.layer(x[:, 0])[0][:, -1])


class Transformer(nn.Module):
    """Two blocks of attention over the rows of an image."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.rows, self.places = nn.Linear(28, width), nn.Parameter(0.1 * torch.randn(28, width))
        block = {"dropout": 0.0, "batch_first": True, "norm_first": True}
        self.blocks = nn.Sequential(*(nn.TransformerEncoderLayer(width, 4, 64, **block) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores."""
        return self.head(self.norm(self.blocks(self.rows(x[:, 0]) + self.places)).mean(1))


# name: how it is made, what it learns, what is foreign to it, images an update
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable, Callable, int]] = {
    "perceptron": (perceptron, mnist, fashion_mnist, 32),
    "LSTM": (Recurrent, mnist, fashion_mnist, 64),
    "LeNet-5": (lenet, mnist, fashion_mnist, 200),
    "two convolutions": (small_conv, fashion_mnist, mnist, 64),
    "four convolutions, GroupNorm": (group_norm, mnist, fashion_mnist, 64),
    "Transformer": (Transformer, mnist, fashion_mnist, 64),
}
QUICK = ("perceptron", "LSTM")


def images(rows: np.ndarray) -> Tensor:
    """Rows of pixels as images."""
    return torch.from_numpy(np.ascontiguousarray(rows, np.float32)).view(-1, 1, 28, 28)


def learned(name: str, learner: str, seed: int) -> dict[str, Any]:
    """Train one network and measure it."""
    build, own, foreign, batch = NETWORKS[name]
    data = own()
    x, y = images(data.x_train[:ROWS]), torch.from_numpy(data.y_train[:ROWS].astype(np.int64))
    x_test, y_test = images(data.x_test[:TESTS]), torch.from_numpy(data.y_test[:TESTS].astype(np.int64))
    torch.manual_seed(seed)
    net: Any = build()
    optimizer: Any = torch.optim.Adam(net.parameters())
    if learner != "adam":
        net = mesu.Bayesian(net, seed=seed, **({"estimator": "local"} if learner == "mesu-local" else {}))
        optimizer = mesu.MESU(net, memory=MEMORY)
    order, seconds, accuracies, prediction = torch.Generator().manual_seed(seed), 0.0, [], None
    for _ in range(EPOCHS):
        began = time.process_time()
        for some in torch.randperm(ROWS, generator=order).split(batch):
            cost = F.cross_entropy(net(x[some]), y[some]) if learner == "adam" else net.nll(x[some], y[some], samples=1)
            cost.backward()
            optimizer.step()
            optimizer.zero_grad()
        seconds += time.process_time() - began
        prediction = mesu.predict(net, x_test, samples=DRAWS)
        accuracies.append(float((prediction.labels == y_test).float().mean()))
    log_loss = float(F.nll_loss(prediction.probs.clamp_min(1e-12).log(), y_test))
    strange = mesu.predict(net, images(foreign().x_test[:OUTLIERS]), samples=DRAWS)
    score = auroc(prediction.total.numpy(), strange.total.numpy())
    return dict(zip(FIELDS, (name, learner, seed, *accuracies, log_loss, score, seconds), strict=True))


def table(rows: list[dict[str, Any]]) -> str:
    """The mean over the seeds, as Markdown."""
    lines = ["| network | learner | epoch 1 | epoch 2 | epoch 3 | log loss | AUROC | CPU, Adam = 1 |", "|---" * 8 + "|"]
    for name in NETWORKS:
        own = {learner: [r for r in rows if (r["network"], r["learner"]) == (name, learner)] for learner in LEARNERS}
        for learner, seeds in own.items():
            if seeds:
                mean = {field: np.mean([float(r[field]) for r in seeds]) for field in FIELDS[3:]}
                adam = np.mean([float(r["cpu_seconds"]) for r in own["adam"]]) if own["adam"] else np.nan
                accuracies = " | ".join(f"{100 * mean[f'accuracy_{epoch}']:.1f}" for epoch in (1, 2, 3))
                ratio = mean["cpu_seconds"] / adam
                lines.append(
                    f"| {name} | {learner} | {accuracies} | {mean['log_loss']:.3f} | {mean['auroc']:.3f} | {ratio:.1f} |"
                )
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, write it down as it is found, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two networks, one seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=FILE, help="table that is read and added to")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    if given.out.exists():
        with given.out.open(newline="") as file:
            rows = list(csv.DictReader(file))
    done = {(r["network"], r["learner"], int(r["seed"])) for r in rows}
    for seed in range(1 if given.quick else given.seeds):
        for name in QUICK if given.quick else NETWORKS:
            for learner in LEARNERS:
                if (name, learner, seed) not in done:
                    rows.append(learned(name, learner, seed))
                    print(rows[-1], flush=True)
                    with given.out.open("w", newline="") as file:
                        writer = csv.DictWriter(file, FIELDS)
                        writer.writeheader()
                        writer.writerows(rows)
    print(table(rows))


if __name__ == "__main__":
    main()
