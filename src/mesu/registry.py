"""Things by name, those of other packages included: a registry has one entry a name, and is open to everybody.

A name comes from one of two places:

- a decorator: `@register("my-name")` above the class, in a module that has been imported;
- an entry point: a package that declares it in its pyproject.toml, and is imported when the name is asked for.
"""

import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any


class Registry:
    """Things of one kind by name.

    Args:
        kind: What they are, for messages: "experiment".
        group: The entry points that name more of them: "mesu.experiments".

    Example:
        >>> greetings = Registry("greeting", "mesu.greetings")
        >>> @greetings.register("hello")
        ... def hello():
        ...     return "Hello."
        >>> greetings["hello"]()
        'Hello.'
        >>> list(greetings)
        ['hello']
    """

    def __init__(self, kind: str, group: str) -> None:
        self.kind, self.group = kind, group
        self._registered: dict[str, Any] = {}

    def register(self, name: str) -> Callable[[Any], Any]:
        """A decorator that gives what is below it a name.

        Raises:
            ValueError: if something else has this name.
        """

        def register(thing: Any) -> Any:
            if not isinstance(name, str) or not name:
                raise ValueError(f"the name of the {self.kind} must be a word, got {name!r}")
            known = self._registered.get(name, thing)
            # a module that is imported again, under another name or after an edit, may replace what it registered
            if getattr(known, "__qualname__", known) != getattr(thing, "__qualname__", thing):
                raise ValueError(f"there is already {self.kind} {name!r} ({known!r}): choose another name")
            self._registered[name] = thing
            return thing

        return register

    def __getitem__(self, name: str) -> Any:
        if name in self._registered:
            return self._registered[name]
        declared = self._declared()
        if name in declared:
            try:
                return declared[name].load()
            except Exception as error:  # whatever the module of another package raises
                raise ValueError(
                    f"the {self.kind} {name!r} cannot be loaded from {declared[name].value!r}: {error}"
                ) from error
        raise ValueError(
            f"there is no {self.kind} {name!r}: choose from {', '.join(self)}, or import the module that registers it"
        )

    def get(self, name: str, default: Any = None) -> Any:
        """What a name stands for, or else the default."""
        return self[name] if name in self else default  # noqa: SIM401  (this is what it would call)

    def __contains__(self, name: object) -> bool:
        return name in self._registered or name in self._declared()

    def __iter__(self) -> Iterator[str]:
        yield from self._registered
        yield from (name for name in self._declared() if name not in self._registered)

    def __len__(self) -> int:
        return sum(1 for _ in self)  # not len(list(self)): list() asks for the length first

    def items(self) -> Iterator[tuple[str, Any]]:
        """Names and what they stand for; what another package declares and cannot be loaded is left out, with a warning."""
        for name in self:
            try:
                yield name, self[name]
            except ValueError as error:
                warnings.warn(str(error), stacklevel=2)

    def origin(self, name: str) -> str:
        """The module that a name comes from: what another process has to import to know it."""
        return getattr(self[name], "__module__", None) or type(self[name]).__module__

    def _declared(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)}
