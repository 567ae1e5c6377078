"""How numbers and durations are written."""

import math

import pytest

from mesu.lab.drawing.numbers import duration, number


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (63, "63 s"),
        (100, "1 min 40 s"),
        (3599.6, "1 h 0 min"),
        (90_000, "25 h 0 min"),
    ],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("last_five_accuracy", 0.91369, "91.4"),
        ("rigidity", 3.82, "3.82"),
        ("rigidity", 49.3, "49.3"),
        ("rigidity", 328.4, "328"),
        ("rigidity", 2425.6, "2,426"),
        ("ood_auroc", 0.997, "0.997"),
        ("ood_auroc", None, "–"),  # noqa: RUF001
        ("ood_auroc", math.nan, "–"),  # noqa: RUF001
        ("slope", -12.3456, "−12.35"),  # noqa: RUF001
    ],
)
def test_numbers_are_written_for_people(name, value, words):
    assert number(name, value) == words
