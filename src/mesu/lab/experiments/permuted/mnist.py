"""Permuted MNIST (Fig. 3): 784 pixels shuffled anew for each task, one example at a time, 50 hidden units."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mesu.lab.data import Dataset, fashion_mnist, mnist
from mesu.lab.experiments.permuted.shared import PermutedSettings


@dataclass(frozen=True)
class PermutedMNIST(PermutedSettings):
    """Settings of `mesu run permuted-mnist`: the paper's table, and the published run where the two differ."""

    name: ClassVar[str] = "permuted-mnist"
    scales: ClassVar[dict[str, dict[str, Any]]] = {
        "smoke": {"tasks": 2, "seeds": 1},
        "small": {"tasks": 20, "seeds": 3},  # some minutes on two cores
        "paper": {},  # about an hour and a quarter on two cores
    }

    def data(self) -> tuple[Dataset, np.ndarray]:
        """MNIST; the outliers are Fashion-MNIST's test images."""
        outliers = fashion_mnist().x_test
        return mnist(), outliers
