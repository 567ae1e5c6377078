"""Permuted digits: the paper's Fig. 3 in a minute, on data that ships with scikit-learn.

A small network meets the 8 x 8 digits again and again, each time with the pixels shuffled in a new way, one example at
a time. Networks that forget nothing fill up and stop learning; networks that forget everything lose the last tasks.

The defaults are each learner's best of sixteen by the accuracy on the last five tasks, mean over the stream, on seeds 10 to 12,
which the runs do not use (`benchmarks/demo_settings.py`). FOO-VB has nothing to choose. Width and number of tasks were settled
after runs on seeds 0 to 2 in which MESU did not lead (30 tasks, 50 and 100 units): an illustration, not a ranking.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from mesu.lab.data import digits
from mesu.lab.experiments.permuted import shared as permuted
from mesu.lab.streams import Permuted


@dataclass(frozen=True)
class PermutedDigits:
    """Settings of `mesu run permuted-digits`."""

    tasks: int = 50  # permutations, learned one after the other
    seeds: int = 3  # runs, each with its own permutations and first weights
    learners: tuple[str, ...] = ("mesu", "ewc-online", "si", "foo-vb", "ewc-stream", "sgd")  # who takes part
    epochs: int = 5  # times that each task's 1,437 examples are shown
    hidden: int = 100  # hidden units of the one layer
    samples: int = 10  # Monte Carlo samples of a training step
    test_samples: int = 10  # Monte Carlo samples of a prediction
    all_tasks_every: int = 1  # tasks between tests on all tasks so far; the last five are tested after each
    memory: tuple[float, ...] = (100_000,)  # N of MESU, in updates: fourteen tasks
    prior_std: float = 0.4  # prior of MESU
    max_step: float | None = None  # trust region of MESU and FOO-VB, in units of sigma; none
    update: str = "exact"  # MESU's step: exact or paper
    init_scale: float = 1.0  # start of MESU and FOO-VB: what the paper's first sigma, 2/sqrt(fan_in), is multiplied by
    estimator: str = "local"  # how MESU and FOO-VB draw: local or weights
    sgd_lr: float = 0.0008  # learning rate of SGD
    ewc_online_lr: float = 0.002  # learning rate of EWC Online
    ewc_online_strength: float = 20.0  # its lambda
    ewc_online_decay: float = 0.2  # its gamma
    ewc_stream_lr: float = 0.001  # learning rate of EWC Stream
    ewc_stream_strength: float = 100.0  # its lambda
    ewc_stream_decay: float = 0.2  # its gamma
    si_lr: float = 0.002  # learning rate of SI
    si_strength: float = 0.01  # its c

    name = "permuted-digits"
    stage_name = "tasks"
    scales: ClassVar[dict[str, dict[str, Any]]] = {
        "smoke": {"tasks": 3, "seeds": 1, "epochs": 1, "hidden": 20},  # seconds: does it run?
        "small": {},  # about a minute
        "paper": {"seeds": 5},  # the paper has no digits; five seeds, as it has everywhere
    }

    def check(self) -> None:
        """Refuse settings that cannot run, before anything is started."""
        permuted.check(self, digits())

    @property
    def contestants(self) -> tuple[str, ...]:
        """The learners, MESU once for each memory."""
        return permuted.contestants(self)

    @property
    def stages(self) -> int:
        """One a task."""
        return self.tasks

    def trial(self, contestant: str, seed: int) -> permuted.PermutedTrial:
        """One learner with one seed; the outliers are the digits in an order never learned."""
        stream = Permuted(digits(), self.tasks, seed)
        return permuted.PermutedTrial(self, stream, stream.unseen().x_test, contestant, seed)
