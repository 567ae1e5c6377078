"""Panels of the photographs that a learner is most and least certain of, as in the paper's Fig. 2."""

from collections.abc import Mapping
from math import isfinite
from typing import NamedTuple

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from mesu.lab.data.animals import FAMILIES, FAMILY_NAMES, SPECIES
from mesu.lab.drawing.numbers import NOTHING
from mesu.lab.drawing.panels import Panel
from mesu.lab.drawing.style import FAINT, GRID, label
from mesu.lab.experiments.animals.experiment import EXAMPLES
from mesu.lab.experiments.animals.figures import kind_of_doubt, shown_learners
from mesu.lab.table import Summary

Pictures = Mapping[str, Mapping[str, np.ndarray]]  # by learner and seed, then by name: what `Run.pictures` gives

RIGHT, WRONG = "\N{CHECK MARK}", "\N{BALLOT X}"
LEAST = 1e-4  # nats: less is not told apart
# in widths of a picture: from one to the next, a row's heading, a line of text below a picture, the gap before the next row
ACROSS, HEADING, LINE, GAP = 1.16, 0.3, 0.155, 0.13
INCHES = 0.9  # that a picture is wide
TITLE = 0.27  # inches


class Example(NamedTuple):
    """One photograph and the learner's answer."""

    picture: np.ndarray | None
    species: str  # empty for a whale
    answer: str  # a family
    right: bool
    doubt: str


def example_panels(table: pl.DataFrame, pictures: Pictures, summary: Summary) -> list[Panel]:
    """A panel for each learner shown that has pictures."""
    panels = []
    for learner in shown_learners(summary):
        own = table.filter(pl.col("measure").str.starts_with("example_"), learner=learner)
        if own.is_empty() or not (known := pictures.get(f"{learner}-{own['seed'].min()}")):
            continue
        groups = _groups(own.filter(seed=own["seed"].min()), known)
        kind = kind_of_doubt(learner)
        panels.append(
            Panel(
                f"examples-{learner}",
                f"{label(learner)}: sure, and in doubt",
                f"Photographs to test at the end, of the first draw, each with the learner's answer and its {kind} "
                f"uncertainty in nats. {RIGHT} its family, {WRONG} another; whales are of none.",
                "; ".join(f"{name}: {', '.join(map(_in_words, group))}" for name, group in groups.items()),
                lambda axes, groups=groups: _draw(axes, groups),
                height=TITLE + INCHES * sum(map(_height, groups.values())),
                alone=True,
            )
        )
    return panels


def _groups(rows: pl.DataFrame, pictures: Mapping[str, np.ndarray]) -> dict[str, list[Example]]:
    animals, whales = (_examples(rows, name, pictures) for name in ("animal", "whale"))
    groups = {
        "animals that it is most sure of": animals[: len(animals) // 2],
        "animals that it doubts most": animals[len(animals) // 2 :][::-1],
        "whales that it doubts most": whales[len(whales) // 2 :][::-1],
        "whales that it doubts least": whales[: len(whales) // 2],
    }
    return {name: group for name, group in groups.items() if group}  # there may be a single whale


def _examples(rows: pl.DataFrame, name: str, pictures: Mapping[str, np.ndarray]) -> list[Example]:
    """By rising doubt, as the table has them."""
    doubts, answers, species = (
        dict(rows.filter(measure=f"example_{name}{what}").select("index", "value").iter_rows())
        for what in ("", "_answer", "_species")
    )
    return [
        Example(
            pictures.get(f"{name}-{place}"),
            SPECIES[int(species[place])] if place in species else "",
            FAMILY_NAMES[int(answers[place])],
            place in species and species[place] % FAMILIES == answers[place],
            _nats(doubt),
        )
        for place, doubt in doubts.items()
    ]


def _nats(doubt: float) -> str:
    if not isfinite(doubt):
        return NOTHING
    return f"< {LEAST:g}" if doubt < LEAST else f"{float(f'{doubt:.2g}'):.15g}"


def _in_words(example: Example) -> str:
    answer = f"taken for {example.answer}, {example.doubt} nats"
    return f"{example.species} ({'rightly ' if example.right else ''}{answer})" if example.species else answer


def _below(example: Example) -> list[str]:
    """The lines below a picture."""
    if not example.species:
        return [example.answer, example.doubt]
    return [example.species, f"{example.answer} {RIGHT if example.right else WRONG}", example.doubt]


def _height(group: list[Example]) -> float:
    return HEADING + 1 + LINE * len(_below(group[0])) + GAP


def _draw(axes: Axes, groups: Mapping[str, list[Example]]) -> None:
    """A row a group, y downwards; lengths are widths of a picture."""
    axes.axis("off")
    bottom = 0.0
    for name, group in groups.items():
        top = bottom + HEADING
        axes.text(0, top - 0.07, name, va="bottom", fontsize=9)
        for column, example in enumerate(group):
            left = column * ACROSS
            if example.picture is None:
                axes.fill_between((left, left + 1), top, top + 1, color=GRID)
            else:
                axes.imshow(example.picture, extent=(left, left + 1, top + 1, top), interpolation="bicubic")
            *words, doubt = _below(example)
            for line, word in enumerate(words):
                axes.text(left, top + 1.04 + line * LINE, word, va="top", fontsize=8)
            axes.text(left, top + 1.04 + len(words) * LINE, doubt, va="top", fontsize=8, color=FAINT)
        bottom += _height(group)
    axes.set(xlim=(-0.05, EXAMPLES * ACROSS), ylim=(bottom, 0), aspect="equal", anchor="NW")
