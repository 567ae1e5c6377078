"""The `mesu` command: run an experiment, take a run up again, report, list what there is, get data, measure the engine."""

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo
from tyro.extras import subcommand_cli_from_dict

from mesu.lab.cli.data import get, list_data, live_progress, print_error, verify_data
from mesu.lab.experiments import about, experiments
from mesu.lab.registry import import_modules
from mesu.lab.report import WIDTH, paper_note, summary_table, write, write_joined, write_markdown
from mesu.lab.runs.run import Run, check_workers, watch
from mesu.lab.streams import streams
from mesu.lab.table import summarise
from mesu.version import __version__

USAGE_ERROR = 2
INTERRUPTED = 130


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def execute(run: Run, workers: int, as_json: bool) -> None:
    """Do the run with progress, write its report, print its table."""
    console = Console(stderr=as_json)
    settings = run.settings
    began = time.monotonic()
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
    with Progress(*columns, console=console) as progress:
        total = len(run.jobs) * settings.stages
        bar = progress.add_task(settings.name, total=total, completed=run.stages_done())
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
        progress.update(bar, completed=total)
    summary = summarise(table)
    with console.status("drawing the figures"):
        page = write(run)
    seconds = round(time.monotonic() - began, 1)
    if as_json:
        print(dumps({"run": str(run.folder), "report": str(page), "seconds": seconds, "summary": summary}))
        return
    title = (
        f"{settings.name}: {settings.stages} {settings.stage_name}, {settings.seeds} seed{'s' * (settings.seeds != 1)}"
    )
    note = paper_note(settings.name, asdict(settings), settings.seeds)
    width = min(console.width, WIDTH) if console.is_terminal else WIDTH  # a pipe or a file has no edge
    console.print(summary_table(summary, title, note, width), crop=False)
    console.print(f"run      {run.folder}  ({seconds:.0f} s)", highlight=False, soft_wrap=True)
    console.print(f"report   {page}", highlight=False, soft_wrap=True)


def _run_command(kind: Any, defaults: Any) -> Callable[..., None]:
    """`mesu run NAME`: the experiment's settings and where to put the run, as one flat list of options."""

    def run(
        settings: Annotated[Any, tyro.conf.arg(name="")] = defaults,
        scale: Literal["smoke", "small", "paper"] = "small",
        settings_file: Path | None = None,
        out: Path = Path("runs"),
        workers: int = cores(),
        json: bool = False,
    ) -> None:
        check_workers(workers)
        with live_progress():  # the data may have to be fetched
            settings.check()
        execute(Run.create(settings, out), workers, json)

    run.__annotations__["settings"] = Annotated[kind, tyro.conf.arg(name="")]
    first_line = (kind.__doc__ or "").strip().splitlines()[0]
    run.__doc__ = f"""{first_line}

    An experiment of your own is known once its module is imported: `mesu run NAME --import MODULE`.

    Args:
        settings: What the experiment does.
        scale: How much of it: smoke takes seconds and shows that it runs, small takes minutes (cifar: hours),
            paper is the paper's. The settings above are this scale's, and can each be changed.
        settings_file: The settings.json of a run, whose settings are taken instead.
        out: Folder that gets the run's own folder.
        workers: Learners and seeds trained side by side.
        json: Print one JSON object on standard output instead of a table.
    """
    return run


def _defaults(kind: Any, name: str, given: list[str]) -> Any:
    """The settings that options change: those of the scale, or of the settings file, that the command line names."""
    scale, file = _option(given, "--scale") or "small", _option(given, "--settings-file")
    if file is not None:
        run = Run(Path(file).parent) if Path(file).name == "settings.json" else None
        if run is None or not Path(file).is_file():
            raise ValueError(f"{file} is not the settings.json of a run")
        if run.saved["experiment"] != name:
            raise ValueError(f"{file} holds the settings of {run.saved['experiment']}, not of {name}")
        return run.settings
    return kind(**kind.scales.get(scale, {}))  # an unknown scale is refused when all options are read


def _option(given: list[str], name: str) -> str | None:
    """The value of an option, wherever it stands."""
    for word, following in itertools.zip_longest(given, given[1:]):
        if word in (name, name.replace("-", "_").replace("__", "--", 1)):
            return following
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def resume(run: tyro.conf.Positional[Path], workers: int = cores(), json: bool = False) -> None:
    """Finish a run that was stopped; what it had finished is kept.

    An experiment of your own is known once its module is imported: `mesu resume RUN --import MODULE`.

    Args:
        run: The run's folder.
        workers: Learners and seeds trained side by side.
        json: Print one JSON object on standard output instead of a table.
    """
    check_workers(workers)
    opened = Run.open(run)
    if opened.stages_done() < len(opened.jobs) * opened.settings.stages:
        with live_progress():  # the data may have to be fetched, once and not by every worker
            opened.settings.check()
    execute(opened, workers, json)


def report(
    runs: tyro.conf.Positional[tuple[Path, ...]],
    out: Path | None = None,
    markdown: Path | None = None,
    note: Path | None = None,
) -> None:
    """Write the figures and the page of runs again, from their tables; nothing is trained.

    Args:
        runs: The folders of finished runs.
        out: Folder for one report of all of them, as of one table: runs of the same experiment, that do not share a learner
            with a seed.
        markdown: Folder for a page of Markdown with the figure and the table, of one run: how docs/results is made.
        note: A file of paragraphs to put below that page's tables.
    """
    if not runs:
        raise ValueError("name one or more runs: mesu report runs/permuted-digits-...")
    if markdown is not None:
        if len(runs) != 1 or out is not None:
            raise ValueError("--markdown is for one run, without --out")
        print(write_markdown(Run.open(runs[0]), markdown, note.read_text(encoding="utf-8") if note else ""))
        return
    opened = [Run(folder) for folder in runs]
    pages = [write_joined(opened, out)] if out else [write(run) for run in opened]
    for page in pages:
        print(page)


def list_experiments() -> None:
    """List the experiments and what each shows."""
    console = Console()
    for name, _ in experiments.items():  # noqa: PERF102  (unlike the names alone, without those that cannot be loaded)
        console.print(f"[bold]{name}[/bold]  {about(name)}", highlight=False)
    console.print("\nstreams, for experiments of your own:", highlight=False)
    for name, stream in streams.items():
        first_line = (stream.__doc__ or "").strip().partition("\n")[0]
        console.print(f"[bold]{name}[/bold]  {first_line}", highlight=False)


def bench(quick: bool = False, json: bool = False) -> None:
    """Measure the engine's speed against the torch path and the floor, on one core, in CPU time.

    Args:
        quick: Few updates, to see that it works; the numbers are not to be quoted.
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
    console.print(f"floor, the bare update pass: {result['floor_us']:.2f} us", highlight=False)
    if "two_seeds" in result:
        console.print(f"two seeds on two cores: {result['two_seeds']:.2f} times one", highlight=False)


def _experiment_help() -> None:
    """Run an experiment: `mesu run --help` lists them."""


def _data_help() -> None:
    """List, get or verify data sets: `mesu data --help` says how."""


def _imports(given: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """The modules that `--import` and MESU_IMPORT name, separated by commas, and the other arguments."""
    named, others, rest = [os.environ.get("MESU_IMPORT", "")], [], iter(given)
    for word in rest:
        if word == "--import":
            named.append(next(rest, ""))
            if not named[-1]:
                raise ValueError("--import takes the name of a module: --import my_module")
        elif word.startswith("--import="):
            named.append(word.partition("=")[2])
        else:
            others.append(word)
    return tuple(name.strip() for name in ",".join(named).split(",") if name.strip()), others


def _short(item: Any) -> str:
    return f"{item:.15g}" if isinstance(item, float) else str(item)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `mesu` command."""
    given = sys.argv[1:] if arguments is None else arguments
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def comma_separated(info: PrimitiveTypeInfo):  # --learners mesu,sgd --memory 300000,inf
        kind, *rest = get_args(info.type) or (None,)
        # by its parts: tyro may hand on typing.Tuple[int, ...], which is not equal to tuple[int, ...]
        if get_origin(info.type) is not tuple or kind not in (str, float, int) or rest != [...]:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="A,B,...",
            instance_from_str=lambda words: tuple(kind(word.strip()) for word in words[0].split(",")),
            is_instance=lambda value: isinstance(value, tuple),
            str_from_instance=lambda value: [",".join(_short(item) for item in value)],
        )

    try:
        modules, given = _imports(given)
        if modules:
            sys.path.insert(0, str(Path.cwd()))  # a console script starts with its own folder there instead
            import_modules(modules)
        if given[:1] == ["data"]:  # whose names are separated by blanks, so the registry does not apply
            commands = {"list": list_data, "get": get, "verify": verify_data}
            subcommand_cli_from_dict(commands, prog="mesu data", args=given[1:])
            return
        with registry:
            if given == ["--version"]:
                print(f"mesu {__version__}")
            elif given[:1] == ["run"]:
                chosen = [name for name in experiments if given[1:2] == [name]] or list(experiments)
                commands = {
                    name: _run_command(kind, _defaults(kind, name, given if name in chosen else []))
                    for name, kind in experiments.items()
                }
                subcommand_cli_from_dict(commands, prog="mesu run", args=given[1:], config=(tyro.conf.OmitArgPrefixes,))
            else:
                commands = {
                    "run": _experiment_help,
                    "resume": resume,
                    "report": report,
                    "list": list_experiments,
                    "data": _data_help,
                    "bench": bench,
                }
                subcommand_cli_from_dict(commands, prog="mesu", description=__doc__, args=given)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except (ValueError, OSError) as error:
        print_error(Console(stderr=True), error)
        sys.exit(USAGE_ERROR)
