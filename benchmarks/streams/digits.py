"""Streams made of scikit-learn's 1,797 digits of 8 x 8 pixels. Every task has each digit once, in an order of its own."""

import numpy as np
from scipy.ndimage import rotate
from sklearn.datasets import load_digits

Made = tuple[np.ndarray, np.ndarray, tuple[int, ...]]  # inputs [rows, 64], labels [rows], rows at which a task begins


def all_digits() -> tuple[np.ndarray, np.ndarray]:
    """Pixels [1797, 64] and labels, in scikit-learn's order."""
    images, labels = load_digits(return_X_y=True)
    return np.asarray(images), np.asarray(labels)


def permuted(seed: int, tasks: int) -> Made:
    """Each task shuffles the pixels in a new way; the first leaves them."""
    return _in_turn(seed, list(range(tasks)))


def recurring(seed: int, order: str) -> Made:
    """Tasks that come back: the same letter is the same permutation of the pixels."""
    return _in_turn(seed, [ord(letter) - ord("A") for letter in order])


def rotated(seed: int, passes: int, degrees: float) -> Made:
    """All digits `passes` times over, turned a little further with every row, from 0 to `degrees`. No task ever begins."""
    images, labels = all_digits()
    draw = np.random.default_rng(seed)
    order = np.concatenate([draw.permutation(len(labels)) for _ in range(passes)])
    angles = np.linspace(0, degrees, len(order))
    return np.stack([turned(images[i], angle) for i, angle in zip(order, angles, strict=True)]), labels[order], ()


def turned(image: np.ndarray, degrees: float) -> np.ndarray:
    """A digit of 64 pixels, turned about its middle; bilinear, and blank where nothing was."""
    return rotate(image.reshape(8, 8), degrees, reshape=False, order=1).reshape(-1)


def _in_turn(seed: int, tasks: list[int]) -> Made:
    images, labels = all_digits()
    draw = np.random.default_rng(seed)
    pixels = [np.arange(64), *(draw.permutation(64) for _ in range(max(tasks)))]
    orders = [draw.permutation(len(labels)) for _ in tasks]
    X = np.concatenate([images[order][:, pixels[task]] for order, task in zip(orders, tasks, strict=True)])
    changes = tuple(len(labels) * i for i in range(1, len(tasks)))
    return X, labels[np.concatenate(orders)], changes
