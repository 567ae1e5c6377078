"""Accuracy on the first tasks of Split CIFAR-10 after every epoch, for one learner: how settings were tried.

    python benchmarks/conv_trial.py --learner mesu --epochs 2 --tasks 1 estimator=weights samples=8

Settings that are not given are those of `mesu run split-cifar10 --scale small`. Images to test are those of the tasks.
"""

import argparse
import dataclasses
import time
from typing import Any

import numpy as np
import torch

from mesu import measures
from mesu.experiments.cifar import SplitCIFAR10, make_learner


def main() -> None:
    """Print a line for each epoch."""
    parser = argparse.ArgumentParser(description="Accuracy on the first tasks of Split CIFAR-10 after every epoch.")
    parser.add_argument("settings", nargs="*", help="name=value, as in mesu run split-cifar10")
    parser.add_argument("--learner", default="mesu")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--test-samples", type=int, default=2)
    given = parser.parse_args()
    settings = dataclasses.replace(SplitCIFAR10(**SplitCIFAR10.scales["small"]), **changes(parser, given.settings))
    torch.set_num_threads(1)
    stream = settings.sliced(1)
    model: Any = make_learner(settings, given.learner, len(stream.stream), seed=0)
    began, updates = time.process_time(), 0
    for number in range(given.tasks):
        task = stream[number]
        for epoch in range(given.epochs):
            order = np.random.default_rng([0, task.index, epoch]).permutation(len(task.y_train))
            order = order[: len(order) // settings.batch * settings.batch]
            torch.manual_seed(1000 * number + epoch)
            model.net.train(True)
            model.learn(task.x_train[order], task.y_train[order], head=task.head)
            model.net.train(False)
            updates += len(order) // settings.batch
            scores = []
            for known in range(number + 1):
                one = stream.stream[known]
                probs = model.predict(one.x_test, given.test_samples, head=one.head).probs.cpu().numpy()
                scores.append(f"{100 * measures.accuracy(probs, one.y_test):.1f}")
            print(f"{updates:6,} updates: {', '.join(scores)} %  ({time.process_time() - began:.0f} CPU s)", flush=True)
        model.boundary(task.x_train, task.y_train, head=task.head)


def changes(parser: argparse.ArgumentParser, pairs: list[str]) -> dict[str, Any]:
    """What the command line changes, in the type that each setting has."""
    kinds = {field.name: type(field.default) for field in dataclasses.fields(SplitCIFAR10)}
    parsed = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if name not in kinds or kinds[name] not in (int, float, str):
            parser.error(f"there is no setting {name!r} that can be given here")
        try:
            parsed[name] = kinds[name](value)
        except ValueError:
            parser.error(f"{name} must be of type {kinds[name].__name__}, got {value!r}")
    return parsed


if __name__ == "__main__":
    main()
