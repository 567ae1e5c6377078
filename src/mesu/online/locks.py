"""Locks that survive a fork: one thread at a time learns, and a forked child waits for no thread that it does not have.

A fork copies only the thread that calls it. Locks that other threads held at that moment would stay held in the child for ever.
Torch would wait for ever for its worker threads, so a child has one thread for torch, as torch's own data loaders have.
"""

import os
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import torch
from numba.core.compiler_lock import global_compiler_lock

Value = TypeVar("Value")


class Lock:
    """A lock that the same thread may take twice, and that nobody holds in a forked child."""

    def __init__(self) -> None:
        self._lock, self._lost = threading.RLock(), False
        _all.add(self)

    def held(self) -> "Lock":
        """Hold the lock. Gives whether another thread held it at a fork, which left what it was changing half done."""
        return self

    def __enter__(self) -> bool:
        self._lock.acquire()
        lost, self._lost = self._lost, False
        return lost

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _renew(self) -> None:
        if self._lock.acquire(blocking=False):  # nobody's, or of the thread that forked
            self._lock.release()
        else:
            self._lock, self._lost = threading.RLock(), True


_all: WeakSet[Lock] = WeakSet()
_of_models: WeakKeyDictionary[Any, Lock] = WeakKeyDictionary()
_giving = Lock()


def lock_of(model: Any) -> Lock:
    """The lock of a model. It is not kept in the model, where copies and pickles would find it."""
    lock = _of_models.get(model)
    if lock is None:
        with _giving.held():
            lock = _of_models.setdefault(model, Lock())
    return lock


class once(Generic[Value]):  # noqa: N801  (a decorator)
    """As `functools.cached_property`, without the lock that it takes in Python 3.11: two threads may compute the same value."""

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self.compute = compute

    def __get__(self, instance: Any, _: Any = None) -> Value:
        value = instance.__dict__[self.compute.__name__] = self.compute(instance)
        return value


def _after_fork_in_child() -> None:
    global_compiler_lock.release()
    torch.set_num_threads(1)
    for lock in list(_all):
        lock._renew()


if hasattr(os, "register_at_fork"):  # Windows has no forks
    # A compilation in another thread ends first: the child could not go on with half of one.
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=_after_fork_in_child,
    )
