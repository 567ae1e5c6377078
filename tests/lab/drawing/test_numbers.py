"""How numbers and durations are written."""

import math

import pytest

from mesu.lab.drawing.numbers import difference, duration, number
from mesu.lab.paper import PAPER, Published


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


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("rigidity", "49.33", "49.3"),
        ("rigidity", "49", "49"),
        ("ood_auroc", "0.90", "0.90"),
        ("ood_auroc", "0.9", "0.9"),
        ("last_five_accuracy", "0.9134", "91.34"),
        ("last_five_accuracy", "0.869", "86.9"),
        ("last_five_accuracy", "0.91", "91"),
    ],
)
def test_a_published_number_has_the_digits_that_were_published(name, text, words):
    more = int(name.endswith("accuracy"))
    assert number(name, Published(text), more=more) == words


def test_a_difference_has_no_more_digits_than_the_published_number():
    assert difference("ood_auroc", 0.9493, Published("0.94")) == "+0.01"
    assert difference("last_five_accuracy", None, Published("0.94")) == "–"  # noqa: RUF001
    assert difference("last_five_accuracy", 0.9187, Published("0.9134"), more=1) == "+0.53"


def test_every_number_of_the_paper_knows_its_digits():
    numbers = [value for table in PAPER.values() for row in table.values() for value in row.values()]
    assert len(numbers) > 60
    assert all(isinstance(value, Published) and value.digits in (2, 3, 4) for value in numbers)
    assert PAPER["permuted-mnist"]["ewc-online"]["rigidity"] == 49.33
    assert PAPER["permuted-mnist"]["ewc-stream"]["ood_auroc"].digits == 2
