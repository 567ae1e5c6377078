"""What a model's file carries for its user: a reader's position, say, so that state and position are one file.

It is written as JSON and must come back exactly as it was: words, numbers, True, False, None, and lists and dicts of them.
"""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

MOST_BYTES = 2**16  # of the JSON: a position is a few words, and every save writes it
DEEPEST = 16  # lists and dicts inside each other
WHOLE = 2**63  # larger integers are read by few other programs


def carriable(carry: Any) -> dict[str, Any]:
    """A copy of what a file is asked to carry, if it comes back from JSON as it was.

    Raises:
        ValueError: naming what does not.
    """
    if not isinstance(carry, Mapping):
        raise ValueError(f"carry must be a dict, got {carry!r}: give names to what is carried, as in {{'offset': 123}}")
    copied = _copy("carry", carry, 0)
    size = len(json.dumps(copied).encode())
    if size > MOST_BYTES:
        raise ValueError(
            f"carry must take at most {MOST_BYTES:,} bytes as JSON, got {size:,}: keep it in a file of its own"
        )
    return copied


def _copy(place: str, value: Any, depth: int) -> Any:
    if depth > DEEPEST:
        raise ValueError(f"carry must have at most {DEEPEST} lists and dicts inside each other: {place} is deeper")
    if isinstance(value, Mapping):
        for key in value:
            if type(key) is not str:
                raise ValueError(f"the keys of {place} must be words, got {key!r}: write str({key!r})")
        return {key: _copy(f"{place}[{key!r}]", part, depth + 1) for key, part in value.items()}
    if type(value) is list:
        return [_copy(f"{place}[{i}]", part, depth + 1) for i, part in enumerate(value)]
    if value is None or type(value) in (str, bool):
        return value
    if type(value) is int and -WHOLE <= value < WHOLE:
        return value
    if type(value) is float and isfinite(value):
        return value
    raise ValueError(
        f"{place} must be a word, a finite number of 64 bits, True, False, None, a list or a dict, got {value!r}: "
        "JSON would not give it back as it was"
    )
