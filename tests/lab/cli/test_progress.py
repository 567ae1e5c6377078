"""What `mesu run` and `mesu resume` show while they are at work: that the engine is compiled is said once."""

import os
from pathlib import Path

import pytest
from tests.lab.report.fabricated import SMALL, finished

from mesu.engine.loops import COMPILING
from mesu.lab.cli import main as cli
from mesu.lab.runs.run import Run


@pytest.fixture
def resume(tmp_path, monkeypatch, capfd):
    """Resume a run of made-up rows; `work` stands for what its workers do. Gives what was said on both streams."""

    def resume(work, *options):
        run = finished(tmp_path, SMALL)
        monkeypatch.setattr(Run, "execute", lambda self, workers, log=(): work() or self.table())
        monkeypatch.setattr(cli, "write", lambda run, summary: run.folder / "report.html")
        cli.main(["resume", str(run.folder), *options])
        return capfd.readouterr()

    return resume


def compile_in_three_workers():
    for _ in range(3):
        Path(os.environ[COMPILING]).touch()


def test_compiling_is_said_once_for_all_workers(resume):
    assert resume(compile_in_three_workers).out.count("compiling the engine") == 1


def test_compiling_is_not_said_where_nothing_was_compiled(resume):
    assert "compiling the engine" not in resume(lambda: None).out


def test_compiling_does_not_disturb_json(resume):
    said = resume(compile_in_three_workers, "--json")
    assert said.out.startswith("{")
    assert said.err.count("compiling the engine") == 1


@pytest.mark.parametrize("before", [None, "mine"])
def test_the_environment_is_left_as_it_was(before, resume, monkeypatch):
    monkeypatch.delenv(COMPILING, raising=False)
    if before:
        monkeypatch.setenv(COMPILING, before)
    seen = []
    resume(lambda: seen.append(os.environ[COMPILING]))
    assert os.environ.get(COMPILING) == before
    assert seen[0] != before
    assert not Path(seen[0]).parent.exists()
