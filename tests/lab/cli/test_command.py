"""The command: what it prints, how it is started, and what it says where something is not installed."""

import json
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

import mesu
from mesu import __main__ as command
from mesu.lab.cli import main as cli
from mesu.lab.experiments import PermutedDigits, about, experiments

OPTIONS = ["--tasks", "2", "--seeds", "1", "--epochs", "1", "--hidden", "8", "--samples", "2", "--learners", "sgd,si"]


def test_command_runs_prints_and_resumes(tmp_path, capsys):
    cli.main(["run", "permuted-digits", *OPTIONS, "--out", str(tmp_path), "--workers", "1"])
    out = capsys.readouterr().out
    assert "SGD" in out
    assert "report" in out
    (folder,) = tmp_path.iterdir()
    assert {"settings.json", "table.parquet", "times.json", "parts", "checkpoints"} < {p.name for p in folder.iterdir()}
    cli.main(["resume", str(folder), "--workers", "1", "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["run"] == str(folder)
    assert set(printed["summary"]) == {"sgd", "si"}
    assert printed["summary"]["sgd"]["newest_accuracy"]["seeds"] == 1


def test_version_list_and_help(capsys):
    def said(*arguments):
        cli.main(list(arguments))
        return capsys.readouterr().out

    real = subprocess.run(
        [sys.executable, "-c", "from mesu.lab.cli.main import main; main()", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert real.stdout == said("--version") == f"mesu {mesu.__version__}\n"
    listed = said("list")
    for name in experiments:
        assert name in listed
    assert len({about(name) for name in experiments}) == len(experiments)
    for name in experiments:
        assert f"{name} {about(name)}" in " ".join(listed.split())
    with pytest.raises(SystemExit) as stop:
        cli.main(["run", "permuted-digits", "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    names = [field.name for field in fields(PermutedDigits)]
    for name in (*names, "scale", "settings_file", "out", "workers", "json"):
        assert f"--{name.replace('_', '-')}" in text


@pytest.mark.parametrize("missing", ["tyro", "rich"])
def test_without_the_lab_extra_the_command_says_what_to_install(missing, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "mesu.lab.cli.main")
    for name in [name for name in sys.modules if name.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SystemExit) as stop:
        command.main()
    assert stop.value.code == 2
    said = f"error: the mesu command needs {missing}, which is not installed: pip install 'mesu[lab]'\n"
    assert capsys.readouterr() == ("", said)


def test_another_missing_module_is_not_called_the_lab_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "mesu.lab.cli.main")
    monkeypatch.setitem(sys.modules, "mesu.version", None)
    with pytest.raises(ModuleNotFoundError, match=r"mesu\.version"):
        command.main()


def test_both_ways_to_start_the_command_say_so():
    told = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert told["project"]["scripts"] == {"mesu": "mesu.__main__:main"}
    lab = {re.split("[^a-z0-9]", need)[0] for need in told["project"]["optional-dependencies"]["lab"]}
    assert {"PIL" if name == "pillow" else name for name in lab} == set(command.LAB)
    blocked = "import runpy, sys; sys.modules['tyro'] = None; runpy.run_module('mesu', run_name='__main__')"
    real = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, check=False)
    assert (real.returncode, real.stdout, real.stderr.count("\n")) == (2, "", 1)
    assert "pip install 'mesu[lab]'" in real.stderr
