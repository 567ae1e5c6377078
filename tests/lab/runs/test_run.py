"""Runs: the same table whoever runs beside, whatever is killed, stopped or damaged; and errors that are sentences."""

import contextlib
import errno
import functools
import hashlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import joblib.externals.loky as loky
import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

import mesu
from mesu import optim
from mesu.lab.cli import main as cli
from mesu.lab.data import digits
from mesu.lab.experiments import EXPERIMENTS, PermutedDigits
from mesu.lab.experiments.permuted.shared import make_learner
from mesu.lab.runs import checkpoints
from mesu.lab.runs import run as runs
from mesu.lab.runs.checkpoints import Checkpoint, Damaged, replacing
from mesu.lab.runs.locks import alone, end_workers
from mesu.lab.runs.run import Run
from mesu.lab.table import Row, as_table
from mesu.learners import BayesianLearner, WeightLearner

LEARNERS = ("mesu", "foo-vb", "ewc-online", "ewc-stream", "si", "sgd")
TINY = PermutedDigits(
    tasks=3, seeds=1, epochs=1, learners=LEARNERS, hidden=8, samples=4, test_samples=2, all_tasks_every=3
)


def options(settings):
    """The command line that asks for these settings."""
    words = []
    for name, value in vars(settings).items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words += [f"--{name.replace('_', '-')}", text]
    return words


@pytest.fixture(scope="module", autouse=True)
def _quick():
    """The digits are read once, and reports, which have tests of their own, are not drawn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mesu.lab.experiments.permuted.digits.digits", functools.cache(digits))
        patch.setattr(cli, "write", lambda run, summary: run.folder / "report.html", raising=False)
        yield


def again(folder, workers=1):
    return Run.open(folder).execute(workers)


@pytest.fixture(scope="module")
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


# -- the same table -----------------------------------------------------------------------------------------------------


def test_a_run_twice_gives_the_same_table_and_the_same_bytes(finished, tmp_path):
    folder, table = finished
    run = Run.create(TINY, tmp_path)
    assert run.execute(workers=1).equals(table)
    assert (run.folder / "table.parquet").read_bytes() == (folder / "table.parquet").read_bytes()
    assert Run.open(run.folder).table().equals(table)
    assert run.settings == TINY
    assert not table.equals(Run.create(replace(TINY, seeds=2), tmp_path).execute(workers=1))


def test_the_table_is_what_the_stages_gave(finished):
    _, table = finished
    rows = []
    for learner in LEARNERS:
        trial = TINY.trial(learner, 0)
        rows += [row for stage in range(TINY.stages) for row in trial.stage(stage)]
    assert as_table(rows).equals(table)


def test_the_table_is_all_learners_and_seeds_in_order_whoever_else_takes_part(finished, tmp_path):
    _, table = finished
    alone = Run.create(replace(TINY, learners=("si",), seeds=2), tmp_path).execute(workers=1)
    assert alone.filter(seed=0).equals(table.filter(learner="si"))
    assert table["learner"].unique(maintain_order=True).to_list() == list(LEARNERS)
    assert alone["seed"].unique(maintain_order=True).to_list() == [0, 1]


def test_resuming_a_finished_run_does_nothing_and_gives_the_same(finished, tmp_path, monkeypatch):
    folder, table = finished
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.setattr(PermutedDigits, "trial", None)  # nobody is trained
    assert again(tmp_path / "copy").equals(table)


def test_two_runs_in_one_second_get_two_folders(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "strftime", lambda _: "now")
    monkeypatch.setattr(Path, "exists", lambda _: False)  # another process makes it between the look and the making
    folders = [Run.create(TINY, tmp_path).folder for _ in range(3)]
    assert [folder.name for folder in folders] == [f"permuted-digits-now{tail}" for tail in ("", "-1", "-2")]


class Killed(BaseException):
    """What stands for kill -9: nothing is cleaned up after it."""


@contextlib.contextmanager
def killed_at(moment, monkeypatch):
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


def test_killed_at_every_file_operation_in_turn_it_ends_in_the_same_table(tmp_path, monkeypatch):
    settings = replace(TINY, learners=("si",))
    table = Run.create(settings, tmp_path / "straight").execute(workers=1)
    for moment in range(1, 1000):
        run = Run.create(settings, tmp_path / f"{moment}")
        try:
            with killed_at(moment, monkeypatch):
                run.execute(workers=1)
        except EOFError:
            break
        with contextlib.suppress(EOFError), killed_at(moment // 2 + 1, monkeypatch):
            again(run.folder)  # and killed again
        assert again(run.folder).equals(table), moment
        left = [path.name for path in run.folder.rglob(".*")]
        assert not left, (moment, left)
        for learner in settings.learners:
            assert sorted(path.name for path in run.checkpoint_folder(learner, 0).iterdir()) == [
                f"after-{stage:04d}.{kind}" for stage in (2, 3) for kind in ("json", "safetensors")
            ], moment
        shutil.rmtree(run.folder)
    assert moment > 30  # three stages, a part, a table, each of several writes and moves


# -- a real process, killed for real ------------------------------------------------------------------------------------

# Importing torch takes seconds, so one process does it and forks a `mesu` with its own process group for every command.
WARM = """
import json, os, signal, sys
import torch._dynamo  # which the first optimiser of each process would import
from mesu.lab.cli import main as cli
from mesu.lab.runs.locks import end_with
from mesu.lab.data import digits
from mesu.lab.experiments import EXPERIMENTS, PermutedDigits
end_with(os.getppid())  # if the tests are killed, nothing of theirs goes on
torch.set_num_threads(1)
for learner in ("mesu", "ewc-online"):  # loads the compiled loops
    list(PermutedDigits(hidden=8, test_samples=2).trial(learner, 0).stage(0))
cli.write = lambda run, summary: run.folder / "report.html"  # reports have tests of their own
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, if the tests run in the background
print("ready", flush=True)
for line in sys.stdin:
    folder, *arguments = json.loads(line)
    child = os.fork()
    if child == 0:
        os.setsid()
        end_with(os.getppid())
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        cli.main(arguments)
        sys.exit()
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Command:
    """A `mesu` under way."""

    def __init__(self, server, folder, arguments):
        self.server, self.folder, self.code = server, folder, None
        self.server.stdin.write(json.dumps([str(folder), *map(str, arguments)]) + "\n")
        self.server.stdin.flush()
        self.process = int(self.server.stdout.readline())

    def signal(self, number):
        """To the whole group, as a terminal does; not to whoever has its number after it was waited for."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process, number)

    def wait(self):
        if self.code is None:
            self.code = int(self.server.stdout.readline())
        return self.code

    def until(self, happened):
        """Poll until something is so, or the command has ended."""
        with contextlib.suppress(ProcessLookupError):
            while not happened():
                os.kill(self.process, 0)
                time.sleep(0.002)

    @property
    def said(self):
        text = " ".join((self.folder / name).read_text() for name in ("out", "err"))
        assert "Traceback" not in text, text
        return " ".join(text.split())


@pytest.fixture(scope="module")
def server():
    if not hasattr(os, "fork"):
        pytest.skip("processes are forked and signalled here")
    server = subprocess.Popen(
        [sys.executable, "-c", WARM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert server.stdout.readline() == "ready\n"
    yield server
    server.stdin.close()
    server.wait()
    server.stdout.close()


@pytest.fixture
def start(server, tmp_path):
    """Start a `mesu` with these arguments."""
    commands = []

    def start(*arguments):
        commands.append(Command(server, tmp_path, arguments))
        return commands[-1]

    yield start
    for command in commands:  # of a test that failed
        command.signal(signal.SIGKILL)
        command.wait()


LONG = replace(TINY, tasks=40, learners=("mesu", "ewc-online", "si"), all_tasks_every=1_000_000)
ENDLESS = replace(LONG, tasks=1_000_000)  # so that no machine is too fast, or too slow to notice


@pytest.fixture(scope="module")
def long_table(tmp_path_factory):
    return Run.create(LONG, tmp_path_factory.mktemp("long")).execute(workers=1)


def begun(start, settings, folder, workers):
    """A `mesu run` and its run, as soon as there is one."""
    command = start("run", settings.name, *options(settings), "--out", folder, "--workers", workers)
    command.until(lambda: list(folder.glob("*/settings.json")))
    (path,) = folder.glob("*/settings.json")
    return command, Run.open(path.parent)


def test_killed_at_random_moments_it_ends_in_the_same_table(start, tmp_path, long_table):
    random = np.random.default_rng(0)
    command, run = begun(start, LONG, tmp_path, workers=1)
    kills = 0
    while True:
        goal = run.stages_done() + int(random.integers(0, 30))
        command.until(lambda goal=goal: run.stages_done() >= goal)
        time.sleep(random.uniform(0, 0.02))  # a stage takes about as long: anywhere in one, or in a write
        command.signal(signal.SIGKILL)
        if command.wait() != -signal.SIGKILL:
            break
        kills += 1
        command = start("resume", run.folder, "--workers", 1)
    assert command.code == 0, command.said
    assert run.table().equals(long_table)
    assert not list(run.folder.rglob(".*"))
    if not kills:  # there are about eight
        pytest.skip("the run was done before it could be killed")


def stages_of(run, learner):
    """Stages of a learner's newest checkpoint: with two workers, another may be far ahead."""
    names = run.checkpoint_folder(learner, 0).glob("after-*.json")
    return max([checkpoints.stages_in_name(path) for path in names], default=0)


def assert_first_rows(run, learner, table):
    """What a learner's newest checkpoint holds is what the whole run has at its beginning."""
    checkpoint = checkpoints.newest(run.checkpoint_folder(learner, 0), pytest.fail)
    rows = [row for row in checkpoint.rows if row.after_task < LONG.tasks - 1]  # after the last, all are tested
    # the permutation that is never learned is the one after the last, so its number differs
    rows, expected = (
        whole.filter(pl.col("measure") != "ood_auroc")
        for whole in (as_table(rows), table.filter(pl.col("learner") == learner))
    )
    assert len(rows) > 5
    assert rows.equals(expected.head(len(rows)))


@pytest.mark.parametrize("workers", [1, 2])
def test_stopped_from_the_keyboard_it_says_how_to_go_on(workers, start, tmp_path, long_table):
    command, run = begun(start, ENDLESS, tmp_path, workers)
    command.until(lambda: stages_of(run, "mesu") > 2)
    command.signal(signal.SIGINT)
    assert command.wait() == 130
    assert f"stopped: `mesu resume {run.folder}` finishes it" in command.said
    assert not (run.folder / "table.parquet").exists()
    assert_first_rows(run, "mesu", long_table)


@pytest.mark.parametrize("stages", [0, 2])  # while its workers begin, and when they are at work
def test_stopped_alone_it_does_not_wait_for_its_workers(stages, start, tmp_path, long_table):
    command, run = begun(start, ENDLESS, tmp_path, workers=2)
    command.until(lambda: len(workers_of(command.process)) == 2 and stages_of(run, "mesu") >= stages)
    workers = workers_of(command.process)
    os.kill(command.process, signal.SIGINT)  # not the group, as a terminal would
    assert command.wait() == 130, command.said
    assert f"stopped: `mesu resume {run.folder}` finishes it" in command.said
    assert all(map(ended, workers))


def test_workers_are_ended_whatever_they_do():
    executor = loky.ProcessPoolExecutor(2)
    asleep = [executor.submit(time.sleep, 600) for _ in range(2)]
    workers = list(executor._processes.values())
    assert len(workers) == 2
    end_workers()
    for future in asleep:
        with pytest.raises(loky.process_executor.TerminatedWorkerError):
            future.result()
    for worker in workers:
        worker.join()  # the executor may say that they are lost before the system has taken them away
        assert worker.exitcode == -signal.SIGTERM


def test_what_came_of_an_interrupt_is_one_and_what_a_caller_handles_is_not():
    stop, broken = KeyboardInterrupt(), OSError("handle is closed")
    broken.__context__ = stop
    assert runs._interrupted(stop, None)
    assert runs._interrupted(broken, None)
    assert not runs._interrupted(broken, stop)
    assert not runs._interrupted(OSError(), None)
    assert not runs._interrupted(OSError(), stop)


def workers_of(process):
    command = ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listing.splitlines()]
    return [int(pid) for pid, parent, command in rows if int(parent) == process and "LokyProcess" in command]


def test_a_lost_worker_is_said(start, tmp_path, long_table):
    command, run = begun(start, ENDLESS, tmp_path, workers=2)
    command.until(lambda: run.stages_done() > 2)
    os.kill(workers_of(command.process)[0], signal.SIGKILL)
    assert command.wait() == 2
    assert f"a worker process was killed, perhaps for lack of memory: `mesu resume {run.folder}" in command.said


def ended(process):
    """Whether a process is gone, or is dead and nobody has asked for its exit code."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True).stdout
    return state.strip()[:1] in ("", "Z")


def test_workers_end_with_a_run_of_which_only_the_main_process_is_killed(start, tmp_path, long_table):
    command, run = begun(start, ENDLESS, tmp_path, workers=2)
    command.until(lambda: stages_of(run, "mesu") > 2)
    workers = workers_of(command.process)
    assert len(workers) == 2
    os.kill(command.process, signal.SIGKILL)
    assert command.wait() == -signal.SIGKILL
    deadline = time.monotonic() + 60  # they take half a second
    while not all(map(ended, workers)):
        assert time.monotonic() < deadline, "workers go on without their run"
        time.sleep(0.05)
    done = run.stages_done()
    assert_first_rows(run, "mesu", long_table)
    time.sleep(0.1)
    assert run.stages_done() == done


def test_a_run_that_somebody_is_at_work_on_is_refused(tmp_path, capfd):
    run = Run.create(replace(TINY, learners=("sgd",)), tmp_path)
    with alone(run.folder):
        said = refused(capfd, "resume", run.folder, "--workers", 1)
    assert f"another process is at work on {run.folder}: wait until it is done, or stop it first" in said
    assert not (run.folder / "table.parquet").exists()


def test_who_resumes_waits_for_a_worker_that_is_not_gone_yet(tmp_path, monkeypatch, capfd):
    run, asked, begun = Run.create(replace(TINY, learners=("sgd",)), tmp_path), threading.Event(), threading.Event()
    monkeypatch.setattr(runs, "_learn", lambda *_: begun.set())
    monkeypatch.setattr(runs, "alone", lambda *given, **how: (asked.set(), alone(*given, **how))[1])
    own = run.checkpoint_folder("sgd", 0)
    own.mkdir(parents=True)
    with alone(own):
        thread = threading.Thread(target=runs._execute_part, args=(run.folder, "sgd", 0))
        thread.start()
        assert asked.wait(60)
        assert not begun.wait(0.3)
    assert begun.wait(60)
    thread.join()
    assert f"waiting for another process, which is at work on {own}" in capfd.readouterr().err


def test_workers_side_by_side_give_the_same_table(tmp_path):
    settings = replace(TINY, seeds=2)
    apart = Run.create(settings, tmp_path).execute(workers=1)
    assert Run.create(settings, tmp_path).execute(workers=2).equals(apart)


# -- a learner put down and taken up again --------------------------------------------------------------------------------


def perceptron(*extra):
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), *extra, nn.Linear(5, 3))


def posterior_learner(extra, rule, estimator):
    net = mesu.Bayesian(perceptron(*extra), estimator=estimator)
    return BayesianLearner(net, rule(net), samples=3)


POSTERIOR = {
    "mesu-exact": lambda net: mesu.MESU(net, memory=100),
    "mesu-paper": lambda net: mesu.MESU(net, memory=100, update="paper", max_step=0.5),
    "foo-vb": lambda net: mesu.FOOVB(net),
}
WEIGHT = {
    "sgd": lambda p: optim.SGD(p, 0.05),
    "ewc": lambda p: optim.EWC(p, 0.05, 2.0),
    "ewc-online": lambda p: optim.EWCOnline(p, 0.05, 2.0, 0.2),
    "ewc-stream": lambda p: optim.EWCStream(p, 0.05, 2.0, 0.2),
    "si": lambda p: optim.SI(p, 0.05, 0.1),
}
MAKERS = {
    **{
        f"{name}-{estimator}": lambda extra, rule=rule, estimator=estimator: posterior_learner(extra, rule, estimator)
        for name, rule in POSTERIOR.items()
        for estimator in ("local", "weights")
    },
    **{
        name: lambda extra, rule=rule: WeightLearner(net := perceptron(*extra), rule(net.parameters()))
        for name, rule in WEIGHT.items()
    },
}


def through_a_file(tensors, folder):
    checkpoints.write(folder, Checkpoint(1, [], tensors))
    return checkpoints.read(folder / "after-0001.json").tensors


@pytest.mark.parametrize("path", ["engine", "torch"])
@pytest.mark.parametrize("name", MAKERS)
def test_a_learner_restored_from_a_file_goes_on_bit_for_bit(name, path, tmp_path):
    rng = np.random.default_rng(1)
    chunks = [(rng.normal(size=(30, 6)).astype(np.float32), rng.integers(0, 3, 30)) for _ in range(3)]
    extra = () if path == "engine" else (nn.Identity(),)
    expectation = contextlib.nullcontext() if path == "engine" else pytest.warns(mesu.EngineFallback)
    torch.manual_seed(1)
    with expectation:
        learner = MAKERS[name](extra)
        twin = MAKERS[name](extra)  # of other weights, noise and past
    assert (learner.engine is None) == (path == "torch")
    twin.learn(*chunks[2])
    for chunk in chunks[:2]:  # two tasks, and a third one begun
        learner.learn(*chunk)
        learner.boundary(*chunk)
    learner.learn(*chunks[2])
    tensors = learner.tensors()
    twin.restore(through_a_file(tensors, tmp_path))
    untouched = {name: value.clone() for name, value in tensors.items()}
    for each in (learner, twin):
        each.learn(*chunks[1])
        each.boundary(*chunks[1])
        each.learn(*chunks[0])
    ours, theirs = learner.tensors(), twin.tensors()
    assert ours.keys() == theirs.keys()
    for key in ours:
        assert ours[key].dtype == theirs[key].dtype
        assert torch.equal(ours[key], theirs[key]), key
    assert any(not torch.equal(ours[key], tensors[key]) for key in ours)  # it did learn
    assert all(torch.equal(tensors[key], untouched[key]) for key in tensors)  # and what was saved is a copy
    assert torch.equal(learner.predict(chunks[0][0], 4).probs, twin.predict(chunks[0][0], 4).probs)
    assert torch.equal(learner.predict(chunks[0][0], 4).probs, twin.predict(chunks[0][0], 4).probs)


@pytest.mark.parametrize("name", LEARNERS)
def test_tensors_of_another_network_are_refused_and_change_nothing(name):
    small, large = (make_learner(replace(TINY, hidden=hidden), digits(), name, 0) for hidden in (8, 9))
    before = small.tensors()
    with pytest.raises(ValueError, match="belongs to another network"):
        small.restore(large.tensors())
    with pytest.raises(ValueError, match="belongs to another network"):
        small.restore({})
    assert all(torch.equal(value, before[name]) for name, value in small.tensors().items())


# -- damage -------------------------------------------------------------------------------------------------------------


def flip(path, where):
    data = bytearray(path.read_bytes())
    data[where] ^= 1
    path.write_bytes(data)


def flip_a_measured_digit(path):
    # the last digit of the last value: still JSON, still a number
    text = path.read_text()
    flip(path, text.rindex(']], "check"') - 1)


DAMAGE = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-7]),
    "halved": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "flipped": lambda path: flip(path, path.stat().st_size - 40),
    "empty": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
    "foreign": lambda path: path.write_bytes(b"\x80\x81 something else \xff" * 9),
}


@pytest.mark.parametrize("kind", ["json", "safetensors"])
@pytest.mark.parametrize("damage", [*DAMAGE, "a digit"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(stopped, damage, kind, capfd):
    folder, table = stopped
    newest = folder / "checkpoints" / "mesu-0" / f"after-0003.{kind}"
    if damage == "a digit":
        flip_a_measured_digit(newest.with_suffix(".json"))
    else:
        DAMAGE[damage](newest)
    assert again(folder).equals(table)
    err = capfd.readouterr().err
    assert str(newest.with_suffix(".json") if damage == "a digit" else newest) in err
    assert "mesu with seed 0 goes on after 2 of 3 tasks" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("damage", DAMAGE)
def test_with_all_checkpoints_damaged_it_starts_over_and_keeps_new_ones(stopped, damage, capfd, monkeypatch):
    folder, table = stopped
    own = folder / "checkpoints" / "mesu-0"
    for path in own.iterdir():
        DAMAGE[damage](path)
    with killed_at(12, monkeypatch):  # in its second task
        again(folder)
    err = capfd.readouterr().err
    assert "starts over" in err or damage == "missing"
    assert own / "after-0001.json" in own.iterdir()
    assert again(folder).equals(table)
    err = capfd.readouterr().err
    assert "starts over" not in err  # the first task is not done a third time
    assert sorted(path.name for path in own.glob("*.json")) == ["after-0002.json", "after-0003.json"]


def test_a_bit_flipped_anywhere_in_a_checkpoint_does_not_pass(finished, tmp_path):
    folder, _ = finished
    for path in (folder / "checkpoints" / "mesu-0").glob("after-0003.*"):
        shutil.copy(path, tmp_path)
    path, beside = tmp_path / "after-0003.json", tmp_path / "after-0003.safetensors"
    whole = checkpoints.read(path)
    rng = np.random.default_rng(0)
    for file in (path, beside):
        data = file.read_bytes()
        for where in rng.choice(len(data), 200, replace=False):
            changed = bytearray(data)
            changed[where] ^= 1 << int(rng.integers(8))
            file.write_bytes(changed)
            try:
                got = checkpoints.read(path)
            except Damaged:
                continue
            # 1e-05 and 1E-05 are the same number; and one bit can only be in the name of the check itself
            assert file == path
            assert got.rows == whole.rows
            assert got.stages == whole.stages
        file.write_bytes(data)


def rewritten(path, change):
    """Tamper with a checkpoint's JSON and make its check right again."""
    description = json.loads(path.read_text())
    del description["check"]
    description = change(description)
    if isinstance(description, dict):
        description["check"] = checkpoints._digest(description)
    path.write_text(json.dumps(description))


TAMPERED = {
    "a list": lambda d: [d],
    "a number": lambda d: 3,
    "nothing": lambda d: None,
    "a word": lambda d: "checkpoint",
    "empty": lambda d: {},
    "other columns": lambda d: d | {"columns": [*d["columns"][1:], "other"]},
    "rows too short": lambda d: d | {"rows": [row[1:] for row in d["rows"]]},
    "rows too long": lambda d: d | {"rows": [[*row, 1] for row in d["rows"]]},
    "rows of words": lambda d: d | {"rows": ["accuracy"]},
    "rows a number": lambda d: d | {"rows": 5},
    "no rows": lambda d: {name: value for name, value in d.items() if name != "rows"},
    "value a word": lambda d: d | {"rows": [[*row[:-1], "high"] for row in d["rows"]]},
    "seed a word": lambda d: d | {"rows": [[*row[:2], "one", *row[3:]] for row in d["rows"]]},
    "value too large": lambda d: d | {"rows": [[*row[:-1], 10**400] for row in d["rows"]]},
    "stages of another": lambda d: d | {"stages": 2},
    "stages endless": lambda d: d | {"stages": float("inf")},
    "stages a list": lambda d: d | {"stages": [3]},
    "no number of seconds": lambda d: d | {"seconds": "long"},
    "no hash": lambda d: d | {"sha256": None},
}


@pytest.mark.parametrize("how", TAMPERED)
def test_a_checkpoint_that_was_tampered_with_is_passed_over(stopped, how, capfd):
    folder, table = stopped
    newest = folder / "checkpoints" / "mesu-0" / "after-0003.json"
    rewritten(newest, TAMPERED[how])
    assert again(folder).equals(table)
    assert "after-0003" in capfd.readouterr().err


def test_json_nested_without_end_is_passed_over(stopped, capfd):
    folder, table = stopped
    newest = folder / "checkpoints" / "mesu-0" / "after-0003.json"
    newest.write_text("[" * 100_000)
    assert again(folder).equals(table)
    assert str(newest) in capfd.readouterr().err


class Trap:
    """Unpickled, it leaves a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_no_file_of_a_run_can_run_code(stopped, tmp_path, capfd):
    folder, table = stopped
    sprung = tmp_path / "sprung"
    trap = pickle.dumps(Trap(sprung))
    pickle.loads(trap)
    assert sprung.exists()
    sprung.unlink()
    tensors, text = (folder / "checkpoints" / "mesu-0" / f"after-000{n}" for n in ("3.safetensors", "2.json"))
    tensors.write_bytes(trap)
    rewritten(tensors.with_suffix(".json"), lambda d: d | {"sha256": hashlib.sha256(trap).hexdigest()})
    text.write_bytes(trap)
    part, total = folder / "parts" / "si-0.parquet", folder / "table.parquet"
    for path in (part, total):
        path.write_bytes(trap)
        path.with_name(f"{path.name}.sha256").write_text(hashlib.sha256(trap).hexdigest())
    with pytest.raises(ValueError, match="is damaged"):
        Run.open(folder).table()
    assert again(folder).equals(table)
    err = capfd.readouterr().err
    for path in (tensors, text, part):
        assert str(path) in err
    (folder / "settings.json").write_bytes(trap)
    with pytest.raises(ValueError, match="cannot be read"):
        Run.open(folder)
    assert not sprung.exists()


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("hashed", [True, False])
def test_a_damaged_part_is_made_again(stopped, damage, hashed, capfd):
    folder, table = stopped
    part = folder / "parts" / "foo-vb-0.parquet"
    if not hashed:
        if damage == "flipped":
            pytest.skip("without its hash, a number that changed cannot be told")
        part.with_name("foo-vb-0.parquet.sha256").unlink()
    DAMAGE[damage](part)
    assert again(folder).equals(table)
    err = capfd.readouterr().err
    if damage != "missing":
        assert f"{part} is damaged" in err
        assert "it is made again" in err


def test_a_bit_flipped_anywhere_in_a_part_does_not_reach_the_table(stopped, capfd):
    folder, table = stopped
    part = folder / "parts" / "si-0.parquet"
    size = part.stat().st_size
    for where in np.random.default_rng(0).choice(size, 10, replace=False):
        flip(part, where)
        assert again(folder).equals(table)
        assert f"{part} is damaged" in capfd.readouterr().err


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_table_is_said_and_made_again(finished, damage, tmp_path):
    folder, table = finished
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    path = copy / "table.parquet"
    DAMAGE[damage](path)
    with pytest.raises(ValueError, match=f"mesu resume {copy}"):
        Run.open(copy).table()
    assert again(copy).equals(table)
    assert Run.open(copy).table().equals(table)
    assert path.read_bytes() == (folder / "table.parquet").read_bytes()


def test_hashes_are_what_sha256sum_reads(finished):
    folder, _ = finished
    for path in folder.rglob("*.sha256"):
        digest, name = path.read_text().split()
        assert hashlib.sha256((path.parent / name).read_bytes()).hexdigest() == digest
    assert len(list(folder.rglob("*.sha256"))) == len(LEARNERS) + 1


def test_times_that_are_lost_or_damaged_do_not_matter(stopped):
    folder, table = stopped
    for path, text in zip((folder / "parts").glob("*.seconds"), ("", "soon", "\x00", "1", "2"), strict=True):
        path.write_text(text)
    assert again(folder).equals(table)
    assert set(Run.open(folder).times()) == {f"{name}-0" for name in LEARNERS}
    for text in ("", "[]", "3", '{"mesu-0": "long"}', "{", "[" * 100_000):
        (folder / "times.json").write_text(text)
        assert Run.open(folder).times() == {}


def test_only_two_checkpoints_stay_and_what_killed_writers_left_goes(tmp_path):
    rows = [Row("e", "sgd", 0, 1, 0, None, "m", 0.5)]
    tensors = {"w": torch.arange(3.0)}
    for stage in range(1, 12):
        checkpoints.write(tmp_path, Checkpoint(stage, rows * stage, tensors))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"after-00{n}.{kind}" for n in (10, 11) for kind in ("json", "safetensors")]
    (tmp_path / "after-0004.safetensors").touch()  # of one that was killed while it cleared up
    (tmp_path / ".after-0012.json.123").touch()
    (tmp_path / ".keep").touch()
    assert checkpoints.newest(tmp_path, pytest.fail).stages == 11
    checkpoints.write(tmp_path, Checkpoint(12, rows, tensors))
    assert not (tmp_path / "after-0004.safetensors").exists()
    checkpoints.remove_leftovers(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".keep", *(f"after-00{n}.{kind}" for n in (11, 12) for kind in ("json", "safetensors"))]
    # more than the name has digits for
    checkpoints.write(tmp_path, Checkpoint(9_999, rows, tensors))
    checkpoints.write(tmp_path, Checkpoint(10_000, rows, tensors))
    assert checkpoints.newest(tmp_path, pytest.fail).stages == 10_000


def test_a_checkpoint_is_read_as_it_was_written(tmp_path):
    values = [0.1 + 0.2, 1e-320, float("nan"), float("inf"), -0.0, 1.0]
    rows = [Row("e", "si", 2**40, 7, 3, None if n % 2 else n, "m", value) for n, value in enumerate(values)]
    tensors = {
        "a.b": torch.tensor([[1.0, -0.0], [torch.nan, 1e-45]]).T,
        "bytes": torch.arange(9, dtype=torch.uint8)[::2],
        "one": torch.tensor(3, dtype=torch.int64),
        "none": torch.zeros(0, 4),
    }
    checkpoints.write(tmp_path, Checkpoint(3, rows, tensors, 12.5))
    got = checkpoints.newest(tmp_path, pytest.fail)
    assert repr(got.rows) == repr(rows)
    assert (got.stages, got.seconds) == (3, 12.5)
    assert got.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert got.tensors[name].dtype == tensor.dtype
        assert got.tensors[name].numpy().tobytes() == tensor.numpy().tobytes()
    assert checkpoints.newest(tmp_path / "nowhere", pytest.fail) is None


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


# -- the command refuses with a sentence -------------------------------------------------------------------------------------


def refused(capfd, *arguments):
    """What a command says that ends with a sentence and code 2."""
    with pytest.raises(SystemExit) as stop:
        cli.main([str(word) for word in arguments])
    assert stop.value.code == 2
    captured = capfd.readouterr()
    assert "Traceback" not in captured.err + captured.out
    return " ".join(captured.err.replace("│", " ").split())


RUN = ("run", "permuted-digits", "--workers", 1, "--json", *options(replace(TINY, tasks=2, learners=("sgd", "si"))))


def test_an_out_that_is_a_file_is_refused(tmp_path, capfd):
    path = tmp_path / "file"
    path.write_text("mine")
    for out in (path, path / "below"):
        said = refused(capfd, *RUN, "--out", out)
        assert said == f"error: {path} is not a folder: move it away, or choose another folder"
    assert path.read_text() == "mine"
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert "link is not a folder" in refused(capfd, *RUN, "--out", tmp_path / "link")


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
def test_a_folder_that_cannot_be_written_is_refused(tmp_path_factory, capfd):
    folder = tmp_path_factory.mktemp("locked")
    with unwritable(folder):
        said = refused(capfd, *RUN, "--out", folder)
    assert "Permission denied" in said
    assert str(folder) in said
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("operation", ["write_bytes", "write_text"])
@pytest.mark.parametrize("after", [1, 3, 6])
def test_a_full_disk_is_said_and_the_run_goes_on_when_there_is_room(operation, after, tmp_path, capfd, monkeypatch):
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
        assert "No space left on device" in refused(capfd, *RUN, "--out", tmp_path)
    (folder,) = tmp_path.iterdir()
    assert not list(folder.rglob(".*"))
    table = again(folder)
    assert table.equals(Run.create(Run.open(folder).settings, tmp_path / "straight").execute(workers=1))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is set from outside")
def test_a_full_disk_is_said_by_a_real_system(start, server, stopped):
    import resource

    folder, table = stopped
    soft, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    # hashes and seconds fit, tables do not; Python ignores the signal, so that writing fails as on a full disk
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1000, hard))
    try:
        command = start("resume", folder, "--workers", 1)
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (soft, hard))
    assert command.wait() == 2
    assert "File too large" in command.said
    assert again(folder).equals(table)


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
def test_wrong_arguments_say_why_and_start_nothing(arguments, words, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert words in refused(capfd, *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("workers", [0, -1])
def test_no_workers_are_too_few(workers, stopped, capfd):
    before = sorted(stopped[0].rglob("*"))
    with pytest.raises(SystemExit) as stop:
        cli.main(["resume", str(stopped[0]), "--workers", str(workers)])
    assert stop.value.code == 2
    assert capfd.readouterr() == ("", f"error: workers must be 1 or more, got {workers}\n")  # and no progress bar
    assert sorted(stopped[0].rglob("*")) == before


WRONG_SETTINGS = {
    "nothing": "",
    "half": '{"experiment": "permuted-digits", "settings": {"tasks"',
    "a list": "[1, 2]",
    "endless": "[" * 100_000,
    "no experiment": {"settings": {}},
    "a list of experiments": {"experiment": ["permuted-digits"], "settings": {}},
    "an unknown experiment": {"experiment": "permuted-cats", "settings": {}},
    "no settings": {"experiment": "permuted-digits"},
    "settings in a list": {"experiment": "permuted-digits", "settings": [1]},
    **{
        f"{name}={value!r}": {"experiment": "permuted-digits", "settings": {name: value}}
        for name, value in (
            ("task", 3),
            ("tasks", "three"),
            ("tasks", 2.5),
            ("tasks", None),
            ("tasks", True),
            ("tasks", -1),
            ("learners", "mesu"),
            ("learners", [1]),
            ("learners", ["cat"]),
            ("memory", 5),
            ("memory", ["long"]),
            ("prior_std", "wide"),
            ("prior_std", -1.0),
            ("update", 3),
        )
    },
}


@pytest.mark.parametrize("what", WRONG_SETTINGS)
def test_a_wrong_settings_file_is_refused(what, tmp_path, capfd):
    path = tmp_path / "run" / "settings.json"
    path.parent.mkdir()
    content = WRONG_SETTINGS[what]
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    said = refused(capfd, "resume", path.parent, "--workers", 1)
    assert len(said) > 20
    out = tmp_path / "out"
    said = refused(capfd, "run", "permuted-digits", "--workers", 1, "--settings-file", path, "--out", out)
    assert len(said) > 20
    assert not out.exists()
    assert list(path.parent.iterdir()) == [path]


def test_settings_of_another_experiment_are_refused(finished, capfd):
    path = finished[0] / "settings.json"
    assert "permuted-digits" in refused(capfd, "run", "permuted-mnist", "--settings-file", path)


def test_missing_data_say_what_to_put_where_and_start_nothing(tmp_path, monkeypatch, capfd):
    module = sys.modules["mesu.lab.data.mnist"]
    for name in ("MNIST", "FASHION_MNIST"):
        monkeypatch.setattr(module, name, replace(getattr(module, name), sources=()))
    for name in ("mnist", "fashion_mnist"):
        monkeypatch.setattr("mesu.lab.experiments.permuted.mnist." + name, getattr(module, name).__wrapped__)
    for name in ("MESU_DATA", "MESU_CACHE"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    said = refused(capfd, "run", "permuted-mnist", "--scale", "smoke", "--out", tmp_path / "out")
    assert "MNIST was not found" in said
    for name in ("MESU_DATA", "MESU_CACHE"):
        assert str(tmp_path / name) in said
    assert not (tmp_path / "out").exists()


def test_a_run_of_two_lost_files_is_no_crash(finished, tmp_path, capfd):
    copy = tmp_path / "copy"
    shutil.copytree(finished[0], copy)
    shutil.rmtree(copy / "parts")
    shutil.rmtree(copy / "checkpoints")
    said = refused(capfd, "resume", copy, "--workers", 1)
    assert "parts" in said


# -- options of the command --------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """The settings that a command line asks for; nothing is run."""
    got = []
    monkeypatch.setattr(cli, "execute", lambda run, workers, as_json: got.append(run.settings))

    def settings(*arguments):
        cli.main(["run", "permuted-digits", "--out", str(tmp_path), *map(str, arguments)])
        return got.pop()

    return settings


def test_scales_and_single_settings(asked):
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
    assert memories.contestants == ("mesu-180000", "mesu-inf", "sgd")
    assert asked("--memory", "180000").contestants[0] == "mesu"
    assert asked(*options(TINY)) == TINY


def test_a_settings_file_gives_the_same_run_with_single_settings_changed(finished, asked):
    path = finished[0] / "settings.json"
    assert asked("--settings-file", path) == TINY
    assert asked("--settings_file", path) == TINY
    assert asked(f"--settings-file={path}", "--tasks", 2) == replace(TINY, tasks=2)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_settings_of_every_experiment_and_scale_are_read_as_they_were_written(name, tmp_path):
    for scale in ("smoke", "small", "paper"):
        settings = EXPERIMENTS[name](**EXPERIMENTS[name].scales[scale])
        run = Run.open(Run.create(settings, tmp_path).folder)
        assert run.settings == settings
        assert run.stages_done() == 0
        assert len(run.jobs) == len(settings.contestants) * settings.seeds


def test_settings_files_keep_an_endless_memory(tmp_path):
    settings = replace(TINY, memory=(180_000.5, float("inf"), 5))
    assert Run.open(Run.create(settings, tmp_path).folder).settings == settings


MEASURES = ("last_five_accuracy", "newest_accuracy", "all_tasks_accuracy", "ood_auroc", "rigidity")


def test_json_is_one_object_and_a_settings_file_reproduces_the_table(tmp_path, capfd):
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
    assert printed["summary"]["sgd"]["newest_accuracy"]["std"] == pytest.approx(newest.std(ddof=0))

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


def test_stages_done_counts_parts_and_checkpoints(stopped):
    folder, _ = stopped
    run = Run.open(folder)
    assert run.stages_done() == 6 * 3
    (folder / "checkpoints" / "mesu-0" / "after-0003.json").unlink()
    assert run.stages_done() == 5 * 3 + 2
    shutil.rmtree(folder / "checkpoints" / "mesu-0")
    assert run.stages_done() == 5 * 3
    assert set(runs.versions()) <= set(json.loads((folder / "settings.json").read_text())["versions"])
