"""The contract between experiments and runs: a trial goes through its stages one by one, and can be stopped after each."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from mesu.lab.entry import Entry
from mesu.lab.table import Row


class Trial(Protocol):
    """One entry of an experiment, run with one seed."""

    def stage(self, index: int) -> Iterable[Row]:
        """Learn the next stage (a task, some epochs) and measure; in order, from 0 or from where it was restored."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a later stage depends on."""
        ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Return to the state in which these `tensors` were saved."""
        ...


@runtime_checkable
class Illustrated(Protocol):
    """A trial with pictures that belong to its rows; the run keeps them for the report."""

    def pictures(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        """The pictures that the rows of all its stages refer to, as bytes [height, width, 3], by name."""
        ...


class LearnerTrial:
    """A trial whose learner is all that changes from stage to stage."""

    model: Any  # a `mesu.learners.Learner`

    def tensors(self) -> dict[str, Tensor]:
        """The learner's tensors."""
        return self.model.tensors()

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the learner from its tensors."""
        self.model.restore(tensors)


class Experiment(Protocol):
    """The settings of an experiment: a frozen dataclass, its defaults the paper's table."""

    name: ClassVar[str]  # the name that it is registered under
    stage_name: ClassVar[str]  # what a stage is: tasks, epochs, ...
    scales: ClassVar[dict[str, dict[str, Any]]]  # settings of smoke, small and paper that differ from the defaults
    seeds: int

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries: learners, each with the value of the setting that varies."""
        ...

    @property
    def stages(self) -> int:
        """How many stages each trial has."""
        ...

    def check(self) -> None:
        """Refuse settings that cannot run, before anything is started."""
        ...

    def trial(self, entry: Entry, seed: int) -> Trial:
        """One of the entries at its start."""
        ...
