"""Names and colours of learners."""

import math

import pytest

from mesu.lab.drawing.style import LEARNERS, colour, label, memory


@pytest.mark.parametrize(
    ("learner", "name", "window"),
    [
        ("mesu", "MESU", None),
        ("mesu-300000", "MESU, N = 300,000", 300_000),
        ("mesu-inf", "MESU, N = ∞", math.inf),
        ("mesu-1e+15", "MESU, N = 10¹⁵", 1e15),
        ("mesu-nan", "mesu-nan", None),
        ("mesu-free", "mesu-free", None),
        ("ewc-online", "EWC Online", None),
        ("300000", "300000", None),
    ],
)
def test_learners_have_names(learner, name, window):
    assert label(learner) == name
    assert memory(learner) == window


def test_learners_have_colours_of_their_own():
    together = ["mesu", "foo-vb", "ewc-online", "si", "ewc-stream", "sgd", "adam"]
    study = [f"mesu-{n}" for n in ("180000", "600000", "1200000", "2400000", "inf")]
    assert len({colour(name).lower() for name in [*together, *study]}) == len(together) + len(study)
    assert colour("mesu-300000").lower() == colour("mesu").lower()
    assert {colour(name) for name in together} <= {one for _, one in LEARNERS.values()}
    assert colour("never heard of") == colour("never heard of")
