"""How much evidence each layer of the convolutional network has seen, compared with its final sigma.

    python benchmarks/conv_evidence.py RUN [--images 200]

RUN is a finished run of split-cifar10 with MESU at one split. The Fisher information h of a weight is its mean squared
gradient for an image, at the means where the run ended, over images of every task. An image adds lr_std h to a weight's
precision, so after n of them sigma should have come from sigma_0 to sigma_0 / sqrt(1 + lr_std h sigma_0^2 n), had h always been
what it is at the end. The last column is Spearman's rank correlation, within the layer, of the final precision with h:
whether the weights with the smallest sigma are those that matter most.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from rich.progress import track

from mesu.lab.entry import Entry
from mesu.lab.experiments.cifar.experiment import learner
from mesu.lab.runs import checkpoints
from mesu.lab.runs.run import Run


def main() -> None:
    """Print a row for each layer."""
    parser = argparse.ArgumentParser(description="Evidence for each layer, and its sigma at the end of a run.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--images", type=int, default=200, help="of each task, to measure the Fisher information on")
    given = parser.parse_args()
    torch.set_num_threads(1)
    run = Run.open(given.run)
    settings = run.settings
    stream = settings.sliced(1)
    model: Any = learner(settings, "mesu", len(stream), seed=0)
    before = {pair.name: pair.std.detach().clone() for pair in model.net.pairs()}
    saved = checkpoints.newest(run.checkpoint_folder(Entry("mesu", "splits", 1).label, 0), print)
    if saved is None:
        parser.error(f"{given.run} has no checkpoint of mesu@1")
    model.restore({name: value for name, value in saved.tensors.items() if name != "updates"})
    model.net.train(False)
    fisher = {pair.name: torch.zeros_like(pair.mean) for pair in model.net.pairs()}
    for task in track(stream, description="images of every task"):
        rows = np.random.default_rng(0).choice(len(task.y_train), given.images, replace=False)
        add_squares(
            fisher, model.net, torch.from_numpy(task.x_train[rows]), torch.from_numpy(task.y_train[rows]), task.head
        )
    seen = settings.epochs * sum(len(task.y_train) for task in stream)
    print("| weights of | number | sigma at the start | h, median | sigma at the end, expected | found | order |")
    print("|---" * 7 + "|")
    for pair in model.net.pairs():
        if not pair.name.endswith("weight") or pair.name.startswith("heads"):
            continue
        start, h = before[pair.name], fisher[pair.name] / (given.images * len(stream))
        expected = (1 + settings.lr_std * h * start**2 * seen).rsqrt().median()
        found = (pair.std / start).median()
        print(
            f"| {pair.name.removesuffix('.weight')} | {h.numel():,} | {start.median():.4f} | {h.median():.1e} "
            f"| {100 * expected:.0f} % | {100 * found:.0f} % | {spearman(h, -pair.std):.2f} |"
        )


def spearman(a: torch.Tensor, b: torch.Tensor) -> float:
    """Rank correlation."""
    ranks = torch.stack([each.detach().flatten().argsort().argsort().double() for each in (a, b)])
    return float(torch.corrcoef(ranks)[0, 1])


def add_squares(total: dict[str, torch.Tensor], net, x: torch.Tensor, y: torch.Tensor, head: int) -> None:
    """Add every image's squared slopes at the means."""
    pairs = [
        pair for pair in net.pairs() if not pair.name.startswith("heads") or pair.name.startswith(f"heads.{head}.")
    ]
    for row in range(len(y)):
        cost = F.cross_entropy(net.at_mean(x[row : row + 1], head=head), y[row : row + 1])
        for pair, slope in zip(pairs, torch.autograd.grad(cost, [pair.mean for pair in pairs]), strict=True):
            total[pair.name] += slope.square()


if __name__ == "__main__":
    main()
