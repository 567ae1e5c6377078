"""Animals (Fig. 2): five families, and in every task a new species of each; features of photographs, one at a time.

A network learns bears, cats, poultry, wild birds and cattle from one species of each family, then from others. The families
stay the same, their looks change, and the network is not told when. Whales, which belong to no family, should be uncertain.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from typing import Any, ClassVar

import numpy as np

from mesu import measures, optim
from mesu.lab.data import Dataset
from mesu.lab.data.animals import Animals, animals
from mesu.lab.entry import Entry
from mesu.lab.experiments import checks
from mesu.lab.experiments.learners import Choice, make_learner, no_learner, perceptron, uncertainty
from mesu.lab.experiments.trial import LearnerTrial
from mesu.lab.streams import Domains, Task
from mesu.lab.table import Row
from mesu.learners import Learner
from mesu.rules.checks import positive

LEARNERS = ("mesu", "mesu-slow", "mesu-weighted", "mesu-paper", "sgd")
FAMILIES, TASKS = 5, 4
EXAMPLES = 4  # photographs that the report shows of those a learner is most sure of, and of those it doubts most
EDGES = np.geomspace(
    1e-5, log(FAMILIES), 41
)  # of the histograms of doubt, in nats; less than the first counts as the first

# The paper's fifty draws, a word a task: which of its four species each family shows, so "33123" is the fourth of bears and of
# cats, the second of poultry, the third of wild birds and the fourth of cattle.
# fmt: off
DRAWS = (
    "33123 00231 21310 12002", "23220 12032 31113 00301", "21102 32011 03223 10330", "22312 11030 00121 33203",
    "12320 03212 31001 20133", "32112 10331 23223 01000", "32311 20222 03003 11130", "01210 32103 13321 20032",
    "32230 13013 01121 20302", "32323 10232 01010 23101", "10320 23112 01031 32203", "10003 01330 23111 32222",
    "13032 01101 20210 32323", "23100 01031 10213 32322", "22310 10233 31102 03021", "13100 02023 21311 30232",
    "12232 00103 31020 23311", "11131 30303 22022 03210", "30022 01330 23211 12103", "33321 01130 12203 20012",
    "21313 33101 00022 12230", "33332 21111 00223 12000", "30002 13130 22213 01321", "32110 23222 11001 00333",
    "30021 22113 03300 11232", "30332 02201 21120 13013", "12121 00232 21000 33313", "30121 02002 11210 23333",
    "21030 02123 33311 10202", "00121 21310 33002 12233", "01112 23221 30003 12330", "01221 20030 12312 33103",
    "01223 20002 13130 32311", "01032 32111 20300 13223", "31212 02001 23333 10120", "13300 01212 22023 30131",
    "33000 21232 02111 10323", "33000 01112 20323 12231", "31230 22312 10103 03021", "01230 33121 12003 20312",
    "22303 33122 00011 11230", "21132 30023 03200 12311", "12010 01121 33202 20333", "31110 22331 10022 03203",
    "01230 33303 22121 10012", "01111 12203 33330 20022", "03131 11022 20213 32300", "00213 13121 31030 22302",
    "12131 20013 03320 31202", "23231 01313 30102 12020",
)
# fmt: on


@dataclass(frozen=True)
class AnimalFamilies:
    """Settings of `mesu run animals`: the paper's table, and the published run where the two differ."""

    features: str = "resnet18"  # resnet18 (made anew, close to the paper's), effnetlite0, or a file of your own
    seeds: int = 50  # draws of species, the paper's in its order
    first_draw: int = 0  # where to begin: from 50 on they are not the paper's, and settings can be chosen on them
    learners: tuple[str, ...] = LEARNERS  # who takes part
    epochs: int = 5  # times that each task is shown
    photographs: int = 720  # of each species in an epoch, some of them again
    hidden: int = 64  # hidden units of the one layer
    samples: int = 10  # Monte Carlo samples of a training step
    test_samples: int = 100  # Monte Carlo samples of a prediction
    memory: float = 500_000  # N of every MESU, in updates; of mesu-weighted, in photographs
    prior_std: float = 0.1  # their prior
    estimator: str = "local"  # how they draw: local, or weights as the paper does
    init_scale: tuple[float, ...] = (0.2,)  # start of mesu, which is exact, without rates or clip: times 1/sqrt(fan_in)
    slow_init_scale: float = 4.0  # start of mesu-slow: a wide one, with means that move slowly
    slow_lr_mean: float | None = None  # their rate; by default 1 / showings of a photograph, as mesu-weighted has it
    weighted_init_scale: float = 1.0  # start of mesu-weighted, to whom a photograph counts once on average
    paper_lr_std: float = 120.0  # rate of sigma of mesu-paper: 60 in the paper's table, where the half is left out
    paper_max_step: float | None = 0.5  # its trust region, which the paper does not mention
    paper_max_std: float | None = None  # its widest sigma: 0.1 in the published run, which changes next to nothing
    sgd_lr: tuple[float, ...] = (0.005, 0.001, 0.0001)  # rates of SGD: the paper's, and lower

    name = "animals"
    stage_name = "tasks"
    scales: ClassVar[dict[str, dict[str, Any]]] = {
        "smoke": {"seeds": 2, "epochs": 1},
        "small": {"seeds": 5},
        "paper": {},  # a few minutes on two cores
    }

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The learners: SGD once for each rate, MESU once for each start if there are several."""
        entries: list[Entry] = []
        for learner in self.learners:
            if learner == "sgd":
                entries += [Entry(learner, "sgd_lr", rate) for rate in self.sgd_lr]
            elif learner == "mesu" and len(self.init_scale) > 1:
                entries += [Entry(learner, "init_scale", scale, cost=self.samples) for scale in self.init_scale]
            else:
                entries.append(Entry(learner, cost=self.samples))
        return tuple(entries)

    @property
    def stages(self) -> int:
        """One a task."""
        return TASKS

    def check(self) -> None:
        """Refuse settings that cannot run, before anything is started."""
        checks.at_least_one(self, "seeds", "epochs", "photographs", "hidden", "samples", "test_samples")
        checks.all_different(self, "learners", "init_scale", "sgd_lr")
        for learner in self.learners:
            if learner not in LEARNERS:
                raise no_learner(learner, LEARNERS)
        if self.slow_lr_mean is not None:
            positive("slow_lr_mean", self.slow_lr_mean)
        if self.first_draw < 0:
            raise ValueError(f"first_draw must be 0 or more, got {self.first_draw!r}")
        data = animals(self.features)
        for entry in self.entries:
            checks.can_be_made(entry, choices(self, data, entry))

    def trial(self, entry: Entry, seed: int) -> "AnimalsTrial":
        """One learner on one draw of species."""
        return AnimalsTrial(self, entry, seed)


class AnimalsTrial(LearnerTrial):
    """One learner on one draw of species; a stage is a task."""

    def __init__(self, settings: AnimalFamilies, entry: Entry, seed: int) -> None:
        self.settings, self.data, self.draw = settings, animals(settings.features), settings.first_draw + seed
        self.stream = Domains([family_task(self.data, species, settings.photographs) for species in drawn(self.draw)])
        self.model: Any = learner(settings, self.data, entry, self.draw)
        self.row = partial(Row, settings.name, entry.label, self.draw)

    def stage(self, index: int) -> Iterator[Row]:
        """Learn one task, then test all four, learned or not, and measure the uncertainty on animals and on whales."""
        settings, task = self.settings, self.stream[index]
        for epoch in range(settings.epochs):
            self.model.learn(*shuffled(task, self.draw, epoch))
        self.model.boundary(task.x_train, task.y_train)
        row = partial(self.row, (index + 1) * settings.epochs * len(task.y_train), index)
        for tested in self.stream:
            prediction = self.model.predict(tested.x_test, settings.test_samples)
            yield row(tested.index, "accuracy", measures.accuracy(prediction.probs.numpy(), tested.y_test))
        on_animals, on_whales = (
            self.model.predict(x, settings.test_samples) for x in (self.data.test_x, self.data.ood_x)
        )
        inside, outside = (uncertainty(self.model, prediction) for prediction in (on_animals, on_whales))
        yield row(None, "ood_auroc", measures.auroc(inside, outside))
        if index == TASKS - 1:
            for name, doubt in (("doubt_inside", inside), ("doubt_outside", outside)):
                counts, _ = np.histogram(np.clip(doubt, EDGES[0], EDGES[-1]), EDGES)
                for place, count in enumerate(counts):
                    yield row(None, name, count / len(doubt), place)
            if self.draw == settings.first_draw and self.data.test_pictures is not None:
                for name, prediction, doubt in (("animal", on_animals, inside), ("whale", on_whales, outside)):
                    for place in examples(doubt):
                        yield row(None, f"example_{name}", float(doubt[place]), place)
                        yield row(None, f"example_{name}_answer", float(prediction.probs[place].argmax()), place)
                        if name == "animal":
                            yield row(None, "example_animal_species", float(self.data.test_y[place]), place)

    def pictures(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        """The photographs of the examples: animal-17 is row 17 of the test set, whale-3 is row 3 of the whales."""
        photographs = {"animal": self.data.test_pictures, "whale": self.data.ood_pictures}
        return {
            f"{name}-{row.index}": of_these[row.index]
            for name, of_these in photographs.items()
            if of_these is not None
            for row in rows
            if row.measure == f"example_{name}" and row.index is not None
        }


def examples(doubt: np.ndarray) -> list[int]:
    """Which photographs to show: those doubted least and those doubted most, by rising doubt; no photograph twice."""
    order = np.argsort(doubt, kind="stable").tolist()
    return order if len(order) <= 2 * EXAMPLES else order[:EXAMPLES] + order[-EXAMPLES:]


def drawn(seed: int) -> list[list[int]]:
    """The species of each task, by number: one of each family, all of them in the end. Beyond the paper's draws, others."""
    if seed < len(DRAWS):
        choice = [[int(digit) for digit in word] for word in DRAWS[seed].split()]
    else:
        rng = np.random.default_rng(seed)
        choice = np.array([rng.permutation(TASKS) for _ in range(FAMILIES)]).T.tolist()
    return [[family + FAMILIES * which for family, which in enumerate(task)] for task in choice]


def family_task(data: Animals, species: list[int], photographs: int) -> Dataset:
    """The photographs of some species, labelled by family: as many of each to learn, repeated from the first if need be."""
    chosen = np.concatenate([np.resize(np.flatnonzero(data.train_y == one), photographs) for one in species])
    tested = np.flatnonzero(np.isin(data.test_y, species))
    return Dataset(
        "animals",
        data.train_x[chosen],
        data.train_y[chosen] % FAMILIES,
        data.test_x[tested],
        data.test_y[tested] % FAMILIES,
        FAMILIES,
    )


def shuffled(task: Task, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    """A task's examples in the order of one epoch."""
    order = np.random.default_rng([seed, task.index, epoch]).permutation(len(task.y_train))
    return task.x_train[order], task.y_train[order]


def example_weight(settings: AnimalFamilies, species: np.ndarray) -> float:
    """The weight of a showing, so that photographs of these species count once on average, however often they are shown."""
    each = np.unique(species, return_counts=True)[1]
    return float(np.minimum(each, settings.photographs).sum() / (len(each) * settings.photographs * settings.epochs))


def learner(settings: AnimalFamilies, data: Animals, entry: Entry, seed: int) -> Learner:
    """A fresh learner."""
    network = partial(perceptron, data.train_x.shape[1], settings.hidden, FAMILIES, bias=True)
    return make_learner(entry.learner, choices(settings, data, entry), network, seed, settings.samples)


def choices(settings: AnimalFamilies, data: Animals, entry: Entry) -> dict[str, Choice]:
    """The learners; the entry's rate and start where it has one."""
    s, once = settings, example_weight(settings, data.train_y)
    size = float(np.sqrt(np.mean(np.square(data.train_x))))
    rate, start = entry.get("sgd_lr", s.sgd_lr[0]), entry.get("init_scale", s.init_scale[0])
    slow = once if s.slow_lr_mean is None else s.slow_lr_mean

    def exact(scale: float, lr_mean: float, lr_std: float) -> Choice:
        rates: dict[str, Any] = {"lr_mean": lr_mean, "lr_std": lr_std, "max_step": None}
        return Choice(
            lambda net: optim.MESU(net, s.memory, prior_std=s.prior_std, **rates),
            {"estimator": s.estimator, "init_scale": scale, "input_scale": size},
        )

    paper: dict[str, Any] = {"lr_std": s.paper_lr_std, "max_step": s.paper_max_step, "max_std": s.paper_max_std}
    return {
        "mesu": exact(start, 1.0, 1.0),
        "mesu-slow": exact(s.slow_init_scale, slow, 1.0),  # a mean counts a photograph once, its sigma every showing
        "mesu-weighted": exact(s.weighted_init_scale, once, once),
        "mesu-paper": Choice(
            lambda net: optim.MESU(net, s.memory, prior_std=s.prior_std, update="paper", **paper),
            {"estimator": s.estimator, "init": "cifar"},
        ),
        "sgd": Choice(lambda weights: optim.SGD(weights, rate)),
    }
