"""What to watch while a network learns: the cost of a row, sigma by layer, what is remembered, and how many steps were cut.

`Monitor` collects the numbers, and gives them to sinks. A sink is any function ``sink(numbers, step)``, where `numbers` maps
names to numbers; `TensorBoard` and `MLflow` are two of them, which need their packages only when they are made.

    cost                    of a row, averaged since the last time
    steps cut               share of the moving weights whose mean went as far as `max_step` let it; of rules that have one
    sigma/LAYER/median      and "low", "high": 5 % of the layer's sigmas are below, above
    memory/LAYER/free       and "consolidated", "at prior": shares of the weights, as in `mesu.memory_report`
    memory/window           how many updates still count

LAYER is "all" for the whole network.
"""

import re
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from os import PathLike
from typing import Any

from torch import Tensor, nn

from mesu.memory import Layer, layers_of, memory_report
from mesu.optim import PosteriorOptimizer
from mesu.posterior.bayesian import Bayesian
from mesu.posterior.wrapped import posterior_or_plain
from mesu.rules.checks import whole

Sink = Callable[[Mapping[str, float], int], Any]
MOST_AT_ONCE = 1000  # numbers that MLflow takes in one request
NOT_A_NAME = re.compile(r"[^\w\-. :/]")  # characters that MLflow refuses in a metric's name


class Monitor:
    """Gives sinks the numbers of a training loop, every so many updates.

    Call it once an update, after the optimiser's step. It changes nothing of what is learned. On several processes, make it on
    the first one only.

    Args:
        net: The network: a `Bayesian`, or one wrapped by `torch.compile`, DDP or AveragedModel.
        optimizer: The posterior optimiser that moves it.
        *sinks: What takes the numbers: functions ``sink(numbers, step)``.
        every: Updates from one time to the next.
        updates: How many updates there have been, for a loop that goes on after a checkpoint.

    Example:
        >>> net = mesu.Bayesian(nn.Linear(4, 3), seed=0)
        >>> opt = mesu.MESU(net, memory=1000)
        >>> monitor = mesu.Monitor(net, opt, lambda numbers, step: print(step, round(numbers["memory/window"], 2)), every=2)
        >>> for _ in range(4):
        ...     cost = net.nll(torch.ones(1, 4), torch.tensor([2]))
        ...     cost.backward()
        ...     opt.step(); opt.zero_grad()
        ...     monitor(cost, rows=1)
        2 2.0
        4 3.99
    """

    def __init__(self, net: nn.Module, optimizer: Any, *sinks: Sink, every: int = 100, updates: int = 0) -> None:
        inner = posterior_or_plain(net)
        if not isinstance(inner, Bayesian):
            raise TypeError(f"a monitor watches a mesu.Bayesian, got {type(net).__name__}, which has no sigmas")
        while not isinstance(optimizer, PosteriorOptimizer) and hasattr(optimizer, "optimizer"):
            optimizer = optimizer.optimizer  # accelerate's
        if not isinstance(optimizer, PosteriorOptimizer):
            raise TypeError(
                f"a monitor watches a posterior optimiser such as mesu.MESU, got {type(optimizer).__name__}"
            )
        wrong = next((sink for sink in sinks if not callable(sink)), None)
        if wrong is not None:
            raise TypeError(f"a sink must be a function sink(numbers, step), got {type(wrong).__name__}")
        self.net, self.optimizer, self.sinks = inner, optimizer, sinks
        self.every, self.updates = whole("every", every), whole("updates", updates, 0)
        self._cost: Any = 0.0  # a tensor on the network's device: adding to it waits for nothing
        self._rows = 0
        self._ask()

    def __call__(self, cost: Tensor | float | None = None, rows: int = 1, updates: int = 1) -> None:
        """An update has been made, or several by a learner.

        Args:
            cost: What was differentiated: summed over the rows. None where it is not known, as in compiled code.
            rows: Of the batch.
            updates: How many were made.
        """
        if cost is not None:
            self._cost = self._cost + (cost.detach() if isinstance(cost, Tensor) else cost)
            self._rows += whole("rows", rows)
        before = self.updates // self.every
        self.updates += whole("updates", updates)
        if self.updates // self.every > before:
            numbers = self.numbers()
            for sink in self.sinks:
                sink(numbers, self.updates)
            self._cost, self._rows = 0.0, 0
        self._ask()

    def numbers(self) -> dict[str, float]:
        """The numbers as they are now."""
        numbers = {"cost": float(self._cost) / self._rows} if self._rows else {}
        cut = self.optimizer.share_cut
        if cut is not None:
            numbers["steps cut"] = cut
        return numbers | sigma_numbers(self.net, self.optimizer, self.updates)

    def _ask(self) -> None:
        """Let the optimiser look whether steps are cut, at the next one if that is told of."""
        self.optimizer.looks_at_cuts = (self.updates + 1) % self.every == 0
        self.optimizer.share_cut = None


def sigma_numbers(net: Bayesian, optimizer: PosteriorOptimizer, updates: int | None = None) -> dict[str, float]:
    """Sigma by layer, and what is remembered if the rule forgets.

    Args:
        net: The network.
        optimizer: What moves it.
        updates: How often it was updated, if that is known.
    """
    numbers: dict[str, float] = {}
    forgets = all("memory" in group and "prior_std" in group for group in optimizer.param_groups)
    memories = {group.get("memory") for group in optimizer.param_groups}
    if forgets and len(memories) == 1:
        report = memory_report(net, optimizer, updates)
        for layer in (*report.layers, report.all):
            numbers |= _of_sigmas(layer)
            shares = {"free": layer.free, "consolidated": layer.consolidated, "at prior": layer.at_prior}
            numbers |= {f"memory/{layer.name}/{kind}": share for kind, share in shares.items()}
        if report.window is not None:
            numbers["memory/window"] = report.window
        return numbers
    for layer in layers_of(net):
        numbers |= _of_sigmas(layer)
    return numbers


def _of_sigmas(layer: Layer) -> dict[str, float]:
    return {f"sigma/{layer.name}/{which}": getattr(layer, which) for which in ("low", "median", "high")}


class TensorBoard:
    """A sink that writes event files for TensorBoard: ``tensorboard --logdir FOLDER`` shows them.

    Args:
        folder: Where they go.

    Raises:
        ImportError: without the package, which ``pip install 'mesu[tensorboard]'`` brings.
    """

    def __init__(self, folder: str | PathLike) -> None:
        self._writer = self.check()(str(folder))

    @staticmethod
    def check() -> Any:
        """Whether it can be used: torch's writer, or an `ImportError`."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError("logging to TensorBoard needs tensorboard: pip install 'mesu[tensorboard]'") from error
        return SummaryWriter

    def __call__(self, numbers: Mapping[str, float], step: int) -> None:
        """Write the numbers of a step; they are on disk when it returns."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class MLflow:
    """A sink that logs metrics to an MLflow run: the one that is active, or a new one, which `close` ends.

    A character that MLflow does not allow in a name becomes "_".

    Args:
        experiment: The experiment of a new run, which is made if there is none of that name; None is MLflow's default.
        name: Of a new run.
        run_id: Go on with this run.

    Raises:
        ImportError: without the package, which ``pip install 'mesu[mlflow]'`` brings.
    """

    def __init__(self, experiment: str | None = None, name: str | None = None, run_id: str | None = None) -> None:
        self._mlflow, number = self.check(experiment or "Default")
        self._client = self._mlflow.MlflowClient()
        active = self._mlflow.active_run() if run_id is None and experiment is None and name is None else None
        self._is_ours = active is None
        if active is not None:
            run_id = active.info.run_id
        self.run_id: Any = run_id or self._client.create_run(number, run_name=name).info.run_id

    @staticmethod
    def check(experiment: str = "Default") -> tuple[Any, str]:
        """Whether it can be used: the package, and the number of the experiment, which is made; or an `ImportError`."""
        try:
            mlflow = import_module("mlflow")
        except ImportError as error:
            raise ImportError("logging to MLflow needs mlflow: pip install 'mesu[mlflow]'") from error
        client: Any = mlflow.MlflowClient()
        found = client.get_experiment_by_name(experiment)
        return mlflow, client.create_experiment(experiment) if found is None else found.experiment_id

    def __call__(self, numbers: Mapping[str, float], step: int) -> None:
        """Log the numbers of a step."""
        now = int(1000 * time.time())
        metric = self._mlflow.entities.Metric
        metrics = [metric(NOT_A_NAME.sub("_", name), value, now, step) for name, value in numbers.items()]
        for at in range(0, len(metrics), MOST_AT_ONCE):
            self._client.log_batch(self.run_id, metrics=metrics[at : at + MOST_AT_ONCE])

    def close(self) -> None:
        """End the run, unless it was active before."""
        if self._is_ours:
            self._client.set_terminated(self.run_id)
