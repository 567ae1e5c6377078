"""Checks that experiments share: settings that cannot run are refused before anything is started."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from mesu.lab.entry import Entry
from mesu.lab.experiments.learners import Choice, make_learner


def at_least_one(settings: Any, *names: str) -> None:
    """Refuse settings below 1; None, which leaves a setting out, is accepted."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} must be 1 or more, got {value!r}")


def all_different(settings: Any, *names: str) -> None:
    """Refuse lists that are empty or name something twice."""
    for name in names:
        values = getattr(settings, name)
        if not values or len(set(values)) < len(values):
            raise ValueError(f"{name} must be one or more, all different, got {','.join(map(str, values))!r}")


def can_be_made(entry: Entry, choices: Mapping[str, Choice]) -> None:
    """Refuse an unknown learner, and settings that its posterior or its rule refuses: tried on a network of one weight."""
    make_learner(entry.learner, choices, lambda: nn.Sequential(nn.Linear(1, 1, bias=False)), seed=0, engine=False)
