"""`mesu run` and `mesu resume`: what they refuse, and the settings that they ask for."""

import contextlib
import errno
import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from tests.lab.runs.tiny import TINY, again

from mesu.lab.cli import main as cli
from mesu.lab.experiments import PermutedDigits
from mesu.lab.runs.run import Run

pytestmark = pytest.mark.usefixtures("quick")


def test_an_out_that_is_a_file_is_refused(tiny_run, tmp_path, refused):
    path = tmp_path / "file"
    path.write_text("mine")
    for out in (path, path / "below"):
        said = refused(*tiny_run, "--out", out)
        assert said == f"error: {path} is not a folder: move it away, or choose another folder"
    assert path.read_text() == "mine"
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert "link is not a folder" in refused(*tiny_run, "--out", tmp_path / "link")


@contextlib.contextmanager
def unwritable(folder):
    """A folder that may be read and not written, by root neither: root becomes nobody in between."""
    user = os.geteuid()
    folder.chmod(0o555)
    try:
        if user == 0:
            for parent in (folder, *folder.parents):
                if not parent.stat().st_mode & 0o001:
                    parent.chmod(0o755)
            os.seteuid(65534)
        yield
    finally:
        if user == 0:
            os.seteuid(0)
        folder.chmod(0o755)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="rights are different here")
def test_a_folder_that_cannot_be_written_is_refused(tiny_run, tmp_path_factory, refused):
    folder = tmp_path_factory.mktemp("locked")
    with unwritable(folder):
        said = refused(*tiny_run, "--out", folder)
    assert "Permission denied" in said
    assert str(folder) in said
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("operation", ["write_bytes", "write_text"])
@pytest.mark.parametrize("after", [1, 3, 6])
def test_a_full_disk_is_said_and_the_run_goes_on_when_there_is_room(
    tiny_run, operation, after, tmp_path, refused, monkeypatch
):
    original, count = getattr(Path, operation), 0

    def full(path, data, *given, **named):
        nonlocal count
        count += 1
        if count > after:
            original(path, data[:10])
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return original(path, data, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Path, operation, full)
        assert "No space left on device" in refused(*tiny_run, "--out", tmp_path)
    (folder,) = tmp_path.iterdir()
    assert not list(folder.rglob(".*"))
    table = again(folder)
    assert table.equals(Run.create(Run.open(folder).settings, tmp_path / "straight").execute(workers=1))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "permuted-digits", "--learners", "mesu,foo"), "there is no learner 'foo': choose from mesu"),
        (("run", "permuted-digits", "--learners", ""), "there is no learner ''"),
        (("run", "permuted-digits", "--learners", "sgd,sgd"), "learners must be one or more, all different"),
        (("run", "permuted-digits", "--memory", "9,9"), "memory must be one or more, all different"),
        (("run", "permuted-digits", "--memory", "0.5"), "memory must be greater than 1 update, got 0.5"),
        (("run", "permuted-digits", "--memory", "much"), "--memory"),
        (("run", "permuted-digits", "--tasks", "0"), "tasks must be 1 or more, got 0"),
        (("run", "permuted-digits", "--tasks", "two"), "--tasks"),
        (("run", "permuted-digits", "--seeds", "0"), "seeds must be 1 or more, got 0"),
        (("run", "permuted-digits", "--workers", "0"), "workers must be 1 or more, got 0"),
        (("run", "permuted-digits", "--workers", "-1"), "workers must be 1 or more, got -1"),
        (("run", "permuted-digits", "--update", "magic"), "'magic'"),
        (("run", "permuted-digits", "--estimator", "magic"), "'magic'"),
        (("run", "permuted-digits", "--scale", "huge"), "--scale"),
        (("run", "permuted-digits", "--nonsense", "1"), "--nonsense"),
        (("run", "permuted-digits", "--settings-file", "nowhere/settings.json"), "nowhere/settings.json is not"),
        (("run", "permuted-digits", "--settings-file", "notes.txt"), "notes.txt is not the settings.json of a run"),
        (("run", "permuted-cats"), "permuted-cats"),
        (("walk",), "walk"),
        (("resume", "nowhere"), "nowhere is not a run: it has no settings.json"),
    ],
)
def test_wrong_arguments_say_why_and_start_nothing(arguments, words, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    assert words in refused(*arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("workers", [0, -1])
def test_no_workers_are_too_few(workers, stopped, capfd):
    before = sorted(stopped[0].rglob("*"))
    with pytest.raises(SystemExit) as stop:
        cli.main(["resume", str(stopped[0]), "--workers", str(workers)])
    assert stop.value.code == 2
    assert capfd.readouterr() == ("", f"error: workers must be 1 or more, got {workers}\n")  # and no progress bar
    assert sorted(stopped[0].rglob("*")) == before


def test_settings_of_another_experiment_are_refused(finished, refused):
    path = finished[0] / "settings.json"
    assert "permuted-digits" in refused("run", "permuted-mnist", "--settings-file", path)


def test_missing_data_say_what_to_put_where_and_start_nothing(tmp_path, monkeypatch, refused):
    module = sys.modules["mesu.lab.data.mnist"]
    for name in ("MNIST", "FASHION_MNIST"):
        monkeypatch.setattr(module, name, replace(getattr(module, name), sources=()))
    for name in ("mnist", "fashion_mnist"):
        monkeypatch.setattr("mesu.lab.experiments.permuted.mnist." + name, getattr(module, name).__wrapped__)
    for name in ("MESU_DATA", "MESU_CACHE"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    said = refused("run", "permuted-mnist", "--scale", "smoke", "--out", tmp_path / "out")
    assert "MNIST was not found" in said
    for name in ("MESU_DATA", "MESU_CACHE"):
        assert str(tmp_path / name) in said
    assert not (tmp_path / "out").exists()


def test_a_run_of_two_lost_files_is_no_crash(finished, tmp_path, refused):
    copy = tmp_path / "copy"
    shutil.copytree(finished[0], copy)
    shutil.rmtree(copy / "parts")
    shutil.rmtree(copy / "checkpoints")
    said = refused("resume", copy, "--workers", 1)
    assert "parts" in said


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """The settings that a command line asks for; nothing is run."""
    got = []
    monkeypatch.setattr(cli, "execute", lambda run, workers, as_json, log: got.append(run.settings))

    def settings(*arguments):
        cli.main(["run", "permuted-digits", "--out", str(tmp_path), *map(str, arguments)])
        return got.pop()

    return settings


def test_scales_and_single_settings(options, asked):
    scales = PermutedDigits.scales
    assert asked() == PermutedDigits(**scales["small"]) == PermutedDigits()
    for scale in ("smoke", "small", "paper"):
        assert asked("--scale", scale) == PermutedDigits(**scales[scale])
        assert asked(f"--scale={scale}", "--tasks", 7) == PermutedDigits(**{**scales[scale], "tasks": 7})
    assert asked("--tasks", 7, "--hidden", 9, "--scale", "smoke") == PermutedDigits(
        **{**scales["smoke"], "tasks": 7, "hidden": 9}
    )
    assert len({str(scales[scale]) for scale in scales}) == 3
    memories = asked("--memory", "180000,inf", "--learners", "mesu,sgd")
    assert memories.memory == (180_000, float("inf"))
    assert [entry.label for entry in memories.entries] == ["mesu-180000", "mesu-inf", "sgd"]
    assert asked("--memory", "180000").entries[0].label == "mesu"
    assert asked(*options(TINY)) == TINY


def test_a_settings_file_gives_the_same_run_with_single_settings_changed(finished, asked):
    path = finished[0] / "settings.json"
    assert asked("--settings-file", path) == TINY
    assert asked("--settings_file", path) == TINY
    assert asked(f"--settings-file={path}", "--tasks", 2) == replace(TINY, tasks=2)


MEASURES = ("last_five_accuracy", "newest_accuracy", "all_tasks_accuracy", "ood_auroc", "rigidity")


def test_json_is_one_object_and_a_settings_file_reproduces_the_table(options, tmp_path, capfd):
    arguments = [*options(replace(TINY, learners=("mesu", "sgd"), seeds=2)), "--memory", "20000,inf"]
    cli.main(["run", "permuted-digits", *arguments, "--workers", "1", "--json", "--out", str(tmp_path)])
    out = capfd.readouterr().out
    printed = json.loads(out)
    assert out.count("\n") == 1
    assert set(printed) == {"run", "report", "seconds", "summary"}
    run = Run.open(Path(printed["run"]))
    assert printed["report"] == str(run.folder / "report.html")
    assert list(printed["summary"]) == ["mesu-20000", "mesu-inf", "sgd"]
    for scores in printed["summary"].values():
        assert set(MEASURES) <= set(scores)
        for score in scores.values():
            assert set(score) == {"mean", "std", "seeds", "paper"}
            assert score["seeds"] == 2
        for name in MEASURES[:-1]:
            assert 0 < scores[name]["mean"] < 1
    last = run.table().filter(learner="sgd", measure="accuracy", after_task=2)
    assert printed["summary"]["sgd"]["all_tasks_accuracy"]["mean"] == pytest.approx(last["value"].mean())
    newest = last.filter(on_task=2)["value"]
    assert printed["summary"]["sgd"]["newest_accuracy"]["mean"] == pytest.approx(newest.mean())
    assert printed["summary"]["sgd"]["newest_accuracy"]["std"] == pytest.approx(newest.std(ddof=1))

    file = str(run.folder / "settings.json")
    cli.main(["run", "permuted-digits", "--settings-file", file, "--workers", "1", "--json", "--out", str(tmp_path)])
    other = Run.open(Path(json.loads(capfd.readouterr().out)["run"]))
    assert other.folder != run.folder
    assert other.table().equals(run.table())
    assert pl.read_parquet(other.folder / "table.parquet").equals(run.table())

    cli.main(["resume", str(run.folder), "--workers", "1", "--json"])
    again = json.loads(capfd.readouterr().out)
    assert again["summary"] == printed["summary"]
    assert again["run"] == printed["run"]
