"""Trials of a run: each goes through the stages it has not done, here or in a worker, with a checkpoint after each."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import joblib
import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError

from mesu.disk import replacing
from mesu.lab.entry import Entry
from mesu.lab.experiments.trial import Illustrated
from mesu.lab.runs import checkpoints
from mesu.lab.runs.checkpoints import Checkpoint, remove_leftovers
from mesu.lab.runs.folder import RunFolder, make_folder
from mesu.lab.runs.locks import alone, end_with, end_workers
from mesu.lab.runs.pictures import write_pictures
from mesu.lab.runs.tables import write_table
from mesu.lab.table import as_table

Job = tuple[Entry, int]  # an entry and a seed


def do_all(run: RunFolder, settings: Any, jobs: Sequence[Job], workers: int) -> None:
    """Do these jobs, `workers` at a time; each leaves its part.

    Raises:
        ValueError: if a worker was killed.
        KeyboardInterrupt: if the run was stopped.
    """
    # the longest first, so that the cores finish together
    jobs = sorted(jobs, key=lambda job: -job[0].cost)
    if workers == 1 or len(jobs) == 1:
        with one_thread():
            for entry, seed in jobs:
                do_trial(run, settings, entry, seed)
    elif jobs:
        before = sys.exception()  # an exception that the caller was already handling
        try:
            do = joblib.delayed(_do_in_worker)
            # the settings travel with the job: to unpickle them, a worker imports the module that registers the experiment
            joblib.Parallel(workers, backend="loky")(do(os.getpid(), run, settings, *job) for job in jobs)
        except BaseException as error:
            end_workers()  # joblib would wait for them
            if interrupted(error, before):
                raise KeyboardInterrupt from error
            if isinstance(error, TerminatedWorkerError):
                raise ValueError(
                    "a worker process was killed, perhaps for lack of memory: "
                    f"`mesu resume {run.folder} --workers 1` goes on"
                ) from error
            raise


def do_trial(run: RunFolder, settings: Any, entry: Entry, seed: int) -> None:
    """Take one entry with one seed through the stages it has not done."""
    trial = settings.trial(entry, seed)
    own = run.checkpoint_folder(entry.label, seed)
    make_folder(own)
    with alone(own, wait=True):  # a worker whose run was killed may take a moment to end
        learn(run, settings, trial, entry.label, seed)


def learn(run: RunFolder, settings: Any, trial: Any, label: str, seed: int) -> None:
    """Go on from the newest checkpoint, write one after every stage, and the part at the end."""
    own = run.checkpoint_folder(label, seed)
    remove_leftovers(own)
    complaints: list[str] = []
    done = checkpoints.newest(own, complaints.append) or Checkpoint(0, [], {})
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
    for index in range(done.stages, settings.stages):
        began = time.perf_counter()
        rows = [*done.rows, *trial.stage(index)]
        done = Checkpoint(index + 1, rows, trial.tensors(), done.seconds + time.perf_counter() - began)
        checkpoints.write(own, done)
    if isinstance(trial, Illustrated):  # before the part, whose rows refer to them
        write_pictures(run.picture_folder(label, seed), trial.pictures(done.rows))
    with replacing(run.part(label, seed).with_suffix(".seconds")) as path:
        path.write_text(f"{done.seconds:.3f}\n")
    write_table(run.part(label, seed), as_table(done.rows))


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch: trials run side by side, where more threads only wait for each other, and so that a sum is
    the same whoever computes it.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def interrupted(error: BaseException | None, before: BaseException | None) -> bool:
    """Whether an error is a stop from the keyboard, or was caused by one; the error `before` and its causes do not count."""
    while error not in (None, before):
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def say(text: str) -> None:
    """Tell whoever watches the run."""
    print(f"mesu: {text}", file=sys.stderr, flush=True)


def _do_in_worker(parent: int, run: RunFolder, settings: Any, entry: Entry, seed: int) -> None:
    """`do_trial` in a process of its own, which ends with the one that started it."""
    end_with(parent)
    torch.set_num_threads(1)
    do_trial(run, settings, entry, seed)
