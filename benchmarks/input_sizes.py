"""Do inputs of any size teach as well? The same images, multiplied by several factors: Adam, MESU, and MESU not told the size.

    python -m benchmarks.input_sizes           about five minutes on one core
    python -m benchmarks.input_sizes --quick   the digits alone

Every learner has its library's defaults; MESU a memory of 10,000 updates. The digits are scikit-learn's, 1,437 to learn in five
epochs and 360 to ask; MNIST is 6,000 images in two epochs and 2,000 to ask. MESU's answers are averages over 20 draws.
"""

import argparse
import warnings
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from benchmarks.learning.networks import lenet
from sklearn.datasets import load_digits
from torch import Tensor, nn

import mesu
from mesu.lab.data import mnist

LEARNERS = ("adam", "mesu", "mesu, input_scale=1")
FACTORS = {
    "digits": (1 / 16, 1, 255 / 16, 0.01 / 16),
    "MNIST": (1, 255, 0.01),
}  # of pixels from 0 to 16; of standardised ones


def digits_data() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pixels from 0 to 16."""
    data: Any = load_digits()
    order = np.random.RandomState(0).permutation(len(data.target))
    x, y = torch.tensor(data.data[order], dtype=torch.float32), torch.tensor(data.target[order])
    return x[:1437], y[:1437], x[1437:], y[1437:]


def mnist_data() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Standardised pixels."""
    data = mnist()

    def images(x: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(x, np.float32)).view(-1, 1, 28, 28)

    y, y_test = (torch.from_numpy(labels.astype(np.int64)) for labels in (data.y_train[:6000], data.y_test[:2000]))
    return images(data.x_train[:6000]), y, images(data.x_test[:2000]), y_test


def perceptron() -> nn.Module:
    """64-50-10."""
    return nn.Sequential(nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10))


WORK = {"digits": (digits_data, perceptron, 5, 32, 3), "MNIST": (mnist_data, lenet, 2, 64, 2)}  # epochs, batch, seeds


def accuracy(work: str, factor: float, learner: str, seed: int) -> float:
    """Of one network at the end."""
    load, build, epochs, batch, _ = WORK[work]
    x, y, x_test, y_test = load()
    x, x_test = factor * x, factor * x_test
    torch.manual_seed(seed)
    net: Any = build()
    optimizer: Any = torch.optim.Adam(net.parameters())
    if learner != "adam":
        net = mesu.Bayesian(net, input_scale=None if learner == "mesu" else 1.0, seed=seed)
        optimizer = mesu.MESU(net, memory=10_000)
    order = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for some in torch.randperm(len(x), generator=order).split(batch):
            cost = F.cross_entropy(net(x[some]), y[some]) if learner == "adam" else net.nll(x[some], y[some])
            cost.backward()
            optimizer.step()
            optimizer.zero_grad()
    with torch.no_grad():
        labels = net(x_test).argmax(1) if learner == "adam" else mesu.predict(net, x_test, samples=20).labels
    return 100 * float((labels == y_test).float().mean())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the digits alone")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", mesu.LearningWarning)  # inputs far from size one: this is what is shown
    print("| images, times | size | " + " | ".join(LEARNERS) + " |")
    for work in ("digits",) if given.quick else WORK:
        for factor in FACTORS[work]:
            size = factor * float(WORK[work][0]()[0].square().mean().sqrt())
            means = [
                np.mean([accuracy(work, factor, each, seed) for seed in range(WORK[work][-1])]) for each in LEARNERS
            ]
            cells = " | ".join(f"{mean:.1f}" for mean in means)
            print(f"| {work}, {factor:.3g} | {size:.3g} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
