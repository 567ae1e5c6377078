"""An experiment and a stream from a module of one's own: listed, run by two workers, killed, resumed and reported."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from mesu.lab.cli import main as cli
from mesu.lab.experiments import experiments
from mesu.lab.runs.run import Run
from mesu.lab.streams import streams

MODULE = '''"""Digits, shuffled: an experiment of my own."""

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from mesu import measures, optim
from mesu.lab.data import digits
from mesu.lab.entry import Entry
from mesu.lab.experiments.learners import Choice, make_learner, perceptron
from mesu.lab.experiments.trial import LearnerTrial
from mesu.lab.registry import experiments, streams
from mesu.lab.streams import Permuted
from mesu.lab.table import Row


@streams.register("my-stream")
class Mine(Permuted):
    """Permuted, under a name of my own."""


@experiments.register("my-experiment")
@dataclass(frozen=True)
class MyExperiment:
    """Settings of mine."""

    tasks: int = 4  # permutations
    seeds: int = 1  # runs
    rates: tuple[float, ...] = (0.01, 0.001)  # learning rates
    pause: bool = False  # wait, half-way through, for a file called `go`

    name: ClassVar[str] = "my-experiment"
    stage_name: ClassVar[str] = "tasks"
    scales: ClassVar[dict[str, dict[str, Any]]] = {"smoke": {"tasks": 2}}

    @property
    def entries(self):
        return tuple(Entry("sgd", "sgd_lr", rate) for rate in self.rates)

    @property
    def stages(self):
        return self.tasks

    def check(self):
        pass

    def trial(self, entry, seed):
        return MyTrial(self, entry, seed)


class MyTrial(LearnerTrial):
    def __init__(self, settings, entry, seed):
        self.settings, self.stream = settings, streams["my-stream"](digits(), settings.tasks, seed)
        choices = {"sgd": Choice(lambda weights: optim.SGD(weights, entry.value))}
        self.model = make_learner("sgd", choices, partial(perceptron, 64, 8, 10), seed)
        self.row = partial(Row, settings.name, entry.label, seed)

    def stage(self, index):
        while self.settings.pause and index == 2 and not Path("go").exists():
            time.sleep(0.01)
        task = self.stream[index]
        self.model.learn(task.x_train, task.y_train)
        for old in range(index + 1):
            test = self.stream[old]
            probs = self.model.predict(test.x_test, 1).probs.numpy()
            yield self.row(1437 * (index + 1), index, old, "accuracy", measures.accuracy(probs, test.y_test))
'''
NAME = "mesu_test_module"


def forget():
    sys.modules.pop(NAME, None)
    experiments._registered.pop("my-experiment", None)
    streams._registered.pop("my-stream", None)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A folder with the module, which is the current one, and not on the path."""
    (tmp_path / f"{NAME}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(cli, "write", lambda run, summary: run.folder / "report.html")
    yield tmp_path
    forget()


RUN = ("run", "my-experiment", "--import", NAME)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are signalled here")
def test_run_by_two_workers_killed_resumed_and_reported(module, capfd):
    command = [sys.executable, "-m", "mesu", *RUN, "--workers", "2", "--pause", "--out", "killed"]
    process = subprocess.Popen(command, start_new_session=True)
    deadline = time.monotonic() + 600
    while len(list(module.glob("killed/*/checkpoints/*/after-0002.json"))) < 2:  # both wait in their third task
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    capfd.readouterr()
    (folder,) = module.glob("killed/*")
    (module / "go").touch()
    with pytest.raises(SystemExit):
        cli.main(["resume", str(folder)])
    said = " ".join(capfd.readouterr().err.split())
    assert f"import it with `mesu resume {folder} --import {NAME}`" in said
    assert NAME not in sys.modules  # a folder does not make anybody import anything
    cli.main(["resume", str(folder), "--import", NAME, "--workers", "1", "--json"])
    printed = json.loads(capfd.readouterr().out)
    assert set(printed["summary"]) == {"sgd-0.01", "sgd-0.001"}
    cli.main([*RUN, "--workers", "1", "--json", "--out", "straight"])
    (straight,) = module.glob("straight/*")
    table = Run.open(straight).table()
    assert Run.open(folder).table().equals(table)
    assert len(table) == 2 * (1 + 2 + 3 + 4)
    assert Run.open(folder).saved["module"] == NAME
    forget()
    page = folder / "report.html"
    assert not page.exists()
    subprocess.run([sys.executable, "-m", "mesu", "report", str(folder)], check=True)  # needs the table alone
    assert "SGD, rate 0.01" in page.read_text(encoding="utf-8")


def test_listed_and_helped(module, capfd, monkeypatch):
    cli.main(["list", f"--import={NAME}"])
    listed = " ".join(capfd.readouterr().out.split())
    assert "my-experiment Digits, shuffled: an experiment of my own." in listed
    assert "my-stream Permuted, under a name of my own." in listed
    forget()
    monkeypatch.setenv("MESU_IMPORT", NAME)
    with pytest.raises(SystemExit) as stop:
        cli.main(["run", "my-experiment", "--help"])
    assert stop.value.code == 0
    said = " ".join(capfd.readouterr().out.replace("│", " ").split())
    assert "--rates" in said
    assert "--import MODULE" in said


def test_a_module_that_is_not_there_is_refused(module, refused):
    assert "the module 'nowhere_to_be' cannot be imported" in refused("list", "--import", "nowhere_to_be")
    assert "--import needs the name of a module" in refused("list", "--import")
    assert "invalid choice" in (said := refused("run", "my-experiment")) or "my-experiment" in said


def test_an_experiment_that_is_not_registered_cannot_be_run(module, tmp_path):
    cli.main(["list", "--import", NAME])
    settings = experiments["my-experiment"]()
    forget()
    with pytest.raises(ValueError, match="there is no experiment 'my-experiment'"):
        Run.create(settings, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("rates", [(0.1, 0.1)])
def test_entries_with_one_label_are_refused(module, tmp_path, rates):
    cli.main(["list", "--import", NAME])
    with pytest.raises(ValueError, match=r"must have different labels that can be file names, got 'sgd-0\.1'"):
        Run.create(experiments["my-experiment"](rates=rates), tmp_path / "out")
