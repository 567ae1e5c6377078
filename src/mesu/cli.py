"""The `mesu` command: run an experiment, take a run up again, list what there is, measure the engine."""

import os
import sys
import threading
import time
from collections.abc import Callable
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo
from tyro.extras import subcommand_cli_from_dict

from mesu.experiments import EXPERIMENTS
from mesu.experiments.table import summarise
from mesu.report import permuted_figure, summary_table
from mesu.runs import Run, replacing, watch
from mesu.version import __version__

USAGE_ERROR = 2
INTERRUPTED = 130


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def execute(run: Run, workers: int, as_json: bool) -> None:
    """Do the run with progress, draw its figure, print its table."""
    console = Console(stderr=as_json)
    settings = run.settings
    began = time.monotonic()
    stop = threading.Event()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(settings.name, total=len(run.jobs) * settings.tasks)
        watcher = threading.Thread(
            target=watch, args=(run, lambda done: progress.update(bar, completed=done), stop.is_set), daemon=True
        )
        watcher.start()
        try:
            table = run.execute(workers)
        except KeyboardInterrupt:
            console.print(f"stopped: `mesu resume {run.folder}` finishes it", highlight=False, soft_wrap=True)
            sys.exit(INTERRUPTED)
        finally:
            stop.set()
            watcher.join()
        progress.update(bar, completed=len(run.jobs) * settings.tasks)
    summary = summarise(table)
    figure = permuted_figure(table)
    for suffix in ("png", "svg"):
        with replacing(run.folder / f"figure.{suffix}") as path:
            figure.savefig(path, format=suffix)
    seconds = round(time.monotonic() - began, 1)
    if as_json:
        print(dumps({"run": str(run.folder), "seconds": seconds, "summary": summary}))
        return
    console.print(summary_table(summary, f"{settings.name}: {settings.tasks} tasks, {settings.seeds} seeds"))
    console.print(f"run      {run.folder}  ({seconds:.0f} s)", highlight=False, soft_wrap=True)
    console.print(f"figure   {run.folder / 'figure.png'}", highlight=False, soft_wrap=True)


def _run_command(kind: type) -> Callable[..., None]:
    """`mesu run NAME`: the experiment's settings and where to put the run, as one flat list of options."""

    def run(
        settings: Annotated[Any, tyro.conf.arg(name="")],
        out: Path = Path("runs"),
        workers: int = cores(),
        json: bool = False,
    ) -> None:
        settings.check()
        execute(Run.create(settings, out), workers, json)

    run.__annotations__["settings"] = Annotated[kind, tyro.conf.arg(name="")]
    first_line = (kind.__doc__ or "").strip().splitlines()[0]
    run.__doc__ = f"""{first_line}

    Args:
        settings: What the experiment does.
        out: Folder that gets the run's own folder.
        workers: Learners and seeds trained side by side.
        json: Print one JSON object on standard output instead of a table.
    """
    return run


def resume(run: tyro.conf.Positional[Path], workers: int = cores(), json: bool = False) -> None:
    """Finish a run that was stopped; what it had finished is kept.

    Args:
        run: The run's folder.
        workers: Learners and seeds trained side by side.
        json: Print one JSON object on standard output instead of a table.
    """
    execute(Run.open(run), workers, json)


def list_experiments() -> None:
    """List the experiments and what each shows."""
    console = Console()
    for name, kind in EXPERIMENTS.items():
        module = sys.modules[kind.__module__]
        console.print(f"[bold]{name}[/bold]  {(module.__doc__ or '').strip().splitlines()[0]}", highlight=False)


def bench(quick: bool = False, json: bool = False) -> None:
    """Measure the engine's speed against the torch path and the floor, on one core, in CPU time.

    Args:
        quick: Few updates, to see that it works; the numbers are not to be quoted.
        json: Print one JSON object on standard output instead of a table.
    """
    from mesu.bench import measure

    console = Console(stderr=json)
    with console.status("starting") as status:
        result = measure(quick, lambda text: status.update(text))
    if json:
        print(dumps(result))
        return
    table = Table(title=f"one core, {result['network']}, {result['samples']} samples, batch 1", title_justify="left")
    for name in ("rule", "draws"):
        table.add_column(name, no_wrap=True)
    for name in ("us", "steps/s", "torch steps/s", "x torch", "x floor"):
        table.add_column(name, justify="right")
    for row in result["rows"]:
        table.add_row(
            row["rule"],
            row["estimator"] or "",
            f"{row['engine_us']:.1f}",
            f"{row['engine_steps_per_s']:,.0f}",
            f"{row['torch_steps_per_s']:,.0f}",
            f"{row['times_torch']:.0f}",
            f"{row['times_floor']:.2f}",
        )
    console.print(table)
    console.print(f"floor, the bare update pass: {result['floor_us']:.2f} us", highlight=False)
    if "two_seeds" in result:
        console.print(f"two seeds on two cores: {result['two_seeds']:.2f} times one", highlight=False)


def _experiment_help() -> None:
    """Run an experiment: `mesu run --help` lists them."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `mesu` command."""
    given = sys.argv[1:] if arguments is None else arguments
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def comma_separated(info: PrimitiveTypeInfo):  # --learners mesu,sgd
        if info.type != tuple[str, ...]:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="A,B,...",
            instance_from_str=lambda words: tuple(word.strip() for word in words[0].split(",")),
            is_instance=lambda value: isinstance(value, tuple),
            str_from_instance=lambda value: [",".join(value)],
        )

    try:
        with registry:
            if given == ["--version"]:
                print(f"mesu {__version__}")
            elif given[:1] == ["run"]:
                commands = {name: _run_command(kind) for name, kind in EXPERIMENTS.items()}
                subcommand_cli_from_dict(commands, prog="mesu run", args=given[1:], config=(tyro.conf.OmitArgPrefixes,))
            else:
                commands = {"run": _experiment_help, "resume": resume, "list": list_experiments, "bench": bench}
                subcommand_cli_from_dict(commands, prog="mesu", description=__doc__, args=given)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except (ValueError, OSError) as error:
        Console(stderr=True).print(f"[bold red]error:[/bold red] {error}", highlight=False, soft_wrap=True)
        sys.exit(USAGE_ERROR)
