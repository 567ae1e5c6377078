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

FIGURES: dict[str, Callable[[pl.DataFrame], list[Panel]]] = {
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
ILLUSTRATED: dict[str, Callable[[pl.DataFrame, Pictures], list[Panel]]] = {"animals": example_panels}


def panels(table: pl.DataFrame, pictures: Pictures | None = None) -> list[Panel]:
    """The panels of a table's experiment, and of its pictures if it has any; an unknown experiment has none."""
    name = str(table["experiment"][0])
    drawn = FIGURES[name](table) if name in FIGURES else []
    return drawn + ILLUSTRATED[name](table, pictures) if pictures and name in ILLUSTRATED else drawn
