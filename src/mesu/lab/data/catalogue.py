"""Every data set that `mesu` knows, by the name that the commands use."""

from mesu.lab.data.animals import ANIMALS
from mesu.lab.data.cifar import CIFAR10, CIFAR100
from mesu.lab.data.digits import DIGITS
from mesu.lab.data.mnist import FASHION_MNIST, MNIST
from mesu.lab.data.published import Published

CATALOGUE = {
    published.name: published for published in (DIGITS, MNIST, FASHION_MNIST, CIFAR10, CIFAR100, *ANIMALS.values())
}


def published(name: str) -> Published:
    """The data set of this name.

    Raises:
        ValueError: if there is none.
    """
    if name not in CATALOGUE:
        raise ValueError(f"there is no data set {name!r}: choose from {', '.join(CATALOGUE)}")
    return CATALOGUE[name]
