"""Run the experiments of the paper, finish and report runs, fetch data sets, measure the engine's speed."""

import itertools
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from difflib import get_close_matches
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import polars as pl
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo
from tyro.extras import subcommand_cli_from_dict

from mesu.engine.loops import COMPILING
from mesu.lab.cli.data import ABOUT, get, list_data, live_progress, print_error, verify_data
from mesu.lab.cli.imports import import_named
from mesu.lab.drawing.numbers import duration
from mesu.lab.experiments import about, experiments
from mesu.lab.report import WIDTH, paper_note, summary_table, write, write_joined, write_markdown
from mesu.lab.runs.logs import check_log
from mesu.lab.runs.run import Run, check_workers, watch
from mesu.lab.streams import streams
from mesu.lab.table import summarise
from mesu.version import __version__

USAGE_ERROR = 2
INTERRUPTED = 130
COMPILING_MESSAGE = "compiling the engine for this machine: once, about a minute; the next run starts at once"


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def execute(run: Run, workers: int, as_json: bool, log: tuple[str, ...] = ()) -> None:
    """Train a run with a progress bar, write its report and print its table."""
    console = Console(stderr=as_json)
    began = time.monotonic()
    table = _trained(run, workers, console, log)
    summary = summarise(table)
    with console.status("drawing the figures"):
        page = write(run, summary)
    seconds = round(time.monotonic() - began, 1)
    if as_json:
        print(dumps({"run": str(run.folder), "report": str(page), "seconds": seconds, "summary": summary}))
        return
    settings = run.settings
    title = (
        f"{settings.name}: {settings.stages} {settings.stage_name}, {settings.seeds} seed{'s' * (settings.seeds != 1)}"
    )
    note = paper_note(settings.name, asdict(settings), settings.seeds)
    width = min(console.width, WIDTH) if console.is_terminal else WIDTH  # a pipe or a file has no edge
    console.print(summary_table(summary, title, note, width), crop=False)
    console.print(f"run      {run.folder}  ({duration(seconds)})", highlight=False, soft_wrap=True)
    console.print(f"report   {page}", highlight=False, soft_wrap=True)


def _trained(run: Run, workers: int, console: Console, log: tuple[str, ...] = ()) -> pl.DataFrame:
    """Train what a run still lacks, with a progress bar that shows the time left, and return the run's table."""
    settings = run.settings
    total = len(run.jobs) * settings.stages
    stop = threading.Event()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(settings.stage_name),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress, _compiling_file() as compiling:
        bar = progress.add_task(settings.name, total=total, completed=run.stages_done())
        told = False

        def show(done: int) -> None:
            nonlocal told
            if not told and compiling.exists():
                told = True
                progress.console.print(COMPILING_MESSAGE, highlight=False, soft_wrap=True)
            progress.update(bar, completed=done)

        watcher = threading.Thread(target=watch, args=(run, show, stop.is_set), daemon=True)
        watcher.start()
        try:
            table = run.execute(workers, log)
        except KeyboardInterrupt:
            console.print(f"stopped: `mesu resume {run.folder}` finishes it", highlight=False, soft_wrap=True)
            sys.exit(INTERRUPTED)
        finally:
            stop.set()
            watcher.join()
        show(total)
    return table


@contextmanager
def _compiling_file() -> Iterator[Path]:
    """A file that this process and its workers create when one of them compiles, so that the message is printed once."""
    before = os.environ.get(COMPILING)
    with tempfile.TemporaryDirectory(prefix="mesu-") as folder:
        path = Path(folder) / "compiling"
        os.environ[COMPILING] = str(path)
        try:
            yield path
        finally:
            os.environ.pop(COMPILING)
            if before is not None:
                os.environ[COMPILING] = before


def _run_command(kind: Any, defaults: Any) -> Callable[..., None]:
    """The function behind `mesu run NAME`: its arguments are the experiment's settings and where to put the run."""

    def run(
        settings: Annotated[Any, tyro.conf.arg(name="")] = defaults,
        scale: Literal["smoke", "small", "paper"] = "small",
        settings_file: Path | None = None,
        out: Path = Path("runs"),
        workers: int = cores(),
        log: tuple[str, ...] = (),
        json: bool = False,
    ) -> None:
        check_workers(workers)
        check_log(log, settings.name)
        with live_progress():  # check() may download the data
            settings.check()
        execute(Run.create(settings, out), workers, json, log)

    run.__annotations__["settings"] = Annotated[kind, tyro.conf.arg(name="")]
    run.__doc__ = f"""{about(kind.name)}

    An experiment of your own is known once its module is imported: `mesu run NAME --import MODULE`.

    Args:
        settings: What the experiment does.
        scale: Size of the run: smoke takes seconds, small takes minutes (cifar: hours), paper is as in the paper.
        settings_file: Start from the settings in this settings.json of a run, instead of a scale.
        out: Folder in which the run's own folder is made.
        workers: Number of learners and seeds trained in parallel.
        log: Where to log numbers as they come: tensorboard, mlflow, or both with a comma.
        json: Print one JSON object on standard output instead of a table.
    """
    return run


def _defaults(kind: Any, name: str, given: list[str]) -> Any:
    """The settings before single options change them: those of the scale or settings file named on the command line."""
    scale, file = _option(given, "--scale") or "small", _option(given, "--settings-file")
    if file is not None:
        run = Run(Path(file).parent) if Path(file).name == "settings.json" else None
        if run is None or not Path(file).is_file():
            raise ValueError(f"{file} is not the settings.json of a run: name that file in the run's folder")
        if run.saved["experiment"] != name:
            raise ValueError(f"{file} holds the settings of {run.saved['experiment']}, not of {name}")
        return run.settings
    return kind(**kind.scales.get(scale, {}))  # tyro refuses an unknown scale when it reads the options


def _option(given: list[str], name: str) -> str | None:
    """The value of an option in the command line, or None if it is not given."""
    for word, following in itertools.zip_longest(given, given[1:]):
        if word in (name, name.replace("-", "_").replace("__", "--", 1)):
            return following
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def resume(
    run: tyro.conf.Positional[Path], workers: int = cores(), log: tuple[str, ...] = (), json: bool = False
) -> None:
    """Finish a run that was stopped. It goes on from its checkpoints.

    An experiment of your own is known once its module is imported: `mesu resume RUN --import MODULE`.

    Args:
        run: The run's folder.
        workers: Number of learners and seeds trained in parallel.
        log: Where to log numbers as they come: tensorboard, mlflow, or both with a comma.
        json: Print one JSON object on standard output instead of a table.
    """
    check_workers(workers)
    opened = Run.open(run)
    check_log(log, opened.settings.name)
    if opened.stages_done() < len(opened.jobs) * opened.settings.stages:
        with live_progress():  # check() may download the data: once here, instead of once in each worker
            opened.settings.check()
    execute(opened, workers, json, log)


def report(
    runs: tyro.conf.Positional[tuple[Path, ...]],
    out: Path | None = None,
    markdown: Path | None = None,
    note: Path | None = None,
) -> None:
    """Draw the figures and write the report of finished runs again. Nothing is trained.

    Args:
        runs: Folders of finished runs.
        out: Write one report of all these runs into this folder. No two may have the same learner with the same seed.
        markdown: Write a Markdown page of one run, with its figure and table, into this folder; docs/results is made this way.
        note: File with paragraphs to put below the tables of the Markdown page.
    """
    if not runs:
        raise ValueError("name one or more runs, for example: mesu report runs/permuted-digits-2026-01-31-120000")
    if markdown is not None:
        if len(runs) != 1 or out is not None:
            raise ValueError(f"--markdown is for one run, and without --out: got {len(runs)} runs and --out {out}")
        print(write_markdown(Run.open(runs[0]), markdown, note.read_text(encoding="utf-8") if note else ""))
        return
    opened = [Run(folder) for folder in runs]
    pages = [write_joined(opened, out)] if out else [write(run) for run in opened]
    for page in pages:
        print(page)


def list_experiments() -> None:
    """List the experiments and streams, and what each one is."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(no_wrap=True, style="bold")
    rows.add_column()
    for name, _ in experiments.items():  # noqa: PERF102  (unlike the names alone, without those that cannot be loaded)
        rows.add_row(name, Text(about(name)))
    rows.add_row("", "")
    rows.add_row(Text("streams, for experiments of your own:", style="not bold"), "")
    for name, stream in streams.items():
        rows.add_row(name, Text((stream.__doc__ or "").strip().partition("\n")[0]))
    Console().print(rows, highlight=False)


def bench(quick: bool = False, json: bool = False) -> None:
    """Measure the engine's speed on one core, compared with torch and with the bare update (the floor).

    Args:
        quick: Few updates: shows that the benchmark runs, but its numbers are too noisy to quote.
        json: Print one JSON object on standard output instead of a table.
    """
    from mesu.lab.bench import measure

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
    console.print(f"floor, the bare update: {result['floor_us']:.2f} us", highlight=False)
    if "two_seeds" in result:
        console.print(
            f"two seeds on two cores: {result['two_seeds']:.2f} times the throughput of one seed", highlight=False
        )


def _experiment_help() -> None:
    """Run an experiment. `mesu run --help` lists them."""


def _data_help() -> None:
    """List, get or verify data sets. See `mesu data --help`."""


def _short(item: Any) -> str:
    return f"{item:.15g}" if isinstance(item, float) else str(item)


def _check_name(given: list[str], kind: str, names: Iterable[str]) -> None:
    """Refuse a first word that is neither an option nor one of the names; tyro would call it an unrecognized option."""
    if not given or given[0].startswith("-") or given[0] in (names := list(names)):
        return
    close = get_close_matches(given[0], names, n=1)
    meant = f"did you mean {close[0]}? All of them: " if close else "choose from "
    raise ValueError(f"there is no {kind} {given[0]!r}: {meant}{', '.join(names)}")


def _comma_separated() -> ConstructorRegistry:
    """How tyro reads and shows tuples: --learners mesu,sgd --memory 300000,inf."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def comma_separated(info: PrimitiveTypeInfo):
        kind, *rest = get_args(info.type) or (None,)
        # compare the parts: tyro may pass typing.Tuple[int, ...], which is not equal to tuple[int, ...]
        if get_origin(info.type) is not tuple or kind not in (str, float, int) or rest != [...]:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="A,B,...",
            instance_from_str=lambda words: tuple(kind(word.strip()) for word in words[0].split(",")),
            is_instance=lambda value: isinstance(value, tuple),
            str_from_instance=lambda value: [",".join(_short(item) for item in value)],
        )

    return registry


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `mesu` command."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        _dispatch(import_named(given))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except (ValueError, OSError) as error:
        print_error(Console(stderr=True), error)
        sys.exit(USAGE_ERROR)


def _dispatch(given: list[str]) -> None:
    """Do what the words of a command line say."""
    if given == ["--version"]:
        print(f"mesu {__version__}")
        return
    commands: dict[str, Callable[..., None]] = {
        "run": _experiment_help,
        "resume": resume,
        "report": report,
        "list": list_experiments,
        "data": _data_help,
        "bench": bench,
    }
    _check_name(given, "command", commands)
    if given[:1] == ["data"]:  # names of data sets are separated by blanks, so the registry for commas does not apply
        subcommands = {"list": list_data, "get": get, "verify": verify_data}
        rest = given[1:]
        _check_name(rest, "command mesu data", subcommands)
        subcommand_cli_from_dict(subcommands, prog="mesu data", description=ABOUT, args=rest)
        return
    with _comma_separated():
        if given[:1] == ["run"]:
            _check_name(given[1:], "experiment", experiments)
            chosen = [name for name in experiments if given[1:2] == [name]] or list(experiments)
            choices = {
                name: _run_command(kind, _defaults(kind, name, given if name in chosen else []))
                for name, kind in experiments.items()
            }
            subcommand_cli_from_dict(choices, prog="mesu run", args=given[1:], config=(tyro.conf.OmitArgPrefixes,))
        else:
            subcommand_cli_from_dict(commands, prog="mesu", description=__doc__, args=given)
