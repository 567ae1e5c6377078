"""Which figures each experiment has: one file and one line here for each."""

from collections.abc import Callable

import polars as pl

from mesu.report.animals import animal_panels
from mesu.report.cifar import cifar_panels
from mesu.report.dynamics import dynamics_panels
from mesu.report.hessian import hessian_panels
from mesu.report.panels import Panel
from mesu.report.permuted import permuted_panels
from mesu.report.vanishing import vanishing_panels

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


def panels(table: pl.DataFrame) -> list[Panel]:
    """The panels of a table's experiment; none where no figure is known."""
    draw = FIGURES.get(str(table["experiment"][0]))
    return draw(table) if draw else []
