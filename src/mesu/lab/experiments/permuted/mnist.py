"""Permuted MNIST (Fig. 3): 784 pixels shuffled anew for each task, one example at a time, 50 hidden units."""

from dataclasses import dataclass
from typing import Any, ClassVar

from mesu.lab.data import fashion_mnist, mnist
from mesu.lab.experiments.permuted import shared as permuted
from mesu.lab.streams import Permuted


@dataclass(frozen=True)
class PermutedMNIST:
    """Settings of `mesu run permuted-mnist`: the paper's table, and the published run where the two differ."""

    tasks: int = 200  # permutations, learned one after the other
    seeds: int = 5  # runs, each with its own permutations and first weights
    learners: tuple[str, ...] = ("mesu", "ewc-online", "si", "foo-vb", "ewc-stream", "sgd")  # who takes part
    epochs: int = 1  # times that each task's 60,000 examples are shown
    hidden: int = 50  # hidden units of the one layer
    samples: int = 10  # Monte Carlo samples of a training step
    test_samples: int = 10  # Monte Carlo samples of a prediction
    all_tasks_every: int = 10  # tasks between tests on all tasks so far; the last five are tested after each
    memory: tuple[float, ...] = (300_000,)  # N of MESU, in updates: five tasks; several are run side by side
    prior_std: float = 1.0  # prior of MESU
    max_step: float | None = None  # trust region of MESU and FOO-VB, in units of sigma; none
    update: str = "paper"  # MESU's step: exact or paper
    init_scale: float = 1.0  # start of MESU and FOO-VB: what the paper's first sigma, 2/sqrt(fan_in), is multiplied by
    estimator: str = "local"  # how MESU and FOO-VB draw: local, or weights as the paper does
    sgd_lr: float = 0.002  # learning rate of SGD
    ewc_online_lr: float = 0.002  # learning rate of EWC Online
    ewc_online_strength: float = 2.0  # its lambda
    ewc_online_decay: float = 0.2  # its gamma
    ewc_stream_lr: float = 0.002  # learning rate of EWC Stream
    ewc_stream_strength: float = 5.0  # its lambda
    ewc_stream_decay: float = 0.2  # its gamma
    si_lr: float = 0.002  # learning rate of SI in the published run; the paper's table says 0.005
    si_strength: float = 1e-4  # its c in the published run; the paper's table says 1e-9

    name = "permuted-mnist"
    stage_name = "tasks"
    scales: ClassVar[dict[str, dict[str, Any]]] = {
        "smoke": {"tasks": 2, "seeds": 1},
        "small": {"tasks": 20, "seeds": 3},  # some minutes on two cores
        "paper": {},  # about an hour and a quarter on two cores
    }

    def check(self) -> None:
        """Refuse settings that cannot run, before anything is started."""
        fashion_mnist()
        permuted.check(self, mnist())

    @property
    def contestants(self) -> tuple[str, ...]:
        """The learners, MESU once for each memory."""
        return permuted.contestants(self)

    @property
    def stages(self) -> int:
        """One a task."""
        return self.tasks

    def trial(self, contestant: str, seed: int) -> permuted.PermutedTrial:
        """One learner with one seed; the outliers are Fashion-MNIST's test images."""
        stream = Permuted(mnist(), self.tasks, seed)
        return permuted.PermutedTrial(self, stream, fashion_mnist().x_test, contestant, seed)
