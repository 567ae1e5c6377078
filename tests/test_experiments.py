"""Streams, learners, runs and the command: the same seed gives the same table, a killed run is finished, errors say why."""

import json
import shutil
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

import mesu
from mesu import cli, optim
from mesu.data import digits
from mesu.experiments import PermutedDigits
from mesu.experiments.permuted import make_learner
from mesu.experiments.table import Row, accuracy_matrix, as_table, summarise
from mesu.learners import BayesianLearner, WeightLearner
from mesu.learners.weights import fisher_diagonal
from mesu.report import permuted_figure
from mesu.runs import Run, replacing
from mesu.streams import Permuted

SMALL = PermutedDigits(tasks=2, seeds=2, epochs=1, learners=("mesu", "si"), hidden=8, samples=2, test_samples=2)


def test_digits_are_standardised_and_split_for_good():
    data = digits()
    assert data.x_train.shape == (1437, 64)
    assert data.x_test.shape == (360, 64)
    assert data.classes == 10
    assert abs(data.x_train.mean()) < 1e-4
    assert abs(data.x_train.std() - 1) < 1e-4
    assert np.array_equal(digits().x_train, data.x_train)
    shares = np.bincount(data.y_test) / 360
    assert shares.min() > 0.09


def test_permuted_tasks_are_shuffles_of_the_same_pixels():
    stream = Permuted(digits(), tasks=3, seed=4)
    first, second = stream[0], stream[1]
    assert not np.array_equal(first.x_train, stream.dataset.x_train)  # the first task is permuted too
    assert not np.array_equal(first.x_train, second.x_train)
    assert np.array_equal(np.sort(first.x_train), np.sort(second.x_train))
    # test and training pixels are shuffled alike: a pixel that is always blank in training is the same one in testing
    order = np.random.default_rng([4, 0]).permutation(64)
    assert np.array_equal(first.x_test, stream.dataset.x_test[:, order])
    assert np.array_equal(Permuted(digits(), tasks=9, seed=4)[1].x_train, second.x_train)
    assert not np.array_equal(Permuted(digits(), tasks=3, seed=5)[1].x_train, second.x_train)
    assert not any(np.array_equal(stream.unseen().x_test, task.x_test) for task in stream)
    with pytest.raises(IndexError):
        stream[3]
    with pytest.raises(ValueError, match="tasks must be 1 or more, got 0"):
        Permuted(digits(), tasks=0, seed=0)


def test_fisher_is_the_mean_of_squared_gradients_one_example_at_a_time():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x, y = torch.randn(7, 3, dtype=torch.float64), torch.randint(0, 2, (7,))
    expected = [torch.zeros_like(p) for p in net.parameters()]
    for example, label in zip(x.split(1), y.split(1), strict=True):
        loss = nn.functional.cross_entropy(net(example), label)
        for total, g in zip(expected, torch.autograd.grad(loss, list(net.parameters())), strict=True):
            total += g**2 / 7
    for mine, theirs in zip(fisher_diagonal(net, x, y), expected, strict=True):
        assert torch.allclose(mine, theirs)


def test_learners_on_the_torch_path_do_what_the_engine_does():
    # a layer that the engine does not know, and that does nothing
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 6)).astype(np.float32), rng.integers(0, 3, 40)
    for make in (
        lambda p: optim.SGD(p, 0.05),
        lambda p: optim.EWCOnline(p, 0.05, 2.0, 0.2),
        lambda p: optim.SI(p, 0.05, 0.1),
    ):
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
        torch.manual_seed(0)
        odd = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Identity(), nn.Linear(5, 3))
        fast = WeightLearner(plain, make(list(plain.parameters())))
        with pytest.warns(mesu.EngineFallback, match="Identity"):
            slow = WeightLearner(odd, make(list(odd.parameters())))
        for _ in range(2):
            for learner in (fast, slow):
                learner.learn(x, y)
                learner.boundary(x, y)
        for a, b in zip(plain.parameters(), odd.parameters(), strict=True):
            assert torch.allclose(a, b, atol=1e-5)
        assert (slow.predict(x, samples=5).epistemic == 0).all()


def test_mesu_learns_two_tasks_and_keeps_the_first():
    settings = PermutedDigits(tasks=2, epochs=1, samples=4)
    matrix = accuracy_matrix(as_table(settings.rows("mesu", seed=0)), "mesu", 0)
    assert matrix[0, 0] > 0.85
    assert matrix[1, 1] > 0.85
    assert matrix[1, 0] > 0.6  # chance is 0.1


def test_table_has_every_measurement_once():
    table = as_table(SMALL.rows("si", seed=1))
    assert table.columns == list(Row._fields)
    accuracy = table.filter(measure="accuracy")
    assert accuracy.select("after_task", "on_task").rows() == [(0, 0), (1, 0), (1, 1)]
    assert set(table["measure"]) == {"accuracy", "calibration_error", "ood_auroc"}
    assert accuracy["step"].to_list() == [1437, 2874, 2874]
    assert np.isnan(accuracy_matrix(table, "si", 1)[0, 1])


def test_summary_is_over_seeds():
    rows = [
        Row("e", "sgd", seed, 1, after, on, "accuracy", value)
        for seed, values in enumerate([(0.9, 0.5, 0.8), (0.7, 0.3, 0.6)])
        for (after, on), value in zip([(0, 0), (1, 0), (1, 1)], values, strict=True)
    ]
    scores = summarise(as_table(rows))["sgd"]
    assert scores["last_five_accuracy"] == {
        "mean": pytest.approx(0.55),
        "std": pytest.approx(0.1),
        "seeds": 2,
        "paper": None,
    }
    assert scores["newest_accuracy"]["mean"] == pytest.approx(0.7)
    assert scores["rigidity"]["mean"] == pytest.approx(10.0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = Run.create(SMALL, tmp_path_factory.mktemp("runs"))
    return run, run.execute(workers=1)


def test_run_gives_the_same_table_again_in_parallel_and_after_a_kill(finished, tmp_path):
    run, table = finished
    assert run.settings == SMALL
    assert Run.create(SMALL, tmp_path).execute(workers=2).equals(table)
    killed = tmp_path / "killed"
    shutil.copytree(run.folder, killed)
    (killed / "table.parquet").unlink()
    (killed / "parts" / "mesu-1.parquet").unlink()
    (killed / "parts" / "mesu-1.progress").write_bytes(b".")
    again = Run.open(killed)
    assert again.tasks_done() == 7
    assert again.execute(workers=1).equals(table)
    assert pl.read_parquet(killed / "table.parquet").equals(table)


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail():
        with replacing(path) as aside:
            aside.write_text("half")
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_figure_shows_every_learner(finished):
    _, table = finished
    figure = permuted_figure(table)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["MESU", "SI"]
    assert len(figure.axes) == 4
    bars = figure.axes[0].patches
    scores = summarise(table)
    heights = [bar.get_height() for bar in bars]
    assert heights == pytest.approx([scores[name]["running_five_accuracy"]["mean"] for name in ("mesu", "si")])


OPTIONS = ["--tasks", "2", "--seeds", "1", "--epochs", "1", "--hidden", "8", "--samples", "2", "--learners", "sgd,si"]


def test_command_runs_prints_and_resumes(tmp_path, capsys):
    cli.main(["run", "permuted-digits", *OPTIONS, "--out", str(tmp_path), "--workers", "1"])
    out = capsys.readouterr().out
    assert "SGD" in out
    assert "figure.png" in out
    (folder,) = tmp_path.iterdir()
    assert {"settings.json", "table.parquet", "figure.png", "figure.svg", "parts"} == {p.name for p in folder.iterdir()}
    cli.main(["resume", str(folder), "--workers", "1", "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["run"] == str(folder)
    assert set(printed["summary"]) == {"sgd", "si"}
    assert printed["summary"]["sgd"]["newest_accuracy"]["seeds"] == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "permuted-digits", "--memory", "0.5"], "memory must be greater than 1 update, got 0.5"),
        (["run", "permuted-digits", "--learners", "mesu,foo"], "no learner 'foo'"),
        (["run", "permuted-digits", "--learners", "sgd,sgd"], "different names"),
        (["run", "permuted-digits", "--tasks", "0"], "tasks must be 1 or more, got 0"),
        (["run", "permuted-digits", "--seeds", "0"], "seeds must be 1 or more, got 0"),
        (["run", "permuted-digits", "--update", "magic"], "'magic'"),
        (["resume", "nowhere"], "nowhere is not a run"),
    ],
)
def test_wrong_arguments_say_why_and_start_nothing(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


def test_help_version_and_list():
    def said(*arguments):
        return subprocess.run(
            [sys.executable, "-c", "from mesu.cli import main; main()", *arguments],
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert said("--version") == f"mesu {mesu.__version__}\n"
    assert "permuted-digits" in said("list")
    text = said("run", "permuted-digits", "--help")
    for field in PermutedDigits.__dataclass_fields__:
        assert f"--{field.replace('_', '-')}" in text
    assert "permuted-mnist" in said("list")


def test_learners_by_name_are_what_they_say():
    assert isinstance(make_learner(SMALL, digits(), "mesu", 0), BayesianLearner)
    assert isinstance(make_learner(SMALL, digits(), "foo-vb", 0).optimizer, mesu.FOOVB)
    assert isinstance(make_learner(SMALL, digits(), "ewc-stream", 0).optimizer, mesu.EWCStream)
