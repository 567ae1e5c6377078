"""Reads named files out of untrusted archives: nothing is unpacked to disk, and every size has a limit."""

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

MOST_BYTES = 2**31  # limit on all members of an archive together


def read_zip(path: Path, wanted: Mapping[str, int]) -> dict[str, bytes]:
    """The wanted members of a zip file, for example a wheel; `wanted` gives the most bytes each may have.

    Raises:
        ValueError: if a member is missing, too big or there twice, if the archive is damaged, or if a path leads out of it.
    """
    found: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                _refuse_paths_outside(path, member.filename)
                if member.filename in wanted:
                    _refuse_surprises(path, member.filename, member.file_size, wanted, found)
                    found[member.filename] = archive.read(member)
    except (zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{path.name} is damaged: {error}") from None
    return _complete(path, wanted, found)


def read_tar(path: Path, wanted: Mapping[str, int]) -> dict[str, bytes]:
    """The same for a tar file, compressed or not, in one pass."""
    found: dict[str, bytes] = {}
    total = 0
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                _refuse_paths_outside(path, member.name)
                total += member.size
                if total > MOST_BYTES:
                    raise ValueError(f"{path.name} holds more than {MOST_BYTES} bytes")
                if member.name in wanted:
                    # a link could point at another member, or out of the archive
                    stream = archive.extractfile(member) if member.isreg() else None
                    if stream is None:
                        raise ValueError(f"{path.name}: {member.name} is not an ordinary file")
                    _refuse_surprises(path, member.name, member.size, wanted, found)
                    found[member.name] = stream.read()
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path.name} is damaged: {error}") from None
    return _complete(path, wanted, found)


def gunzip(name: str, data: bytes, most_bytes: int) -> bytes:
    """Decompress; data of more than `most_bytes` is refused."""
    decompressor = zlib.decompressobj(wbits=31)  # 31: a gzip header is expected
    try:
        plain = decompressor.decompress(data, most_bytes + 1)
    except zlib.error as error:
        raise ValueError(f"{name} is damaged: {error}") from None
    if len(plain) > most_bytes:
        raise ValueError(f"{name} holds more than {most_bytes} bytes")
    if not decompressor.eof:
        raise ValueError(f"{name} is damaged: it ends too early")
    return plain


def _refuse_paths_outside(path: Path, name: str) -> None:
    member = PurePosixPath(name.replace("\\", "/"))
    if member.is_absolute() or ".." in member.parts:
        raise ValueError(f"{path.name} is refused: its member {name!r} reaches outside the archive")


def _refuse_surprises(path: Path, name: str, size: int, wanted: Mapping[str, int], found: Mapping[str, bytes]) -> None:
    if name in found:
        raise ValueError(f"{path.name} holds {name} twice")
    if size > wanted[name]:
        raise ValueError(f"{path.name}: {name} has {size} bytes, more than the {wanted[name]} it may have")


def _complete(path: Path, wanted: Mapping[str, int], found: dict[str, bytes]) -> dict[str, bytes]:
    missing = [name for name in wanted if name not in found]
    if missing:
        raise ValueError(f"{path.name} has no {', '.join(missing)}")
    return found
