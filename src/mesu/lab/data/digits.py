"""Handwritten digits, 8 x 8 pixels, 1,797 of them: they come with scikit-learn, so there is nothing to download."""

from pathlib import Path

import numpy as np

from mesu.lab.data.dataset import Dataset
from mesu.lab.data.finding import load
from mesu.lab.data.published import Array, Arrays, Published

TEST_EXAMPLES = 360


class ScikitLearn:
    """The copy that scikit-learn has."""

    place = "scikit-learn"
    here = True

    def arrays(self, folder: Path) -> Arrays:
        """Images and labels, as bytes."""
        from sklearn.datasets import load_digits  # a second to import, which `mesu --help` does not need

        x, y = map(np.asarray, load_digits(return_X_y=True))
        return {"images": x.astype(np.uint8).reshape(-1, 8, 8), "labels": y.astype(np.uint8)}


DIGITS = Published(
    name="digits",
    title="Digits",
    what="1,797 handwritten digits, 8 x 8",
    contents={
        "images": Array((1797, 8, 8), "uint8", "8f26b2bd9d135c256808f68f14fdabddde6d9c7f869ae419704b051f0f14b3b3"),
        "labels": Array((1797,), "uint8", "8ba4f891220f5e4c9c819638d1602d74b83618f167043c6da52a2a247841ddf0"),
    },
    sources=(ScikitLearn(),),
    ships_with="scikit-learn",
)


def digits() -> Dataset:
    """1,437 digits to learn and 360 to test, always the same ones, classes in equal shares."""
    from sklearn.model_selection import train_test_split

    arrays = load(DIGITS)
    x, y = arrays["images"].reshape(-1, 64).astype(np.float64), arrays["labels"]
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=TEST_EXAMPLES, stratify=y, random_state=0)
    return Dataset.standardised("digits", x_train, y_train, x_test, y_test)
