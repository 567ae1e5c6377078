"""Runs to look at, and a command that is refused: shared by the tests of runs and of the command."""

import contextlib
import functools
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.lab.runs.tiny import TINY

from mesu.lab.cli import main as cli
from mesu.lab.data import digits
from mesu.lab.report import page as page_module
from mesu.lab.runs.run import Run


@pytest.fixture(scope="module")
def quick():
    """The digits are read once, and reports, which have tests of their own, are not drawn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mesu.lab.experiments.permuted.digits.digits", functools.cache(digits))
        patch.setattr(cli, "write", lambda run, summary: run.folder / "report.html", raising=False)
        yield


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    run = Run.create(TINY, tmp_path_factory.mktemp("finished"))
    return run.folder, run.execute(workers=1)


@pytest.fixture
def stopped(finished, tmp_path):
    """A run whose MESU has all its checkpoints and nothing else; the other learners are done. And the table it should give."""
    folder, table = finished
    copy = tmp_path / "stopped"
    shutil.copytree(folder, copy)
    for name in ("table.parquet", "table.parquet.sha256", "times.json"):
        (copy / name).unlink()
    for path in (copy / "parts").glob("mesu-0.*"):
        path.unlink()
    return copy, table


@pytest.fixture
def options():
    """A function: the command line that asks for some settings."""
    return command_line


def command_line(settings):
    """The command line that asks for these settings."""
    words = []
    for name, value in vars(settings).items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words += [f"--{name.replace('_', '-')}", text]
    return words


@pytest.fixture
def tiny_run():
    """A command of a second or so."""
    settings = replace(TINY, tasks=2, learners=("sgd", "si"))
    return ("run", "permuted-digits", "--workers", 1, "--json", *command_line(settings))


@pytest.fixture
def refused(capfd):
    """A function: what a command says that ends with a sentence and code 2."""

    def refused(*arguments):
        with pytest.raises(SystemExit) as stop:
            cli.main([str(word) for word in arguments])
        assert stop.value.code == 2
        captured = capfd.readouterr()
        assert "Traceback" not in captured.err + captured.out
        return " ".join(captured.err.replace("│", " ").split())

    return refused


class Killed(BaseException):
    """What stands for kill -9: nothing is cleaned up after it."""


@pytest.fixture
def killed_at(monkeypatch):
    """A function: a block that dies at the file operation with that number, half-way through if it writes."""
    return functools.partial(dying_at, monkeypatch=monkeypatch)


@contextlib.contextmanager
def dying_at(moment, monkeypatch):
    """Die at the file operation with that number, half-way through if it writes; nothing more reaches the disk."""
    count = 0

    def dying(name):
        original = getattr(Path, name)

        def operation(path, *given, **named):
            nonlocal count
            count += 1
            if count == moment and name.startswith("write"):
                original(path, given[0][: len(given[0]) // 2])
            if count >= moment:
                raise Killed
            return original(path, *given, **named)

        return operation

    with monkeypatch.context() as patch:
        for name in ("write_bytes", "write_text", "replace", "unlink", "mkdir"):
            patch.setattr(Path, name, dying(name))
        try:
            yield
            died = False
        except Killed:
            died = True
    if not died:
        raise EOFError(count)


@pytest.fixture
def words_only(monkeypatch):
    """Pages without pictures, which take a second each to draw."""
    monkeypatch.setattr(page_module, "panels", lambda table, pictures, summary: [])
