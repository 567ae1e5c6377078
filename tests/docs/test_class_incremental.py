"""The page on classes that come one after another: its program gives its table."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "class-incremental.md").read_text()


def test_the_program_gives_the_table():
    rows = re.findall(r"^\| (\w.*?) \| (in turn|together) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    quoted = {(name, way): [int(number) for number in numbers] for name, way, *numbers in rows}
    names = {"__name__": "page"}
    exec(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], names)
    assert names["table"].keys() == quoted.keys()
    for case, numbers in quoted.items():
        assert names["table"][case] == pytest.approx(numbers, abs=2)  # other machines round otherwise
