"""What noise does to sigma: MESU on the first task of Split CIFAR-10, with and without a bound on sigma.

    python benchmarks/conv_sigma.py [--seed 2] [init_scale=0.1 lr_mean=80 epochs=30 ...]

Settings that are not given are those of docs/results/split-cifar10-equal-tasks. Sigmas are divided by those at the start: 5th
percentile, median, 95th percentile and maximum of a layer. With one sample of twenty images sigma's
gradient is mostly noise; without a bound (`max_std=None`) some sigmas grow until they move their weights far too much.
"""

import argparse
import dataclasses
from typing import Any

import torch
from conv_trial import EQUAL_TASKS, changes
from rich.progress import track

from mesu import measures
from mesu.lab.entry import Entry
from mesu.lab.experiments.cifar.experiment import SplitCIFAR10

LAYERS = {
    "first convolution": "body.0.weight",
    "second": "body.2.weight",
    "third": "body.6.weight",
    "fourth": "body.8.weight",
    "hidden layer": "body.13.weight",
    "head": "heads.0.weight",
}
PARTS = torch.tensor([0.05, 0.5, 0.95])


def main() -> None:
    """Print a table for each bound."""
    parser = argparse.ArgumentParser(description="Sigma after the first task, with and without a bound.")
    parser.add_argument("settings", nargs="*", help="name=value, as in mesu run split-cifar10")
    parser.add_argument("--seed", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(1)
    settings = SplitCIFAR10(**{**EQUAL_TASKS, **changes(parser, given.settings)})
    for bound in ("start", None):
        show(dataclasses.replace(settings, max_std=bound), given.seed)


def show(settings: SplitCIFAR10, seed: int) -> None:
    """Train, and print what became of sigma."""
    trial: Any = settings.trial(Entry("mesu", "splits", 1), seed)
    net, task = trial.model.net, settings.sliced(1)[0]
    start = sigmas(net)
    for epoch in track(range(settings.epochs), description=f"max_std={settings.max_std}"):
        list(trial.stage(epoch))
    net.train(False)
    learned, tested = (
        100 * measures.accuracy(trial.model.predict(x, settings.test_samples, head=0).probs.numpy(), y)
        for x, y in ((task.x_train, task.y_train), (task.x_test, task.y_test))
    )
    print(f"\nmax_std={settings.max_std}: {learned:.1f} % of the images to learn, {tested:.1f} % of those to test\n")
    print("| sigma, in parts of its start | 5 % | 50 % | 95 % | widest |")
    print("|---" * 5 + "|")
    for name, now in sigmas(net).items():
        ratio = (now / start[name]).flatten()
        parts = [*ratio.quantile(PARTS).tolist(), float(ratio.max())]
        print(f"| {name} | " + " | ".join(f"{part:.3g}" for part in parts) + " |")


def sigmas(net: Any) -> dict[str, torch.Tensor]:
    """Copies of the sigmas of each layer's weights."""
    by_name = {pair.name: pair.std.detach().clone() for pair in net.pairs()}
    return {layer: by_name[name] for layer, name in LAYERS.items()}


if __name__ == "__main__":
    main()
