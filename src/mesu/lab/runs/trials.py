"""Trials of a run: each goes through the stages it has not done, here or in a worker, with a checkpoint after each."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager
from typing import Any

import torch
from joblib.externals import loky
from joblib.externals.loky.process_executor import TerminatedWorkerError

from mesu.disk import replacing
from mesu.lab.entry import Entry
from mesu.lab.experiments.trial import Illustrated
from mesu.lab.runs import checkpoints
from mesu.lab.runs.checkpoints import Checkpoint, remove_leftovers
from mesu.lab.runs.folder import RunFolder, make_folder
from mesu.lab.runs.locks import EVERY, alone, end_with, end_workers
from mesu.lab.runs.logs import TrialLog
from mesu.lab.runs.pictures import write_pictures
from mesu.lab.runs.tables import write_table
from mesu.lab.table import Row, as_table

Job = tuple[Entry, int]  # an entry and a seed
# Libraries read how many threads to use when they are loaded; see `one_thread`
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMBA", "NUMEXPR")} | {
    "VECLIB_MAXIMUM_THREADS": "1"
}


def do_all(run: RunFolder, settings: Any, jobs: Sequence[Job], workers: int, log: Sequence[str] = ()) -> None:
    """Do these jobs, `workers` at a time; each writes its part of the table, and its numbers to the sinks in `log`.

    Raises:
        ValueError: if a worker was killed.
        KeyboardInterrupt: if the run was stopped.
    """
    # the longest first, so that the cores finish together
    jobs = sorted(jobs, key=lambda job: -job[0].cost)
    if workers == 1 or len(jobs) == 1:
        with one_thread():
            for entry, seed in jobs:
                do_trial(run, settings, entry, seed, log)
    elif jobs:
        failure = _in_workers(run, settings, jobs, workers, log)
        if interrupted(failure):
            raise KeyboardInterrupt from failure
        if isinstance(failure, TerminatedWorkerError):
            raise ValueError(
                "a worker process was killed, perhaps for lack of memory: "
                f"`mesu resume {run.folder} --workers 1` goes on"
            ) from failure
        if failure is not None:
            raise failure


def _in_workers(
    run: RunFolder, settings: Any, jobs: Sequence[Job], workers: int, log: Sequence[str]
) -> BaseException | None:
    """Do these jobs in worker processes. Returns why they failed, if they did; the workers have been ended then.

    The workers are started in a thread of its own, where Ctrl-C does not interrupt it: if it were interrupted while it starts
    a worker, the worker would run, but not be in any list, so that `end_workers` could not end it.

    They are loky's, without `joblib.Parallel` around them: that shares large arrays through a folder, which is not needed here,
    and after Ctrl-C it could remove the folder twice, which prints a traceback.
    """
    failures: list[BaseException] = []
    begun, stopped, over = threading.Event(), threading.Event(), threading.Event()

    def dispatch() -> None:
        begun.set()
        try:
            if stopped.is_set():
                return
            pool = loky.ProcessPoolExecutor(workers, env=ONE_THREAD)
            _block_interrupts()
            try:
                # the settings travel with the job: to unpickle them, a worker imports the module that registers the experiment
                done = [pool.submit(_do_in_worker, os.getpid(), run, settings, *job, log) for job in jobs]
                for job in as_completed(done):
                    job.result()
            except BaseException:
                pool.shutdown(kill_workers=True)
                raise
            pool.shutdown()
        except BaseException as error:
            failures.append(error)
        finally:
            over.set()

    try:
        # `start` may be interrupted after the thread has begun, and even after it has started workers; `is_alive` may then
        # say no. So the thread and this one tell each other what they do
        threading.Thread(target=dispatch, daemon=True).start()
        while not over.wait(EVERY):  # without a limit, Windows would not let Ctrl-C through
            pass
    except BaseException:
        stopped.set()
        while begun.is_set() and not over.is_set():  # it may be about to start another worker
            end_workers()
            over.wait(0.05)
        end_workers()
        raise
    if not failures:
        return None
    end_workers()
    return failures[0]


def _block_interrupts() -> None:
    """Block Ctrl-C in this thread, and so in the processes that it starts: the main process gets it too, and ends them.

    A worker that is interrupted while it starts would print a traceback.
    """
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()  # it would be started with the first worker, and unblock Ctrl-C (Python 3.11)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def do_trial(run: RunFolder, settings: Any, entry: Entry, seed: int, log: Sequence[str] = ()) -> None:
    """Take one entry with one seed through the stages it has not done."""
    trial = settings.trial(entry, seed)
    own = run.checkpoint_folder(entry.label, seed)
    make_folder(own)
    with alone(own, wait=True):  # a worker whose run was killed may take a moment to end
        learn(run, settings, trial, entry.label, seed, log)


def learn(run: RunFolder, settings: Any, trial: Any, label: str, seed: int, log: Sequence[str] = ()) -> None:
    """Go on from the newest checkpoint, write one after every stage, and the part at the end; log each stage."""
    own = run.checkpoint_folder(label, seed)
    remove_leftovers(own)
    complaints: list[str] = []

    def of_this_trial(rows: list[Row]) -> bool:
        return is_of({row.learner for row in rows}, {row.seed for row in rows}, settings, label, seed)

    done = checkpoints.newest(own, complaints.append, of_this_trial) or Checkpoint(0, [], {})
    for complaint in complaints:
        say(complaint)
    if complaints:
        way = (
            f"goes on after {done.stages} of {settings.stages} {settings.stage_name}" if done.stages else "starts over"
        )
        say(f"{label} with seed {seed} {way}")
    checkpoints.prune(own, done.stages)
    if done.stages:
        trial.restore(done.tensors)
    told = TrialLog(log, run.folder, settings.name, label, seed)
    if told.is_new:  # the run was not logged when it began
        told.rows(done.rows)
    for index in range(done.stages, settings.stages):
        began = time.perf_counter()
        rows = [*done.rows, *trial.stage(index)]
        before = len(done.rows)
        done = Checkpoint(index + 1, rows, trial.tensors(), done.seconds + time.perf_counter() - began)
        checkpoints.write(own, done)
        told.stage(rows[before:], trial)
    told.close()
    if isinstance(trial, Illustrated):  # before the part, whose rows refer to them
        write_pictures(run.picture_folder(label, seed), trial.pictures(done.rows))
    with replacing(run.part(label, seed).with_suffix(".seconds"), flush=False) as path:
        path.write_text(f"{done.seconds:.3f}\n")
    write_table(run.part(label, seed), as_table(done.rows))


def is_of(learners: set[str], seeds: set[int], settings: Any, label: str, seed: int) -> bool:
    """Whether rows with these learners and seeds can be of one trial: a file may have been moved there from another."""
    others = {entry.label for entry in settings.entries} - {label}
    return not learners & others and not seeds & (set(range(settings.seeds)) - {seed})


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread: trials run side by side, so more threads would only wait for each other, and the order of
    additions in a sum would depend on their number.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def interrupted(error: BaseException | None) -> bool:
    """Whether an error is a stop from the keyboard, or was caused by one."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def say(text: str) -> None:
    """Print a message for the user."""
    print(f"mesu: {text}", file=sys.stderr, flush=True)


def _do_in_worker(parent: int, run: RunFolder, settings: Any, entry: Entry, seed: int, log: Sequence[str] = ()) -> None:
    """`do_trial` in a process of its own, which ends with the one that started it."""
    end_with(parent)
    torch.set_num_threads(1)
    do_trial(run, settings, entry, seed, log)
