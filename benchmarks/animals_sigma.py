"""What the sigmas of `mesu-slow` do on the animals, and what is lost without their differences.

    python benchmarks/animals_sigma.py [--features effnetlite0 --start 11] [--prior-std 1] [--draws 8]

Each learner is trained twice on draws of species that are not the paper's: as it is, and with the variances of a layer made
equal to their mean after every hundred photographs. The second keeps the falling learning rate of the layer, but not the
differences between its weights. The last columns are the final sigmas of the hidden layer, divided by those at the start: the
5th percentile, the median, the 95th percentile.
"""

import argparse
from typing import Any

import numpy as np
import torch
from rich.progress import track

from mesu import measures
from mesu.lab.entry import Entry
from mesu.lab.experiments.animals.experiment import AnimalFamilies, shuffled

TOGETHER = 100  # photographs between two levellings


def main() -> None:
    """Print a row for each way of training."""
    parser = argparse.ArgumentParser(description="What is lost when all weights of a layer have one sigma.")
    parser.add_argument("--features", default="resnet18")
    parser.add_argument("--start", type=float, default=4.0, help="init_scale")
    parser.add_argument("--prior-std", type=float, default=AnimalFamilies.prior_std)
    parser.add_argument("--draws", type=int, default=8)
    given = parser.parse_args()
    torch.set_num_threads(1)
    chosen = {"features": given.features, "slow_init_scale": given.start, "prior_std": given.prior_std}
    settings = AnimalFamilies(first_draw=50, **chosen)
    print("| sigmas | accuracy | AUROC, whales | 5 % | 50 % | 95 % |")
    print("|---" * 6 + "|")
    for name, level in (("as they are", False), ("one a layer", True)):
        ends = np.array([trained(settings, seed, level) for seed in track(range(given.draws), description=name)])
        accuracy, auroc, *parts = ends.mean(0)
        print(
            f"| {name} | {100 * accuracy:.2f} % | {auroc:.3f} | " + " | ".join(f"{part:.2f}" for part in parts) + " |"
        )


def trained(settings: AnimalFamilies, seed: int, level: bool) -> list[float]:
    """Accuracy over the four tasks and AUROC after the last, and three quantiles of the hidden layer's sigma."""
    trial = settings.trial(Entry("mesu-slow"), seed)
    model: Any = trial.model
    hidden = next(model.net.pairs())
    start = hidden.std.detach().clone()
    for task in trial.stream:
        for epoch in range(settings.epochs):
            x, y = shuffled(task, trial.draw, epoch)
            for first in range(0, len(y), TOGETHER):
                model.learn(x[first : first + TOGETHER], y[first : first + TOGETHER])
                if level:
                    one_sigma_a_layer(model.net)
    right = [
        measures.accuracy(model.predict(t.x_test, settings.test_samples).probs.numpy(), t.y_test) for t in trial.stream
    ]
    inside, outside = (
        model.predict(x, settings.test_samples).epistemic.numpy() for x in (trial.data.test_x, trial.data.ood_x)
    )
    parts = (hidden.std.detach() / start).quantile(torch.tensor([0.05, 0.5, 0.95]))
    return [float(np.mean(right)), measures.auroc(inside, outside), *parts.tolist()]


@torch.no_grad()
def one_sigma_a_layer(net: Any) -> None:
    """Give the weights of a layer, and its biases, their mean variance."""
    for pair in net.pairs():
        pair.std.fill_(float(pair.std.square().mean().sqrt()))


if __name__ == "__main__":
    main()
