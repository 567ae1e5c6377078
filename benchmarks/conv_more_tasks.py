"""Twice as many tasks: Split CIFAR-10, then five more pairs of its classes, on images that were not shown before.

    python benchmarks/conv_more_tasks.py [--learner si] [--seed 0] [epochs=60 ...]

Settings that are not given are those of docs/results/split-cifar10-equal-tasks; one split. The second five tasks pair the
classes anew (the second of each pair with the first of the next), and have the images that come after those of the first five.
A learner that hardly changes loses accuracy on every new task. Prints a line after each task: its accuracy, and the mean over
all tasks so far.
"""

import argparse
import dataclasses
from typing import Any, ClassVar

import numpy as np
import torch
from conv_trial import EQUAL_TASKS, changes
from rich.progress import Progress

from mesu.lab.data import Dataset, cifar10
from mesu.lab.entry import Entry
from mesu.lab.experiments.cifar.experiment import LEARNERS, SplitCIFAR10
from mesu.lab.streams import FirstExamples, InTurn, MultiHead, Stream


@dataclasses.dataclass(frozen=True)
class TenTasks(SplitCIFAR10):
    """Split CIFAR-10 with ten tasks instead of five."""

    tasks: ClassVar[int] = 10

    def stream(self) -> Stream:
        """The five tasks, then five others."""
        data = cifar10()
        return InTurn([MultiHead(data, self.classes), MultiHead(later(data, self.images or 0), self.classes)])


def later(data: Dataset, shown: int) -> Dataset:
    """The same images by other pairs of classes, without those that the first tasks show."""
    first = FirstExamples(MultiHead(data, 2), shown)
    used = np.concatenate([np.flatnonzero(data.y_train // 2 == task.head)[: len(task.y_train)] for task in first])
    kept = np.setdiff1d(np.arange(len(data.y_train)), used)
    return dataclasses.replace(
        data,
        x_train=data.x_train[kept],
        y_train=(data.y_train[kept] - 1) % data.classes,
        y_test=(data.y_test - 1) % data.classes,
    )


def main() -> None:
    """Print a line for each task."""
    parser = argparse.ArgumentParser(description="Split CIFAR-10 with ten tasks instead of five.")
    parser.add_argument("settings", nargs="*", help="name=value, as in mesu run split-cifar10")
    parser.add_argument("--learner", choices=LEARNERS, default="mesu")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    settings = TenTasks(**{**EQUAL_TASKS, **changes(parser, given.settings)})
    trial: Any = settings.trial(Entry(given.learner, "splits", 1), given.seed)
    with Progress() as progress:
        for stage in progress.track(range(settings.stages), description=given.learner):
            rows = [row for row in trial.stage(stage) if row.measure == "task_accuracy"]
            if rows:
                mean = 100 * np.mean([row.value for row in rows])
                line = f"task {len(rows)}: {100 * rows[-1].value:.1f} % when learned, all so far {mean:.1f} %"
                progress.console.print(line, highlight=False)


if __name__ == "__main__":
    main()
