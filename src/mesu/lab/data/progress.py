"""Progress messages of fetching: lines on standard error, unless a program replaces them, for example with a bar."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Progress:
    """Prints each step as a line, so that no long download is silent."""

    def say(self, line: str) -> None:
        """Print a line."""
        print(line, file=sys.stderr, flush=True)

    def show(self, doing: str, done: int, total: int | None) -> None:
        """Show how many bytes are done. Called often, so nothing is printed here."""


_current: ContextVar[Progress | None] = ContextVar("mesu_progress", default=None)


def progress() -> Progress:
    """The progress in use now."""
    return _current.get() or Progress()


@contextmanager
def shown_by(shown: Progress) -> Iterator[None]:
    """Use `shown` for everything that is fetched inside."""
    token = _current.set(shown)
    try:
        yield
    finally:
        _current.reset(token)
