"""Which figures each experiment has. Each set of figures has a file of its own and a line here."""

from collections.abc import Callable

import polars as pl

from mesu.lab.drawing.panels import Panel
from mesu.lab.experiments.animals.examples import Pictures, example_panels
from mesu.lab.experiments.animals.figures import animal_panels
from mesu.lab.experiments.cifar.figures import cifar_panels
from mesu.lab.experiments.dynamics.figures import dynamics_panels
from mesu.lab.experiments.hessian.figures import hessian_panels
from mesu.lab.experiments.permuted.figures import permuted_panels
from mesu.lab.experiments.vanishing.figures import vanishing_panels
from mesu.lab.table import Summary, summarise

FIGURES: dict[str, Callable[[pl.DataFrame, Summary], list[Panel]]] = {
    "permuted-digits": permuted_panels,
    "permuted-mnist": permuted_panels,
    "vanishing": vanishing_panels,
    "hessian": hessian_panels,
    "dynamics": dynamics_panels,
    "animals": animal_panels,
    "split-cifar10": cifar_panels,
    "cifar": cifar_panels,
}

# panels made from pictures that the run saved
ILLUSTRATED: dict[str, Callable[[pl.DataFrame, Pictures, Summary], list[Panel]]] = {"animals": example_panels}


def panels(table: pl.DataFrame, pictures: Pictures | None = None, summary: Summary | None = None) -> list[Panel]:
    """The panels of a table's experiment; none for an experiment without figures.

    Args:
        table: The table.
        pictures: Pictures that the run saved, for panels that show them.
        summary: What `summarise` gives for the table, if the caller has it already.
    """
    name = str(table["experiment"][0])
    if name not in FIGURES:
        return []
    summary = summarise(table) if summary is None else summary
    drawn = FIGURES[name](table, summary)
    return drawn + ILLUSTRATED[name](table, pictures, summary) if pictures and name in ILLUSTRATED else drawn
