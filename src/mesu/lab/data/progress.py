"""How fetching tells people what it does: lines on standard error, unless a program shows something livelier."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Progress:
    """Says each step in a line. A download of megabytes is never silent."""

    def say(self, line: str) -> None:
        """A line to keep."""
        print(line, file=sys.stderr, flush=True)

    def show(self, doing: str, done: int, total: int | None) -> None:
        """How far something has come, in bytes: often repeated, so not printed here."""


_current: ContextVar[Progress | None] = ContextVar("mesu_progress", default=None)


def progress() -> Progress:
    """The progress that is shown now."""
    return _current.get() or Progress()


@contextmanager
def shown_by(shown: Progress) -> Iterator[None]:
    """Everything fetched inside is told to `shown`."""
    token = _current.set(shown)
    try:
        yield
    finally:
        _current.reset(token)
