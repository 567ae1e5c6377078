"""One warning, once, that names the remedy: where learning goes wrong, and when it is looked at.

Looking costs time, so it is done at a few updates only: the first, the 10th, the 100th and every 1,000th (in compiled
code, which is faster, every 10,000th).
`mesu.optim.health` looks at steps, `mesu.posterior.health` at batches. Turn the warnings off as any other:

    warnings.filterwarnings("ignore", category=mesu.LearningWarning)
"""

import os
import threading
import warnings
from typing import Any

EARLY, EVERY, SELDOM = (1, 10, 100), 1000, 10_000
_lock = threading.Lock()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_after_fork_in_child)


class LearningWarning(UserWarning):
    """Something keeps a network from learning as it should. The message says what was seen and what helps; it comes once."""


def is_look(number: int) -> bool:
    """Whether this update, counted from 1, is looked at."""
    return number in EARLY or number % EVERY == 0


def next_look(number: int) -> int:
    """After which update, later than this one, compiled code is looked at."""
    return next((early for early in (*EARLY, EVERY) if early > number), (number // SELDOM + 1) * SELDOM)


def counted(thing: Any, updates: int = 1, key: str = "_updates_seen") -> int:
    """How many updates a network or an optimiser has seen, these included. Copies made by torch may begin again."""
    number = vars(thing).get(key, 0) + updates
    vars(thing)[key] = number
    return number


def silence(thing: Any, kind: str) -> None:
    """Never warn this network or optimiser of that."""
    vars(thing).setdefault("_warned_of", set()).add(kind)


def warn_once(thing: Any, kind: str, message: str) -> None:
    """Give a `LearningWarning`, unless this network or optimiser has had one of this kind."""
    with _lock:
        said = vars(thing).setdefault("_warned_of", set())
        if kind in said:
            return
        said.add(kind)
    warnings.warn(message, LearningWarning, stacklevel=2)
