"""`mesu data`: list, get and verify data sets; and the progress shown while data is downloaded."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, TextColumn
from rich.progress import Progress as Bars
from rich.table import Table

from mesu.lab.data.animals import ANIMALS
from mesu.lab.data.catalogue import data_sets
from mesu.lab.data.finding import cache_folder, data_folder, find, verify, where
from mesu.lab.data.progress import Progress, progress, shown_by
from mesu.lab.data.published import Published, Unavailable
from mesu.lab.features.photographs import BATCH, DEFAULT_NETWORK, make_features

FAILED = 2
ABOUT = "List, get or verify data sets. Data sets of your own: --import MODULE, the module that registers them."


def list_data(json: bool = False) -> None:
    """List the data sets, their sizes and where each was found.

    Args:
        json: Print one JSON object on standard output instead of a table.
    """
    found = {name: where(known) for name, known in data_sets.items()}
    if json:
        try:
            cache = str(cache_folder())
        except Unavailable:
            cache = None
        folder = data_folder()
        sets = [
            {"name": name, "what": known.what, "bytes": known.nbytes, "where": found[name]}
            for name, known in data_sets.items()
        ]
        print(dumps({"mesu_data": str(folder) if folder else None, "cache": cache, "sets": sets}))
        return
    table = Table()
    table.add_column("name", no_wrap=True)
    table.add_column("what", overflow="fold")
    table.add_column("MB", justify="right", no_wrap=True)
    table.add_column("where", overflow="fold")
    for name, known in data_sets.items():
        table.add_row(name, known.what, f"{known.nbytes / 1e6:.1f}", escape(found[name] or _advice(known)))
    Console().print(table, highlight=False)


def _advice(known: Published) -> str:
    if not known.sources:
        return f"not here: put {known.file} into MESU_DATA"
    at_hand = next((f" reads {source.place}" for source in known.sources if source.here), "")
    return f"not here: mesu data get {known.name}{at_hand}"


def get(
    names: tyro.conf.Positional[tuple[str, ...]],
    images: Path | None = None,
    network: Literal["effnetlite0", "resnet18"] = DEFAULT_NETWORK,
    weights: Path | None = None,
    batch: int = BATCH,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Get data sets by name and check every array; or make features of your own photographs.

    Args:
        names: Data sets, as `mesu data list` names them; or animals, with --images.
        images: Folder of photographs: one folder for each of the twenty species and one named Whale, or train and test.
        network: Network that makes the features. The weights of effnetlite0 are downloaded; resnet18 needs --weights.
        weights: File with the network's state dict, .pth or .safetensors.
        batch: Number of photographs per batch of the network.
        out: Folder for the file of features, instead of the cache.
        json: Print one JSON object on standard output instead of lines.
    """
    if not names:
        raise ValueError(f"say which data set to get: {', '.join(data_sets)}")
    if images is not None:
        if names != ("animals",):
            raise ValueError(
                f"--images is for animals alone, got {' '.join(names)}: mesu data get animals --images FOLDER"
            )
        results = [_get_photographs(images, network, weights, batch, out)]
    else:
        if (network, weights, batch, out) != (DEFAULT_NETWORK, None, BATCH, None):
            raise ValueError(
                "--network, --weights, --batch and --out are for photographs of your own: add --images FOLDER"
            )
        if "animals" in names:
            raise ValueError(_which_animals())
        results = _get_published([data_sets[name] for name in names])
    if json:
        print(dumps({"sets": results}))
    console, errors = Console(), Console(stderr=True)
    for result in results:
        if result["error"]:
            print_error(errors, result["error"])
        elif not json:
            console.print(f"{result['name']}  {escape(result['where'])}", highlight=False, soft_wrap=True)
    if any(result["error"] for result in results):
        sys.exit(FAILED)


def _get_published(wanted: list[Published]) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    with live_progress():
        for known in wanted:
            began = time.monotonic()
            result: dict[str, Any] = {"name": known.name, "where": None, "error": None}
            try:
                result["where"] = find(known)[0]
            except (ValueError, OSError) as error:
                result["error"] = str(error)
            results.append(result | {"seconds": round(time.monotonic() - began, 1)})
    return results


def _get_photographs(images: Path, network: str, weights: Path | None, batch: int, out: Path | None) -> dict[str, Any]:
    began = time.monotonic()
    result: dict[str, Any] = {"name": "animals", "where": None, "error": None}
    with live_progress():
        try:
            made = make_features(images, network, weights, out, batch)
        except (ValueError, OSError) as error:
            return result | {"error": str(error), "seconds": round(time.monotonic() - began, 1)}
        counts = made.counts
        progress().say(
            f"{counts['train']} photographs for training, {counts['test']} for testing, {counts['ood']} outliers; "
            f"{len(made.skipped)} skipped as unreadable"
        )
    skipped = [str(path) for path in made.skipped]
    result |= {"where": str(made.path), "photographs": counts, "skipped": skipped}
    return result | {"seconds": round(time.monotonic() - began, 1)}


def _which_animals() -> str:
    sets = " and ".join(f"{known.name} ({known.what})" for known in ANIMALS.values())
    return (
        f"'animals' stands for two data sets: {sets}. They cannot be downloaded: put the file of one into the folder that "
        f"MESU_DATA names, or make features of your own photographs with mesu data get animals --images FOLDER"
    )


def verify_data(names: tyro.conf.Positional[tuple[str, ...]] = (), json: bool = False) -> None:
    """Check the bytes of the data sets on this machine: all of them, or those named.

    Args:
        names: Data sets, as `mesu data list` names them.
        json: Print one JSON object on standard output instead of lines.
    """
    results: list[dict[str, Any]] = []
    for known in [data_sets[name] for name in names or data_sets]:
        places = verify(known)
        if names and not places:
            results.append({"name": known.name, "where": None, "wrong": [_advice(known)]})
        results += [{"name": known.name, "where": place, "wrong": wrong} for place, wrong in places.items()]
    if json:
        print(dumps({"sets": results}))
    else:
        console = Console()
        for result in results:
            place = f"{result['name']}  {result['where'] or ''}".rstrip()
            words = (
                "correct"
                if data_sets[result["name"]].checkable
                else "undamaged (nobody has published hashes of its arrays)"
            )
            if result["wrong"]:
                words = f"[bold red]wrong:[/bold red] {escape('; '.join(result['wrong']))}"
            console.print(f"{escape(place)}  {words}", highlight=False, soft_wrap=True)
    if any(result["wrong"] for result in results):
        sys.exit(FAILED)


def print_error(console: Console, error: object) -> None:
    """Print an error as one sentence. Brackets in it are text, not markup."""
    words = str(error)
    if isinstance(error, OSError) and error.strerror and error.filename:  # without the number and the quotes
        words = f"{error.filename}: {error.strerror}"
    # a terminal would obey control characters, which a name in somebody else's file may hold
    words = "".join(letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in words)
    console.print(f"[bold red]error:[/bold red] {escape(words)}", highlight=False, soft_wrap=True)


class _Live(Progress):
    """Lines of text, with a progress bar below them for the current download."""

    def __init__(self, bars: Bars) -> None:
        self.bars = bars
        self.bar = bars.add_task("", visible=False, total=None)

    def say(self, line: str) -> None:
        self.bars.update(self.bar, visible=False)
        self.bars.console.print(escape(line), highlight=False, soft_wrap=True)

    def show(self, doing: str, done: int, total: int | None) -> None:
        self.bars.start()  # only now, so that no bar flickers if nothing is downloaded
        self.bars.update(self.bar, description=f"    {escape(doing)}", completed=done, total=total, visible=True)


@contextmanager
def live_progress() -> Iterator[None]:
    """Show downloads inside the block on standard error; if that is not a terminal, without a progress bar."""
    console = Console(stderr=True)
    bars = Bars(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), console=console, transient=True)
    try:
        with shown_by(_Live(bars) if console.is_terminal else Progress()):
            yield
    finally:
        if bars.live.is_started:
            bars.stop()
