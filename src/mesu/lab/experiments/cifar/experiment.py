"""CIFAR (Fig. 5): a convolutional network, a head for each task; the tasks come whole, or in slices that take turns.

With one split the tasks follow each other. With sixteen each is cut into sixteen slices, and the network meets the first slice
of every task, then the second of every task, and so on: boundaries are then everywhere, and mean little.
"""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from mesu import measures, optim
from mesu.lab.data import cifar10, cifar100
from mesu.lab.entry import Entry
from mesu.lab.experiments import checks
from mesu.lab.experiments.cifar.conv_net import ConvNet
from mesu.lab.experiments.learners import Choice, make_learner
from mesu.lab.streams import FirstExamples, InTurn, MultiHead, Splits, Stream, Task
from mesu.lab.table import Row
from mesu.learners import Learner

LEARNERS = ("mesu", "mesu-exact", "ewc", "ewc-online", "si", "adam")

SMOKE = {"images": 400, "epochs": 1, "splits": (1,), "width": 4, "batch": 100, "samples": 2, "test_samples": 2}
# As many images a class and as many epochs as ten of the paper's eleven tasks have. In split-cifar10 the first task makes up
# half of all updates, as the paper's does; in cifar that would double the run. Batches are small, since the number of steps
# matters more than the size of a batch, and there are half the channels. MESU's first sigmas are three tenths of the paper's,
# for less noise; the trust region is wider by the same factor, and the rates match. Its memory is longer than the run: from
# such small sigmas, forgetting would widen those that evidence has not narrowed yet. One sample of twenty images says little
# about sigma, so no sigma may grow beyond its start.
SMALL_EACH = 500  # images of a class, about: the first of a task are taken as they come
SMALL = {
    "splits": (1, 16),
    "epochs": 60,
    "width": 16,
    "batch": 20,
    "estimator": "local",
    "samples": 1,
    "test_samples": 4,
    "memory": 33_000_000,
    "lr_mean": 36.0,
    "lr_std": 220.0,
    "max_step": 0.07,
    "max_std": "start",
    "init_scale": 0.3,
    "exact_init_scale": 0.1,
    "exact_lr_mean": 80.0,
}


@dataclass(frozen=True)
class Convolutional:
    """Settings that both CIFAR experiments share: the paper's table, and the published run where the two differ."""

    splits: tuple[int, ...] = (1, 2, 4, 8, 16)  # slices of each task; every number is a run of its own
    seeds: int = 1  # runs, each with its own first weights and noise
    learners: tuple[str, ...] = ("mesu", "ewc", "si", "adam")  # who takes part; also mesu-exact, ewc-online
    images: int | None = None  # of each task to learn from, the first ones; None is all
    first_images: int | None = None  # the same for the first task, if it shall have more or fewer than the rest
    epochs: int = 60  # times that each slice is shown
    # images an update; what does not fill a batch is left out. MESU and SI sum their losses, Adam and EWC take the mean
    batch: int = 200
    width: int = 32  # channels of the first convolutions
    samples: int = 8  # Monte Carlo samples of a training step
    test_samples: int = 8  # Monte Carlo samples of a prediction
    estimator: str = "weights"  # how MESU draws: weights as the paper does, or local
    memory: float = 500_000  # N of MESU, in updates
    prior_std: float = 1.0  # its prior
    lr_mean: float = 5.0  # rate of its means
    lr_std: float = 132.0  # rate of its sigmas: 66 in the paper's table, where the half is left out
    max_step: float | None = 0.02  # its trust region, which the paper does not mention
    max_std: float | str | None = (
        1.0  # widest sigma of both MESUs, as published; start: what each parameter starts from
    )
    init_scale: float = 1.0  # its start, times the paper's 1/(2 sqrt(fan_out))
    exact_init_scale: float = (
        0.24  # start of mesu-exact, which has no clip and no rate of sigma, times 1/(2 sqrt(fan_out))
    )
    exact_lr_mean: float = 1.0  # its rate of the means
    adam_lr: float = 0.001  # learning rate of Adam, EWC and SI
    ewc_strength: float = 5.0  # lambda of EWC and EWC Online, beside the mean of the losses
    ewc_decay: float = 0.2  # gamma of EWC Online
    si_strength: float = 0.06  # c of SI
    si_damping: float = 0.001  # its xi
    device: str = "cpu"  # where to learn: cpu, cuda, ...

    name: ClassVar[str]
    stage_name: ClassVar[str] = "epochs"
    defaults_before: ClassVar[dict[str, Any]] = {
        "max_std": None
    }  # of runs that were started before there was the setting
    tasks: ClassVar[int]
    classes: ClassVar[int]  # of a task

    def stream(self) -> Stream:
        """The tasks, uncut."""
        raise NotImplementedError

    def sliced(self, splits: int) -> Splits:
        """The tasks as they are learned."""
        return Splits(FirstExamples(self.stream(), self.images, self.first_images), splits)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every learner with every number of splits."""
        return tuple(
            Entry(learner, "splits", splits, cost=self.samples if learner.startswith("mesu") else 1)
            for splits in self.splits
            for learner in self.learners
        )

    @property
    def stages(self) -> int:
        """One for every task's worth of images, so that there are as many stages whatever the number of splits."""
        return self.epochs * self.tasks

    def check(self) -> None:
        """Refuse settings that cannot run, before anything is started."""
        checks.at_least_one(
            self, "seeds", "epochs", "batch", "width", "samples", "test_samples", "images", "first_images"
        )
        checks.all_different(self, "learners", "splits")
        if min(self.splits) < 1:
            raise ValueError(f"splits must be 1 or more, got {min(self.splits)!r}")
        check_device(self.device)
        for entry in self.entries:
            checks.can_be_made(entry, choices(self))
        smallest = min(len(task.y_train) for task in self.sliced(max(self.splits)))
        if smallest < self.batch:
            raise ValueError(
                f"with {max(self.splits)} splits a slice has {smallest} images, which is less than a batch of {self.batch}: "
                "take fewer splits, a smaller batch, or more images"
            )

    def trial(self, entry: Entry, seed: int) -> "ConvolutionalTrial":
        """One learner with one number of splits and one seed."""
        return ConvolutionalTrial(self, entry, seed)


@dataclass(frozen=True)
class SplitCIFAR10(Convolutional):
    """Settings of `mesu run split-cifar10`: five tasks of two classes each, by the paper's method."""

    name: ClassVar[str] = "split-cifar10"
    about: ClassVar[str] = (
        "Split CIFAR-10 (after Fig. 5): two classes at a time, a convolutional network, a head for each; no GPU needed."
    )
    tasks: ClassVar[int] = 5
    classes: ClassVar[int] = 2
    scales: ClassVar[dict[str, dict[str, Any]]] = {
        "smoke": SMOKE,
        "small": {**SMALL, "images": 2 * SMALL_EACH, "first_images": 8 * SMALL_EACH},  # the first: half of all updates
        "paper": {},
    }

    def stream(self) -> Stream:
        """Two classes at a time."""
        return MultiHead(cifar10(), self.classes)


@dataclass(frozen=True)
class CIFAR(Convolutional):
    """Settings of `mesu run cifar`: CIFAR-10, then ten tasks of ten classes of CIFAR-100."""

    name: ClassVar[str] = "cifar"
    about: ClassVar[str] = (
        "CIFAR (Fig. 5): CIFAR-10, then ten tasks of CIFAR-100, whole or in slices; a convolutional network, a head for each."
    )
    tasks: ClassVar[int] = 11
    classes: ClassVar[int] = 10
    scales: ClassVar[dict[str, dict[str, Any]]] = {
        "smoke": SMOKE,
        "small": {**SMALL, "images": 10 * SMALL_EACH},
        "paper": {},
    }

    def stream(self) -> Stream:
        """Ten classes at a time."""
        return InTurn([MultiHead(cifar10(), self.classes), MultiHead(cifar100(), self.classes)])


class ConvolutionalTrial:
    """One learner with one number of splits; a stage is as many epochs of slices as make up an epoch of a whole task."""

    def __init__(self, settings: Convolutional, entry: Entry, seed: int) -> None:
        self.settings, self.learner, self.splits, self.seed = settings, entry.learner, int(entry.get("splits", 1)), seed
        self.stream = settings.sliced(self.splits)
        self.model: Any = learner(settings, entry.learner, len(self.stream.stream), seed)
        self.row = partial(Row, settings.name, entry.label, seed)
        self.updates = torch.zeros((), dtype=torch.int64)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The learner's tensors, and how many updates it has made."""
        return {**self.model.tensors(), "updates": self.updates.clone()}

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore the learner and the number of updates."""
        self.updates = tensors["updates"].clone()
        self.model.restore({name: value for name, value in tensors.items() if name != "updates"})

    def stage(self, index: int) -> Iterator[Row]:
        """Learn some epochs of slices; where a slice ends, tell learners that need boundaries, and test."""
        torch.manual_seed(
            hash((self.seed, index)) % 2**63
        )  # of dropout, so that a stage does not depend on how it came to be
        epochs = self.settings.epochs
        for turn in range(index * self.splits, (index + 1) * self.splits):
            piece, epoch = divmod(turn, epochs)
            task = self.stream[piece]
            x, y = self.batches(task, epoch)
            self.train(True)
            self.model.learn(x, y, head=task.head)
            self.updates += len(y) // self.settings.batch
            if epoch == epochs - 1:
                self.end(task)
                yield from self.test(piece, task)

    def batches(self, task: Task, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The slice in this epoch's order, without what does not fill a batch."""
        order = np.random.default_rng([self.seed, task.index, epoch]).permutation(len(task.y_train))
        order = order[: len(order) // self.settings.batch * self.settings.batch]
        # channels last in memory, which torch sees by the strides: a tenth faster on a CPU
        x = np.ascontiguousarray(task.x_train[order].transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        return x, task.y_train[order]

    def end(self, task: Task) -> None:
        """Tell the learner that a slice has ended, with dropout on, as in the published run."""
        self.train(True)
        self.model.boundary(task.x_train, task.y_train, head=task.head)
        if self.learner == "si":
            self.model.optimizer.inner.state.clear()  # Adam starts anew after every task, as in the published run

    def train(self, mode: bool) -> None:
        """Switch dropout on or off."""
        self.model.net.train(mode)

    def test(self, piece: int, task: Task) -> Iterator[Row]:
        """Test after a slice: its own task or, if tasks are not cut, all tasks so far; at the end, all tasks."""
        whole = self.stream.stream
        row = partial(self.row, int(self.updates), piece)
        last = piece == len(self.stream) - 1
        tested = range(len(whole)) if last else range(piece + 1) if self.splits == 1 else [task.head]
        self.train(False)
        scores = {}
        for index in tested:
            one = whole[index]
            prediction = self.model.predict(one.x_test, self.settings.test_samples, head=one.head)
            scores[index] = measures.accuracy(prediction.probs.cpu().numpy(), one.y_test)
            yield row(index, "task_accuracy", scores[index])
        if last:
            yield row(None, "mean_accuracy", float(np.mean(list(scores.values()))))


def check_device(name: str) -> None:
    """Refuse a device that torch does not know, or that cannot be used on this machine.

    Raises:
        ValueError: if it is one.
    """
    with warnings.catch_warnings(action="ignore"):  # of drivers that are missing or too old: the error says it
        try:
            device = torch.device(name)
        except RuntimeError as error:
            raise ValueError(
                f"there is no device {name!r}: choose cpu, cuda, cuda:1, mps or another of torch's"
            ) from error
        try:
            torch.zeros(1, device=device).item()
        except Exception as error:  # each kind of device has its own: AssertionError, RuntimeError, ImportError, ...
            why = str(error).partition("\n")[0].partition(". ")[0].rstrip(".")
            raise ValueError(
                f"device {name!r} cannot be used here ({why}): choose --device cpu, or a machine and a torch that have it"
            ) from error


def learner(settings: Convolutional, name: str, heads: int, seed: int) -> Learner:
    """A fresh learner of so many heads."""
    s = settings
    network = partial(ConvNet, heads, s.classes, s.width)
    return make_learner(name, choices(s), network, seed, s.samples, s.batch, s.device, engine=False)


def choices(settings: Convolutional) -> dict[str, Choice]:
    """The learners."""
    s, rate, adam = settings, settings.adam_lr, torch.optim.Adam
    mesu: dict[str, Any] = {"memory": s.memory, "prior_std": s.prior_std, "max_std": s.max_std}
    paper: dict[str, Any] = {"lr_mean": s.lr_mean, "lr_std": s.lr_std, "max_step": s.max_step}

    def posterior(init_scale: float) -> dict[str, Any]:
        return {"estimator": s.estimator, "init": "cifar", "init_scale": init_scale}

    return {
        "mesu": Choice(lambda net: optim.MESU(net, **mesu, **paper, update="paper"), posterior(s.init_scale)),
        "mesu-exact": Choice(
            lambda net: optim.MESU(net, **mesu, lr_mean=s.exact_lr_mean, max_step=None), posterior(s.exact_init_scale)
        ),
        # the mean of the losses, as in the paper's table: beside a sum over the batch, lambda would act `batch` times less
        "ewc": Choice(lambda weights: optim.EWC(weights, rate, s.ewc_strength, inner=adam), mean=True),
        "ewc-online": Choice(
            lambda weights: optim.EWCOnline(weights, rate, s.ewc_strength, s.ewc_decay, inner=adam), mean=True
        ),
        # SI's importances grow with its losses, so that Adam makes the same steps of their sum and of their mean
        "si": Choice(lambda weights: optim.SIPerTask(weights, rate, s.si_strength, s.si_damping, inner=adam)),
        "adam": Choice(lambda weights: adam(weights, rate), mean=True),
    }
