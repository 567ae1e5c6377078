"""Write requirements.lock: every package that is installed for `make test`, with the hashes of its files: `make lock`.

The versions are those of the environment that runs it. The hashes are the SHA-256 that the index gives for each file of a
version, so that the lock holds on other systems too. torch is left out: its builds for a CPU are on an index of their own.
"""

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.request import urlopen

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

INDEX = "https://pypi.org/simple"
LOCK = Path("requirements.lock")
LEFT_OUT = {"mesu", "torch"}
HEAD = """# Made by `make lock`. After torch is installed:
#     pip install --no-deps --require-hashes -r requirements.lock && pip install --no-deps -e .
"""
FILE = re.compile(r'href="[^"]*/([^"/#]+)#sha256=([0-9a-f]{64})"')


def installed(requirement: Requirement, seen: dict[str, str]) -> None:
    """Fill `seen` with the versions of a requirement and of all that it requires."""
    for extra in ("", *requirement.extras):
        name = canonicalize_name(requirement.name)
        if f"{name}[{extra}]" in seen:
            continue
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # for another system
        seen[f"{name}[{extra}]"] = found.version
        for text in found.requires or ():
            inner = Requirement(text)
            if inner.marker is None or inner.marker.evaluate({"extra": extra}):
                installed(inner, seen)


def hashes(name: str, version: str) -> Iterator[str]:
    """The hashes of all files of a version."""
    with urlopen(f"{INDEX}/{name}/", timeout=60) as answer:
        page = answer.read().decode()
    for file, digest in FILE.findall(page):
        try:
            parse = parse_wheel_filename if file.endswith(".whl") else parse_sdist_filename
            if str(parse(file)[1]) == version:
                yield digest
        except ValueError:
            continue  # a file of another kind


def main() -> None:
    """Write the lock, or stop at a package that the index has no hash for."""
    seen: dict[str, str] = {}
    installed(Requirement("mesu[dev]"), seen)
    versions = {key.partition("[")[0]: version for key, version in seen.items()}
    lines = [HEAD]
    for name in sorted(versions.keys() - LEFT_OUT):
        digests = sorted(hashes(name, versions[name]))
        if not digests:
            sys.exit(f"{INDEX} has no hash for {name} {versions[name]}")
        lines.append(" \\\n".join([f"{name}=={versions[name]}", *(f"    --hash=sha256:{d}" for d in digests)]) + "\n")
    LOCK.write_text("".join(lines))
    print(f"{LOCK}: {len(versions.keys() - LEFT_OUT)} packages")


if __name__ == "__main__":
    main()
