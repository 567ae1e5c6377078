"""Accuracy on the first tasks of Split CIFAR-10 after every epoch, for one learner: how settings were tried.

    python benchmarks/conv_trial.py --learner mesu --epochs 2 --tasks 1 estimator=weights samples=8

Settings that are not given are those of docs/results/split-cifar10-all-images, with all images of a task: `--scale small`
changed by `EQUAL_TASKS` and `ALL_IMAGES`. Test images are those of the tasks.

    python benchmarks/conv_trial.py --epochs 6 --tasks 3 --put-back                 # which layer forgets
    python benchmarks/conv_trial.py --epochs 6 --tasks 3 --evidence third=5 --put-back  # and if one learns more of sigma

`--put-back` ends with the first task's accuracy when the weights of one layer, or of all convolutions, are again what they
were when that task had been learned. `--evidence` multiplies `lr_std` of a layer of MESU's, and its memory as well, so that
what it knows fades as before: its sigmas narrow as they would after so many times the images.
"""

import argparse
import contextlib
import dataclasses
import time
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import torch

from mesu import measures, optim
from mesu.lab.entry import Entry
from mesu.lab.experiments.cifar.experiment import SplitCIFAR10
from mesu.learners import BayesianLearner

LAYERS = {"first": "body.0.", "second": "body.2.", "third": "body.6.", "fourth": "body.8.", "hidden": "body.13."}
# the settings of docs/results/split-cifar10-equal-tasks
EQUAL_TASKS: dict[str, Any] = {**SplitCIFAR10.scales["small"], "first_images": None}
ALL_IMAGES: dict[str, Any] = {
    "images": None,
    "memory": 20_000_000.0,
    "lr_mean": 80.0,
    "lr_std": 132.0,
    "max_step": 0.2,
    "max_std": None,
    "init_scale": 0.1,
}
BACK = {name: (prefix,) for name, prefix in LAYERS.items()} | {
    "all convolutions": tuple(prefix for name, prefix in LAYERS.items() if name != "hidden"),
    "all": ("",),
}


def main() -> None:
    """Print a line for each epoch."""
    parser = argparse.ArgumentParser(description="Accuracy on the first tasks of Split CIFAR-10 after every epoch.")
    parser.add_argument("settings", nargs="*", help="name=value, as in mesu run split-cifar10")
    parser.add_argument("--learner", default="mesu")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--test-samples", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--evidence", action="append", default=[], metavar="LAYER=TIMES")
    parser.add_argument("--put-back", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.evidence and given.learner != "mesu":
        parser.error(f"--evidence is for the learner mesu, got {given.learner!r}")
    base = SplitCIFAR10(**{**EQUAL_TASKS, **ALL_IMAGES})
    settings = dataclasses.replace(base, **changes(parser, given.settings))
    if given.evidence and settings.max_std == "start":
        parser.error("--evidence takes no max_std=start: give a number")
    trial: Any = settings.trial(Entry(given.learner, "splits", 1), given.seed)
    if given.evidence:
        trial.model = with_evidence(trial.model, dict(times_of(parser, pair) for pair in given.evidence))
    model, stream = trial.model, trial.stream

    def score(known: int) -> float:
        one = stream.stream[known]
        trial.train(False)
        probs = model.predict(one.x_test, given.test_samples, head=one.head).probs.cpu().numpy()
        return 100 * measures.accuracy(probs, one.y_test)

    learned: dict[str, torch.Tensor] = {}
    began, updates = time.process_time(), 0
    for number in range(given.tasks):
        task = stream[number]
        for epoch in range(given.epochs):
            order = np.random.default_rng([given.seed, task.index, epoch]).permutation(len(task.y_train))
            order = order[: len(order) // settings.batch * settings.batch]
            torch.manual_seed(1_000_000 * given.seed + 1000 * number + epoch)
            trial.train(True)
            model.learn(task.x_train[order], task.y_train[order], head=task.head)
            updates += len(order) // settings.batch
            scores = [f"{score(known):.1f}" for known in range(number + 1)]
            print(f"{updates:6,} updates: {', '.join(scores)} %  ({time.process_time() - began:.0f} CPU s)", flush=True)
        trial.end(task)
        learned = learned or weights_of(model.net)
    if given.put_back:
        for name, prefixes in BACK.items():
            now = weights_of(model.net)
            put(model.net, {key: value for key, value in learned.items() if key.startswith(prefixes)})
            print(f"first task, put back {name}: {score(0):.1f} %", flush=True)
            put(model.net, now)


def times_of(parser: argparse.ArgumentParser, pair: str) -> tuple[str, float]:
    """A layer's prefix, and how many times the evidence it shall have."""
    name, _, times = pair.partition("=")
    if name not in LAYERS:
        parser.error(f"there is no layer {name!r}: choose from {', '.join(LAYERS)}")
    try:
        return LAYERS[name], float(times)
    except ValueError:
        parser.error(f"--evidence takes LAYER=TIMES, such as third=5, got {pair!r}")


def with_evidence(model: BayesianLearner, times: dict[str, float]) -> BayesianLearner:
    """The same learner, to some of whose layers an image says more."""
    (common,) = model.optimizer.param_groups
    shared = {name: value for name, value in common.items() if name not in ("params", "names")}
    groups = [{"params": [pair for pair in model.net.pairs() if not pair.name.startswith(tuple(times))]}]
    for prefix, more in times.items():
        pairs = [pair for pair in model.net.pairs() if pair.name.startswith(prefix)]
        groups.append({"params": pairs, "lr_std": more * shared["lr_std"], "memory": more * shared["memory"]})
    return BayesianLearner(model.net, optim.MESU(groups, **shared), model.samples, model.batch, engine=False)


def weights_of(net: Any) -> dict[str, torch.Tensor]:
    """Copies of all that is learned, by the layers' own names."""
    return {name.removeprefix("module."): value.detach().clone() for name, value in net.named_parameters()}


def put(net: Any, weights: dict[str, torch.Tensor]) -> None:
    """Write some of them back."""
    with torch.no_grad():
        for name, value in net.named_parameters():
            name = name.removeprefix("module.")
            if name in weights:
                value.copy_(weights[name])


def changes(parser: argparse.ArgumentParser, pairs: list[str]) -> dict[str, Any]:
    """What the command line changes, in a type that each setting has."""
    kinds = {field.name: get_type_hints(SplitCIFAR10)[field.name] for field in dataclasses.fields(SplitCIFAR10)}
    parsed = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if name not in kinds or get_origin(kinds[name]) is tuple:
            parser.error(f"there is no setting {name!r} that can be given here")
        allowed = get_args(kinds[name]) or (kinds[name],)
        if value == "None" and NoneType in allowed:
            parsed[name] = None
        for kind in (kind for kind in allowed if kind is not NoneType):
            with contextlib.suppress(ValueError):
                parsed.setdefault(name, kind(value))
        if name not in parsed:
            parser.error(f"{name} must be {getattr(kinds[name], '__name__', kinds[name])}, got {value!r}")
    return parsed


if __name__ == "__main__":
    main()
