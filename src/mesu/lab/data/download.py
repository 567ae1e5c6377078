"""Downloads from the usual address of a data set, each file with a known SHA-256; archives can also be put into MESU_DATA."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mesu.lab.data.archives import read_tar
from mesu.lab.data.finding import data_folder
from mesu.lab.data.packages import Decode, check_sha256
from mesu.lab.data.progress import progress
from mesu.lab.data.published import Arrays, DamagedData, Unavailable

TIMEOUT_SECONDS = 30  # to wait for an answer, and for each further part of it
CHUNK_BYTES = 2**16
SLOWEST = 20_000  # bytes a second: a server that sends less is stopped, though it never pauses for long


@dataclass(frozen=True)
class File:
    """A file to download."""

    url: str
    nbytes: int
    sha256: str

    @property
    def name(self) -> str:
        """Its name in a folder."""
        return self.url.rpartition("/")[2]

    @property
    def home(self) -> str:
        """Its address without its name."""
        return self.url.rpartition("/")[0]


@dataclass(frozen=True)
class Download:
    """Several files that together hold a data set."""

    files: tuple[File, ...]
    decode: Decode  # from the content of each file, by name

    @property
    def place(self) -> str:
        """Where from."""
        return f"a download from {self.files[0].home}"

    @property
    def here(self) -> bool:
        """Never: it is downloaded."""
        return False

    def arrays(self, folder: Path) -> Arrays:
        """Download, check and decode."""
        return self.decode({file.name: fetch(file, folder).read_bytes() for file in self.files})


@dataclass(frozen=True)
class Archive:
    """One tar file that holds a data set. A copy that a user put into MESU_DATA is used before the download."""

    file: File
    members: Mapping[str, int]  # to read, and the most bytes each may have
    decode: Decode

    @property
    def place(self) -> str:
        """Where from."""
        copy = self._copy()
        return str(copy) if copy else f"a download from {self.file.home}"

    @property
    def here(self) -> bool:
        """Whether MESU_DATA has a copy."""
        return self._copy() is not None

    def arrays(self, folder: Path) -> Arrays:
        """Take the copy, or download; check and decode."""
        copy = self._copy()
        if copy:
            try:
                check_sha256(copy, self.file.sha256)
            except ValueError as reason:
                raise DamagedData(f"{copy} is not the archive it should be: {reason}") from None
        return self.decode(read_tar(copy or fetch(self.file, folder), self.members))

    def _copy(self) -> Path | None:
        folder = data_folder()
        path = folder / self.file.name if folder else None
        return path if path and path.is_file() else None


def fetch(file: File, folder: Path) -> Path:
    """Download one file into `folder` and check it.

    Raises:
        Unavailable: if it cannot be had.
    """
    try:
        import pooch
        import requests
    except ImportError:
        raise Unavailable("pooch is not installed: pip install 'mesu[lab]'") from None

    def download(url: str, path: str, _: Any) -> None:  # as pooch calls it
        # without this header a server may compress the file again, which changes its bytes
        headers, done = {"Accept-Encoding": "identity"}, 0
        began, patience = time.monotonic(), TIMEOUT_SECONDS + file.nbytes / SLOWEST
        with (
            requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_SECONDS) as answer,
            Path(path).open("wb") as out,
        ):
            answer.raise_for_status()
            for chunk in answer.iter_content(CHUNK_BYTES):
                out.write(chunk)
                done += len(chunk)
                if done > file.nbytes:
                    raise Unavailable(f"{file.name}: it is bigger than the {file.nbytes} bytes it should have")
                if time.monotonic() - began > patience:
                    raise Unavailable(f"{file.name}: only {done} of {file.nbytes} bytes came in {patience:.0f} seconds")
                progress().show(f"downloading {file.name}", done, file.nbytes)

    progress().show(f"downloading {file.name}", 0, file.nbytes)
    downloader: Any = download
    try:
        with _quiet(pooch.get_logger()):
            return Path(pooch.retrieve(file.url, f"sha256:{file.sha256}", file.name, folder, downloader=downloader))
    except requests.Timeout:
        raise Unavailable(f"{file.name}: no answer for {TIMEOUT_SECONDS} seconds") from None
    except requests.ConnectionError:
        raise Unavailable(f"{file.name}: the server cannot be reached") from None
    except requests.RequestException as error:
        raise Unavailable(f"{file.name}: {error}") from None
    except ValueError:  # from pooch
        raise Unavailable(f"{file.name}: its SHA-256 is not the known one") from None


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Silence pooch's messages inside: `progress` shows what is downloaded."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
