"""The pair that posterior rules move: a mean and a standard deviation (or the gradients with respect to them)."""

from typing import Any, NamedTuple


class Gaussian(NamedTuple):
    """A mean and a standard deviation, tensors or scalars alike; as a gradient, dC/dmean and dC/dstd."""

    mean: Any
    std: Any
