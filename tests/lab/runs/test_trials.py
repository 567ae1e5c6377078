"""Trials in processes of their own, killed and stopped for real, and errors that are sentences."""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.lab.runs.tiny import TINY, again

from mesu.lab.entry import Entry
from mesu.lab.runs import checkpoints, trials
from mesu.lab.runs.locks import alone
from mesu.lab.runs.run import Run
from mesu.lab.table import as_table

pytestmark = pytest.mark.usefixtures("quick")


# Importing torch takes seconds, so one process does it and forks a `mesu` with its own process group for every command.
WARM = """
import json, os, signal, sys
import torch._dynamo  # which the first optimiser of each process would import
from mesu.lab.cli import main as cli
from mesu.lab.runs.locks import end_with
from mesu.lab.data import digits
from mesu.lab.entry import Entry
from mesu.lab.experiments import experiments, PermutedDigits
end_with(os.getppid())  # if the tests are killed, nothing of theirs goes on
torch.set_num_threads(1)
for learner in ("mesu", "ewc-online"):  # loads the compiled loops
    list(PermutedDigits(hidden=8, test_samples=2).trial(Entry(learner), 0).stage(0))
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


BOUND = 600  # seconds after which a wait is given up: it only guards against a test that hangs
LONG = replace(TINY, tasks=40, learners=("mesu", "ewc-online", "si"), all_tasks_every=1_000_000)


ENDLESS = replace(LONG, tasks=1_000_000)  # so that no machine is too fast, or too slow to notice


@pytest.fixture(scope="module")
def long_table(tmp_path_factory):
    return Run.create(LONG, tmp_path_factory.mktemp("long")).execute(workers=1)


@pytest.fixture
def begin(start, options):
    """A function: a `mesu run` and its run, as soon as there is one."""

    def begin(settings, folder, workers):
        command = start("run", settings.name, *options(settings), "--out", folder, "--workers", workers)
        command.until(lambda: list(folder.glob("*/settings.json")))
        (path,) = folder.glob("*/settings.json")
        return command, Run.open(path.parent)

    return begin


def test_killed_at_random_moments_it_ends_in_the_same_table(start, begin, tmp_path, long_table):
    random = np.random.default_rng(0)
    command, run = begin(LONG, tmp_path, workers=1)
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
def test_stopped_from_the_keyboard_it_says_how_to_go_on(workers, begin, tmp_path, long_table):
    command, run = begin(ENDLESS, tmp_path, workers)
    command.until(lambda: stages_of(run, "mesu") > 2)
    command.signal(signal.SIGINT)
    assert command.wait() == 130
    assert f"stopped: `mesu resume {run.folder}` finishes it" in command.said
    assert not (run.folder / "table.parquet").exists()
    assert_first_rows(run, "mesu", long_table)


@pytest.mark.parametrize("stages", [0, 2])  # while its workers begin, and when they are at work
def test_stopped_alone_it_does_not_wait_for_its_workers(stages, begin, tmp_path, long_table):
    command, run = begin(ENDLESS, tmp_path, workers=2)
    command.until(lambda: len(workers_of(command.process)) == 2 and stages_of(run, "mesu") >= stages)
    workers = workers_of(command.process)
    os.kill(command.process, signal.SIGINT)  # not the group, as a terminal would
    assert command.wait() == 130, command.said
    assert f"stopped: `mesu resume {run.folder}` finishes it" in command.said
    assert all(map(ended, workers))


@pytest.fixture
def on_start(monkeypatch):
    """A function: from now on, call `act` with the number of each worker process as soon as that is forked."""
    if not hasattr(os, "fork"):
        pytest.skip("processes are signalled here")
    forking = importlib.import_module("joblib.externals.loky.backend.fork_exec")
    fork = forking.fork_exec

    def on_start(act):
        def forked(command, *rest, **more):
            process = fork(command, *rest, **more)
            if "--process-name" in command:  # and not of the process that counts loky's semaphores
                act(process)
            return process

        monkeypatch.setattr(forking, "fork_exec", forked)

    return on_start


@pytest.fixture
def interruptible():
    """Ctrl-C interrupts this process, even if the tests run in the background, where it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("started", [1, 2])
def test_stopped_while_it_starts_a_worker_it_ends_that_one_too(started, on_start, tmp_path, interruptible):
    workers = []

    def stopped_here(process):
        workers.append(process)
        if len(workers) == started:
            os.kill(os.getpid(), signal.SIGINT)  # to the process, as a terminal sends it; this thread blocks it
            time.sleep(0.01)  # the next instructions would be those that write the worker down

    on_start(stopped_here)
    with pytest.raises(KeyboardInterrupt):
        Run.create(ENDLESS, tmp_path).execute(workers=2)
    assert len(workers) >= started
    assert all(map(ended, workers))


@pytest.mark.parametrize("moment", ["before its thread begins", "before its thread is known to run", "with workers"])
def test_stopped_while_it_starts_the_thread_that_starts_workers(moment, on_start, tmp_path, monkeypatch):
    workers, started, go = [], threading.Event(), threading.Event()
    on_start(lambda process: (workers.append(process), started.set()))

    class Interrupted(threading.Thread):
        """`start` is interrupted: on a busy machine, the thread may have done much by then."""

        def start(self):
            if threading.current_thread() is not threading.main_thread():  # one of loky's
                super().start()
                return
            if moment == "with workers":
                super().start()
                assert started.wait(BOUND)
            if moment == "before its thread is known to run":
                self.run = lambda work=self.run: (go.wait(BOUND), work())
                super().start()
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trials.threading, "Thread", Interrupted)
        run = Run.create(ENDLESS, tmp_path)
        with pytest.raises(KeyboardInterrupt):
            trials.do_all(run, run.settings, run.jobs, workers=2)
    go.set()  # now the thread begins: it must start nothing
    for thread in threading.enumerate():
        if isinstance(thread, Interrupted) and moment == "before its thread is known to run":
            thread.join(BOUND)
    assert all(map(ended, workers))
    assert bool(workers) == (moment == "with workers")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system has no /proc to see it in")
def test_workers_do_not_get_ctrl_c_which_would_make_them_print_a_traceback(on_start, tmp_path, interruptible):
    blocked = []

    def look(process):
        status = Path(f"/proc/{process}/status").read_text()
        signals = next(line for line in status.splitlines() if line.startswith("SigBlk"))
        blocked.append(bool(int(signals.split()[1], 16) & 1 << (signal.SIGINT - 1)))
        if len(blocked) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    on_start(look)
    with pytest.raises(KeyboardInterrupt):
        Run.create(ENDLESS, tmp_path).execute(workers=2)
    assert blocked == [True, True]


def test_what_came_of_an_interrupt_is_one():
    stop, broken = KeyboardInterrupt(), OSError("handle is closed")
    broken.__context__ = stop
    assert trials.interrupted(stop)
    assert trials.interrupted(broken)
    assert not trials.interrupted(OSError())


def test_an_exception_that_the_caller_was_handling_does_not_make_a_failure_a_stop(tmp_path, monkeypatch):
    monkeypatch.setattr(trials.loky, "ProcessPoolExecutor", lambda *_, **__: (_ for _ in ()).throw(OSError("broken")))
    run = Run.create(replace(TINY, learners=("sgd", "si")), tmp_path)
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with pytest.raises(OSError, match="broken"):
            run.execute(workers=2)


def workers_of(process):
    command = ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listing.splitlines()]
    return [int(pid) for pid, parent, command in rows if int(parent) == process and "LokyProcess" in command]


def test_a_lost_worker_is_said(begin, tmp_path, long_table):
    command, run = begin(ENDLESS, tmp_path, workers=2)
    command.until(lambda: run.stages_done() > 2)
    os.kill(workers_of(command.process)[0], signal.SIGKILL)
    assert command.wait() == 2
    assert f"a worker process was killed, perhaps for lack of memory: `mesu resume {run.folder}" in command.said


def ended(process):
    """Whether a process is gone, or is dead and nobody has asked for its exit code."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True).stdout
    return state.strip()[:1] in ("", "Z")


def test_workers_end_with_a_run_of_which_only_the_main_process_is_killed(begin, tmp_path, long_table):
    command, run = begin(ENDLESS, tmp_path, workers=2)
    command.until(lambda: stages_of(run, "mesu") > 2)
    workers = workers_of(command.process)
    assert len(workers) == 2
    os.kill(command.process, signal.SIGKILL)
    assert command.wait() == -signal.SIGKILL
    deadline = time.monotonic() + BOUND  # they take half a second
    while not all(map(ended, workers)):
        assert time.monotonic() < deadline, "workers go on without their run"
        time.sleep(0.05)
    done = run.stages_done()
    assert_first_rows(run, "mesu", long_table)
    time.sleep(0.1)
    assert run.stages_done() == done


def test_who_resumes_waits_for_a_worker_that_is_not_gone_yet(tmp_path, monkeypatch, capfd):
    run, asked, begun = Run.create(replace(TINY, learners=("sgd",)), tmp_path), threading.Event(), threading.Event()
    monkeypatch.setattr(trials, "learn", lambda *_: begun.set())
    monkeypatch.setattr(trials, "alone", lambda *given, **how: (asked.set(), alone(*given, **how))[1])
    own = run.checkpoint_folder("sgd", 0)
    own.mkdir(parents=True)
    with alone(own):
        thread = threading.Thread(target=trials.do_trial, args=(run, run.settings, Entry("sgd"), 0))
        thread.start()
        assert asked.wait(BOUND)
        said, deadline = "", time.monotonic() + BOUND
        while not said and not begun.is_set() and time.monotonic() < deadline:  # it says so just before it waits
            said = capfd.readouterr().err
            time.sleep(0.01)
        assert f"waiting for another process, which is at work on {own}" in said
        assert not begun.is_set()
    assert begun.wait(BOUND)
    thread.join()


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
