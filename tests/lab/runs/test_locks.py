"""One process at a time on a folder, and workers that are ended."""

import multiprocessing
import signal
import time
from dataclasses import replace

import joblib.externals.loky as loky
import pytest
from tests.lab.runs.tiny import TINY

from mesu.lab.runs.locks import alone, end_workers
from mesu.lab.runs.run import Run

pytestmark = pytest.mark.usefixtures("quick")


def test_workers_are_ended_whatever_they_do():
    # processes without an executor, which would end them too, in its own way, as soon as it sees that one is lost
    context = loky.backend.get_context("loky")
    workers = [context.Process(target=time.sleep, args=(600,)) for _ in range(2)]
    other = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))  # not loky's
    for process in (*workers, other):
        process.start()
    try:
        end_workers()
        assert [worker.exitcode for worker in workers] == [-signal.SIGTERM] * 2
        assert other.is_alive()
    finally:
        for process in (*workers, other):
            process.terminate()
            process.join()


def test_an_executor_says_that_its_workers_were_ended():
    executor = loky.ProcessPoolExecutor(2)
    asleep = [executor.submit(time.sleep, 600) for _ in range(2)]
    workers = list(executor._processes.values())
    assert len(workers) == 2
    end_workers()
    for future in asleep:
        with pytest.raises(loky.process_executor.TerminatedWorkerError):
            future.result()
    for worker in workers:
        worker.join()
        assert not worker.is_alive()


def test_a_run_that_somebody_is_at_work_on_is_refused(tmp_path, refused):
    run = Run.create(replace(TINY, learners=("sgd",)), tmp_path)
    with alone(run.folder):
        said = refused("resume", run.folder, "--workers", 1)
    assert f"another process is at work on {run.folder}: wait until it is done, or stop it first" in said
    assert not (run.folder / "table.parquet").exists()
