"""The page on classes that come one after another: its program gives its table."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "class-incremental.md").read_text()


@pytest.fixture(scope="module")
def names():
    """What the programs of the page leave behind."""
    names = {"__name__": "page"}
    for program in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(program, names)
    return names


def test_the_program_gives_the_table(names):
    rows = re.findall(r"^\| (\w.*?) \| (in turn|together) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    quoted = {(name, way): [int(number) for number in numbers] for name, way, *numbers in rows}
    assert names["table"].keys() == quoted.keys()
    for case, numbers in quoted.items():
        assert names["table"][case] == pytest.approx(numbers, abs=2)  # other machines round otherwise


def test_replay_keeps_all_ten(names):
    """Alone, one learner in five is right."""
    assert names["right"] > 80
    found = names["learner"].predict(names["x"][~names["train"]].numpy(), 20).labels
    assert 100 * float((found == names["y"][~names["train"]]).float().mean()) > 80
