"""Where a data set is looked for, in order: the folder MESU_DATA, the cache, packages that carry it, its usual download.

Every source must give the same bytes. What was fetched is kept in the cache as one file of arrays.
"""

import os
import tempfile
from pathlib import Path

from mesu.lab.data import npz
from mesu.lab.data.progress import progress
from mesu.lab.data.published import Arrays, DamagedData, Published, Source, Unavailable


def data_folder() -> Path | None:
    """The folder that MESU_DATA names, if it names one."""
    folder = os.environ.get("MESU_DATA")
    return Path(folder).expanduser() if folder else None


def cache_folder() -> Path:
    """The folder for what was fetched: MESU_CACHE, or the platform's place for caches.

    Raises:
        Unavailable: if pooch, which knows that place, is not installed.
    """
    folder = os.environ.get("MESU_CACHE")
    if folder:
        return Path(folder).expanduser()
    try:
        import pooch
    except ImportError:
        raise Unavailable("pooch is not installed: pip install 'mesu[lab]', or set MESU_CACHE to a folder") from None
    return Path(pooch.os_cache("mesu"))


def load(published: Published) -> Arrays:
    """The arrays of a set, fetched if need be.

    Raises:
        DamagedData: if MESU_DATA holds a file of this name with something else in it.
        FileNotFoundError: if no place has it; the message says what was tried and what to do.
    """
    return find(published)[1]


def find(published: Published) -> tuple[str, Arrays]:
    """Where a set is and its arrays, fetched if need be; raises what `load` does."""
    if published.ships_with:
        complaints, arrays = _shipped(published)
        if complaints:
            raise DamagedData(f"{published.ships_with} does not hold {published.title}: {'; '.join(complaints)}")
        return published.ships_with, arrays
    tried: list[str] = []
    path = _in_data_folder(published)
    if path:
        return str(path), npz.read(path, published)
    tried.append(_why_not_in_data_folder(published))
    try:
        cached = cache_folder() / published.file
    except Unavailable as reason:
        raise FileNotFoundError(_not_found(published, [*tried, f"the cache: {reason}"])) from None
    if cached.is_file():
        try:
            return str(cached), npz.read(cached, published)
        except DamagedData as reason:
            progress().say(f"{reason}: discarded")
            cached.unlink(missing_ok=True)
            tried.append(f"the cache: {reason}")
    else:
        tried.append(f"the cache: {cached} is not there")
    arrays = _fetch(published, cached.parent, tried)
    npz.write(cached, arrays)
    progress().say(f"  kept as {cached}")
    return str(cached), arrays


def where(published: Published) -> str | None:
    """Where a set would be taken from on this machine, or None; nothing is opened."""
    if published.ships_with:
        return published.ships_with
    return next((str(path) for path in _present(published)), None)


def verify(published: Published) -> dict[str, list[str]]:
    """Every place on this machine that has the set, and what is wrong with it there."""
    if published.ships_with:
        return {published.ships_with: _shipped(published)[0]}
    return {str(path): npz.inspect(path, published)[0] for path in _present(published)}


def _shipped(published: Published) -> tuple[list[str], Arrays]:
    (source,) = published.sources
    arrays = _ask(source)
    return published.complaints(arrays), arrays


def _ask(source: Source) -> Arrays:
    with tempfile.TemporaryDirectory(prefix="mesu-", ignore_cleanup_errors=True) as folder:
        return source.arrays(Path(folder))


def _present(published: Published) -> list[Path]:
    path = _in_data_folder(published)
    found = [path] if path else []
    try:
        cached = cache_folder() / published.file
    except Unavailable:
        return found
    return [*found, cached] if cached.is_file() else found


def _in_data_folder(published: Published) -> Path | None:
    folder = data_folder()
    path = folder / published.file if folder else None
    # without known hashes the arrays cannot be checked: such a set is only taken from its original archive
    return path if path and published.checkable and path.is_file() else None


def _why_not_in_data_folder(published: Published) -> str:
    folder = data_folder()
    if not folder:
        return "the environment variable MESU_DATA is not set"
    if not folder.is_dir():
        return f"MESU_DATA: there is no folder {folder}"
    return f"MESU_DATA: {folder / (published.file if published.checkable else str(published.archive))} is not there"


def _fetch(published: Published, cache: Path, tried: list[str]) -> Arrays:
    """Ask each source in turn; `tried` collects the reasons why sources failed."""
    if published.sources:
        make_writable(cache, "the cache folder", "set MESU_CACHE to one that can")  # before a download, not after it
        progress().say(f"{published.title} is not on this machine yet: fetching it, once")
    for source in sorted(published.sources, key=lambda source: not source.here):
        progress().say(f"  {source.place}")
        try:
            arrays = _ask(source)
            complaints = published.complaints(arrays)
            if not complaints:
                return arrays
            reason = f"does not hold {published.title}: {'; '.join(complaints)}"
        except DamagedData:
            raise  # the user put this file there: never ignore it silently
        except (Unavailable, ValueError, OSError) as error:
            reason = " ".join(str(error).split())
        progress().say(f"    {reason}")
        tried.append(f"{source.place}: {reason}")
    if not published.sources:
        tried.append("no package and no download has it")
    raise FileNotFoundError(_not_found(published, tried))


def make_writable(folder: Path, what: str, remedy: str) -> None:
    """Make a folder, unless it is there, and see that a file can be written in it.

    Raises:
        OSError: if not; the message has `what` the folder is and the `remedy`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"{what} {folder} cannot be written ({error.strerror or error}): {remedy}") from None


def _not_found(published: Published, tried: list[str]) -> str:
    places = "".join(f"\n  - {place}" for place in tried)
    return f"{published.title} was not found. Tried:{places}\n{published.remedy()}"
