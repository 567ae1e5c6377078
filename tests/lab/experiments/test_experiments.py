"""Streams, learners, the table and the command; and on permuted digits, what the paper says each learner does."""

import json
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import mesu
from mesu import __main__ as command
from mesu import measures, optim
from mesu.lab.cli import main as cli
from mesu.lab.data import digits
from mesu.lab.experiments import EXPERIMENTS, PermutedDigits, about
from mesu.lab.experiments.permuted import shared as permuted
from mesu.lab.experiments.permuted.shared import make_learner
from mesu.lab.streams import Permuted
from mesu.lab.table import Row, accuracy_matrix, as_table, summarise
from mesu.learners import BayesianLearner, WeightLearner
from mesu.learners.plain import fisher_diagonal

SMALL = PermutedDigits(tasks=2, seeds=2, epochs=1, learners=("mesu", "si"), hidden=8, samples=2, test_samples=2)


def table_of(settings, contestant, seed):
    trial = settings.trial(contestant, seed)
    return as_table(row for stage in range(settings.stages) for row in trial.stage(stage))


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
    matrix = accuracy_matrix(table_of(settings, "mesu", seed=0), "mesu", 0)
    assert matrix[0, 0] > 0.85
    assert matrix[1, 1] > 0.85
    assert matrix[1, 0] > 0.6  # chance is 0.1


def test_table_has_every_measurement_once():
    table = table_of(SMALL, "si", seed=1)
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
    for name in EXPERIMENTS:
        assert name in listed
    assert len({about(name) for name in EXPERIMENTS}) == len(EXPERIMENTS)
    for name in EXPERIMENTS:
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


def test_learners_by_name_are_what_they_say():
    assert isinstance(make_learner(SMALL, digits(), "mesu", 0), BayesianLearner)
    assert isinstance(make_learner(SMALL, digits(), "foo-vb", 0).optimizer, mesu.FOOVB)
    for name, kind in (
        ("sgd", optim.SGD),
        ("si", optim.SI),
        ("ewc-online", optim.EWCOnline),
        ("ewc-stream", optim.EWCStream),
    ):
        assert type(make_learner(SMALL, digits(), name, 0).optimizer) is kind
    for name, memory in (("mesu", 100_000), ("mesu-180000", 180_000), ("mesu-inf", float("inf"))):
        assert make_learner(SMALL, digits(), name, 0).optimizer.param_groups[0]["memory"] == memory
    with pytest.raises(ValueError, match="there is no learner 'adam'"):
        make_learner(SMALL, digits(), "adam", 0)


def test_all_tasks_are_tested_now_and_then_and_at_the_end_else_the_last_five():
    assert permuted.tested(0, tasks=20, every=10) == range(1)
    assert permuted.tested(8, tasks=20, every=10) == range(4, 9)
    assert permuted.tested(9, tasks=20, every=10) == range(10)
    assert permuted.tested(10, tasks=20, every=10) == range(6, 11)
    assert permuted.tested(19, tasks=20, every=7) == range(20)


# -- what each learner is known for, on twelve permutations --------------------------------------------------------------
#
# A network this small is full after some tasks. Ranges in the comments are over seeds 0 to 9; the tests use 0 to 2.
# "newest" is the accuracy on a task just learned, over the last five; "running" that on the last five tasks, all along.

CROWDED = PermutedDigits(
    tasks=12, epochs=3, hidden=30, samples=4, memory=(10_000,), all_tasks_every=100,
    sgd_lr=0.005, ewc_online_strength=10.0, si_strength=0.01,
)  # fmt: skip
SEEDS = range(3)


@pytest.fixture(scope="module")
def crowded():
    """Measures of each learner, one number a seed."""
    known = {}

    def of(learner):
        if learner not in known:
            each = [table_of(CROWDED, learner, seed) for seed in SEEDS]
            matrices = [accuracy_matrix(table, learner, seed) for table, seed in zip(each, SEEDS, strict=True)]
            known[learner] = {
                "newest": np.array([np.diag(matrix)[-5:].mean() for matrix in matrices]),
                "running": np.array([measures.running_window_accuracy(matrix, 5) for matrix in matrices]),
                "std": np.array([stds(table)[-1:].sum() for table in each]),
            }
        return known[learner]

    return of


def stds(table):
    """The mean sigma after each task; nothing for learners that have none."""
    return table.filter(measure="mean_std")["value"].to_numpy()


def within(values, low, high):
    return low < values.min() <= values.max() < high


def test_mesu_goes_on_learning_because_it_forgets(crowded):
    mesu = crowded("mesu")
    assert within(mesu["newest"], 0.92, 0.97)  # .936 to .952; without forgetting .831 to .877
    assert within(mesu["std"], 0.108, 0.132)  # .117 to .123; without forgetting .037 to .039
    assert within(mesu["running"], 0.65, 0.74)  # .679 to .715


def test_foo_vb_never_forgets_and_fills_up(crowded):
    foo_vb = crowded("foo-vb")
    assert within(foo_vb["newest"], 0.81, 0.91)  # .844 to .880; MESU has .936 to .952
    assert within(foo_vb["std"], 0.034, 0.042)  # .037 to .039; MESU has .117 to .123
    assert within(foo_vb["running"], 0.70, 0.79)  # .731 to .763
    # it is MESU with an endless memory but for the damping of the mean
    endless = stds(table_of(CROWDED, "mesu-inf", seed=0))
    assert endless[-1] == pytest.approx(foo_vb["std"][0], rel=0.05)
    assert (np.diff(endless) < 0).all()


@pytest.mark.parametrize(
    ("learner", "newest"),
    [("ewc-online", (0.85, 0.93)), ("si", (0.89, 0.95))],  # .873 to .907, .916 to .933
)
def test_importances_hold_the_last_tasks_better_than_sgd_at_the_same_rate(crowded, learner, newest):
    gain = crowded(learner)["running"] - crowded("sgd")["running"]
    assert gain.min() > 0.03  # .051 to .099 for EWC Online, .046 to .072 for SI; zero if nothing is important
    assert gain.max() < 0.13
    assert within(crowded(learner)["newest"], *newest)


def test_sgd_learns_every_task_and_keeps_little(crowded):
    assert within(crowded("sgd")["newest"], 0.92, 0.97)  # .941 to .954
    assert within(crowded("sgd")["running"], 0.58, 0.69)  # .617 to .663
