"""Handwritten digits, 8 x 8 pixels, 1,797 of them: they come with scikit-learn, so there is nothing to download."""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from mesu.data.dataset import Dataset

TEST_EXAMPLES = 360


def digits() -> Dataset:
    """1,437 digits to learn and 360 to test, always the same ones, classes in equal shares."""
    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=TEST_EXAMPLES, stratify=y, random_state=0)
    return Dataset.standardised("digits", x_train, y_train, x_test, y_test)
