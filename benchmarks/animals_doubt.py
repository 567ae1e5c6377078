"""Which kind of uncertainty separates whales from animals best: total, aleatoric or epistemic, for `mesu-slow` and SGD.

    python benchmarks/animals_doubt.py [--features effnetlite0 --start 11 --sgd-lr 0.0001] [--draws 50]

The last column counts the draws in which MESU's AUROC is above SGD's. SGD trains a single network, so all of its uncertainty is
aleatoric. The draws of photographs are the paper's.
"""

import argparse

import numpy as np
import torch
from rich.progress import track

from mesu import measures
from mesu.lab.entry import Entry
from mesu.lab.experiments.animals.experiment import AnimalFamilies

KINDS = ("total", "aleatoric", "epistemic")


def main() -> None:
    """Print a row for each kind of doubt."""
    parser = argparse.ArgumentParser(description="AUROC of whales against animals, by the kind of doubt.")
    parser.add_argument("--features", default="resnet18")
    parser.add_argument("--start", type=float, default=4.0, help="init_scale of mesu-slow")
    parser.add_argument("--sgd-lr", type=float, default=7e-5)
    parser.add_argument("--draws", type=int, default=50)
    given = parser.parse_args()
    torch.set_num_threads(1)
    settings = AnimalFamilies(features=given.features, slow_init_scale=given.start)
    entries = Entry("mesu-slow"), Entry("sgd", "sgd_lr", given.sgd_lr)
    draws = track(range(given.draws), description="draws")
    both = np.array([[aurocs(settings, entry, seed) for entry in entries] for seed in draws])
    mesu, sgd = both[:, 0], both[:, 1, KINDS.index("total")]
    print(f"SGD at {given.sgd_lr:g}: {sgd.mean():.3f}")
    print("| doubt of MESU, slow means | AUROC | above SGD |")
    print("|---|---|---|")
    for kind, values in zip(KINDS, mesu.T, strict=True):
        print(f"| {kind} | {values.mean():.3f} | {(values > sgd).sum()} of {given.draws} |")


def aurocs(settings: AnimalFamilies, entry: Entry, seed: int) -> list[float]:
    """After the last task, by each kind of doubt."""
    trial = settings.trial(entry, seed)
    for stage in range(settings.stages):
        for _ in trial.stage(stage):
            pass
    inside, outside = (trial.model.predict(x, settings.test_samples) for x in (trial.data.test_x, trial.data.ood_x))
    return [measures.auroc(getattr(inside, kind).numpy(), getattr(outside, kind).numpy()) for kind in KINDS]


if __name__ == "__main__":
    main()
