"""What an attack is, and how it is counted."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

Tries = Iterator[str | None]  # for each try None if nothing was lost, or a sentence about what was


@dataclass(frozen=True)
class Attack:
    """One kind of attack: `tries` of it, or as many as there is time for."""

    name: str
    run: Callable[[np.random.Generator, Path], Tries]  # endless, or until there is nothing left to try
    tries: int
    quick: int  # tries of a quick look
    share: float = 1.0  # of the time


@dataclass
class Count:
    """What came of an attack."""

    tried: int = 0
    survived: int = 0
    lost: dict[str, int] = field(default_factory=dict)  # how often, by sentence


def count(attack: Attack, tries: int, seconds: float, folder: Path) -> Count:
    """Make an attack, in this folder, until it has had so many tries or so much time."""
    found, end = Count(), time.monotonic() + seconds
    made = attack.run(np.random.default_rng(0), folder)
    try:
        for lost in made:
            found.tried += 1
            if lost is None:
                found.survived += 1
            else:
                found.lost[lost] = found.lost.get(lost, 0) + 1
            if found.tried >= tries or time.monotonic() > end:
                break
    finally:
        made.close()  # type: ignore[attr-defined]  # a generator, which ends its processes
    return found
