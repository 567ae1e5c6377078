"""A run's numbers in TensorBoard and MLflow while it goes on: the rows of its table, and after each stage sigma by layer.

Each entry and seed is a run of its own there. Logging changes no number of the run's table.
"""

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from mesu.disk import replacing
from mesu.lab.table import Row
from mesu.learners import BayesianLearner
from mesu.monitor import MLflow, TensorBoard, sigma_numbers

SINKS = ("tensorboard", "mlflow")


def check_log(names: Sequence[str], experiment: str) -> None:
    """Refuse sinks that are not known or not installed, before anything is trained.

    MLflow's experiment is made here, so that workers do not make it at the same time.

    Raises:
        ValueError: naming the sink, and what to install.
    """
    for name in names:
        if name not in SINKS:
            raise ValueError(f"log must be {' or '.join(SINKS)}, or both with a comma, got {name!r}")
    try:
        if "tensorboard" in names:
            TensorBoard.check()
        if "mlflow" in names:
            MLflow.check(experiment)
    except ImportError as error:
        raise ValueError(str(error)) from error


class TrialLog:
    """Where the numbers of one entry and seed go; with no sinks it does nothing.

    Args:
        names: Of the sinks.
        folder: The run's; event files go to its folder "tensorboard", the ids of MLflow's runs to its folder "mlflow".
        experiment: The name of the experiment, which is MLflow's too.
        label: The entry's.
        seed: The seed.
    """

    def __init__(self, names: Sequence[str], folder: Path, experiment: str, label: str, seed: int) -> None:
        own = f"{label}-{seed}"
        self._sinks: list[Any] = []
        self.is_new = True  # whether nothing of this trial has been logged yet
        if "tensorboard" in names:
            path = folder / "tensorboard" / own
            self.is_new = not path.exists()
            self._sinks.append(TensorBoard(path))
        if "mlflow" in names:
            path = folder / "mlflow" / own
            run_id = path.read_text().strip() if path.is_file() else None
            self.is_new = self.is_new and run_id is None
            sink = MLflow(experiment, f"{folder.name} {own}", run_id)
            path.parent.mkdir(exist_ok=True)
            with replacing(path, flush=False) as aside:
                aside.write_text(sink.run_id + "\n")
            self._sinks.append(sink)

    def rows(self, rows: Sequence[Row]) -> None:
        """Log rows of the table. Those of single weights, bins or photographs are left out."""
        steps: dict[int, dict[str, float]] = {}
        for row in rows:
            if row.index is None and isfinite(row.value):
                task = "" if row.on_task is None else f"/task {row.on_task}"
                steps.setdefault(row.step, {})[row.measure + task] = row.value
        for step, numbers in steps.items():
            self._log(numbers, step)

    def stage(self, rows: Sequence[Row], trial: Any) -> None:
        """Log what a stage has measured, and the sigmas of a posterior that has learned it."""
        self.rows(rows)
        model = getattr(trial, "model", None)
        if self._sinks and rows and isinstance(model, BayesianLearner):
            self._log(sigma_numbers(model.net, model.optimizer), rows[-1].step)

    def close(self) -> None:
        """Nothing more will come."""
        for sink in self._sinks:
            sink.close()

    def _log(self, numbers: dict[str, float], step: int) -> None:
        for sink in self._sinks:
            sink(numbers, step)
