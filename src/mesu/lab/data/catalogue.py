"""The data sets that `mesu data` knows, by name: those of this package, and those that users register."""

from mesu.lab.data.animals import ANIMALS
from mesu.lab.data.cifar import CIFAR10, CIFAR100
from mesu.lab.data.digits import DIGITS
from mesu.lab.data.mnist import FASHION_MNIST, MNIST
from mesu.lab.data.published import Published
from mesu.lab.data.row_streams import COVERTYPE, ELEC2, SEA, WEATHER
from mesu.lab.registry import Registry

data_sets = Registry("data set", "mesu.data_sets")


def register(published: Published) -> Published:
    """Add a data set to those that `mesu data` knows, under its own name, and return it.

    A package can also declare it as an entry point of the group `mesu.data_sets`; it is then known without an import.
    docs/how-to/add-a-data-set.md shows both.

    Raises:
        ValueError: if another data set has this name.
        TypeError: if it is no `Published`.
    """
    if not isinstance(published, Published):
        raise TypeError(f"a data set must be a Published, got {type(published).__name__}: describe its arrays with one")
    return data_sets.register(published.name)(published)


for _published in (DIGITS, MNIST, FASHION_MNIST, CIFAR10, CIFAR100, *ANIMALS.values(), ELEC2, WEATHER, COVERTYPE, SEA):
    register(_published)
