"""How MESU begins on the paper's convolutional network: accuracy on the first task of Split CIFAR-10, for several starts.

    python benchmarks/conv_start.py [--updates 1000] [--out docs/figures/conv-start.png]

Batches of 20, their losses summed, local form, one sample. The rule of the paper has a trust region of 0.02 sigma; the exact
step has none, and starts at sigma = s / sqrt(fan_in), the library's default being s = 1. Adam is included for comparison.
"""

import argparse
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

from mesu import Bayesian, BayesianLearner, WeightLearner, measures, optim
from mesu.lab.data import cifar10
from mesu.lab.drawing import style
from mesu.lab.experiments.cifar.conv_net import ConvNet
from mesu.lab.streams import MultiHead

BATCH, MEMORY, EVERY = 20, 132_000, 250
STARTS = (1.0, 0.5, 0.2, 0.1)


def learners():
    """Name and a fresh learner for each curve."""
    torch.manual_seed(0)
    net = ConvNet(heads=5, classes=2)
    yield "Adam", WeightLearner(net, torch.optim.Adam(net.parameters(), 1e-3), BATCH, engine=False)
    net = Bayesian(ConvNet(heads=5, classes=2), init="cifar", seed=0)
    paper = optim.MESU(net, MEMORY, lr_mean=5.0, lr_std=132.0, update="paper", max_step=0.02)
    yield "paper, clipped at 0.02", BayesianLearner(net, paper, 1, BATCH, engine=False)
    for scale in STARTS:
        torch.manual_seed(0)
        net = Bayesian(ConvNet(heads=5, classes=2), estimator="local", init_scale=scale, seed=0)
        yield (
            f"exact, s = {scale:g}",
            BayesianLearner(net, optim.MESU(net, MEMORY, max_step=None), 1, BATCH, engine=False),
        )


def main() -> None:
    """Print a row for each curve, and draw them."""
    arguments = argparse.ArgumentParser(description="Accuracy on the first task, by updates, for several starts.")
    arguments.add_argument("--updates", type=int, default=1000)
    arguments.add_argument("--out", type=Path, default=Path("docs/figures/conv-start.png"))
    given = arguments.parse_args()
    torch.set_num_threads(1)
    task = MultiHead(cifar10(), 2)[0]
    steps = list(range(EVERY, given.updates + 1, EVERY))
    print(f"| accuracy after | {' | '.join(f'{step:,}' for step in steps)} | CPU s |")
    print("|---" * (len(steps) + 2) + "|")
    curves = {}
    for name, learner in learners():
        began, scores = time.process_time(), []
        draw = np.random.default_rng(0)
        for _ in steps:
            rows = draw.choice(len(task.y_train), EVERY * BATCH, replace=False)
            learner.net.train(True)
            learner.learn(task.x_train[rows], task.y_train[rows], head=0)
            learner.net.train(False)
            scores.append(measures.accuracy(learner.predict(task.x_test, 4, head=0).probs.numpy(), task.y_test))
        row = " | ".join(f"{100 * score:.1f}" for score in scores)
        print(f"| {name} | {row} | {time.process_time() - began:.0f} |", flush=True)
        curves[name] = scores
    with style.figure_style():
        draw_curves(steps, curves, given.out)


def draw_curves(steps: list[int], curves: dict[str, list[float]], out: Path) -> None:
    """The figure."""
    figure, axes = plt.subplots(figsize=(6.2, 3.6), layout="constrained")
    for name, scores in curves.items():
        axes.plot(steps, scores, label=name, marker="o", markersize=3)
    axes.set(xlabel="updates", ylabel="accuracy, first task")
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axes.legend(loc="center left", frameon=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)


if __name__ == "__main__":
    main()
