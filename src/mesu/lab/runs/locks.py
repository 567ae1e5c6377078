"""One process at a time on a folder, and workers that end with the process that started them.

If only the main process of a run is killed (by a scheduler, by the system for lack of memory, by hand), its workers would go on
learning and writing, at the same time as those of the process that resumes the run. And without `end_workers`, Ctrl-C in the
main process would wait for its workers to finish.
"""

import functools
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: two processes on one folder are not told apart there
    fcntl = None  # type: ignore[assignment]

EVERY = 0.5  # seconds between two looks at the parent
PATIENCE = 60.0  # seconds that an ended worker may take to be gone; a fraction of one, unless the machine is very busy


@contextmanager
def alone(folder: Path, wait: bool = False) -> Iterator[None]:
    """Lock a folder until the block or the process ends, however it ends. On file systems without locks, do nothing.

    Args:
        folder: The folder to lock; nothing is written to it.
        wait: Wait until another process releases it, instead of refusing.

    Raises:
        ValueError: if another process has locked it, and `wait` is false.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if not wait:
                raise ValueError(
                    f"another process is at work on {folder}: wait until it is done, or stop it first"
                ) from error
            print(f"mesu: waiting for another process, which is at work on {folder}", file=sys.stderr, flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            pass
        yield
    finally:
        os.close(handle)  # which releases the lock


def end_workers() -> None:
    """End the worker processes of this one, whatever they are doing, and wait until they are gone.

    What they have done is on disk.
    """
    # loky's only: a program that runs experiments may have others
    workers = [child for child in multiprocessing.active_children() if "loky" in type(child).__module__]
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(PATIENCE)


@functools.cache  # one thread a process, however many jobs it gets
def end_with(parent: int) -> None:
    """End this process soon after the process `parent`, which started it, has ended."""
    if os.getpid() == parent:
        return

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(EVERY)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()
