"""The page on uncertainty without draws runs as it stands and prints what it quotes."""

import re
from pathlib import Path

from mesu.posterior.moments import RULES

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "cheap-uncertainty.md"


def test_the_page_prints_what_it_quotes(capsys):
    kept = dict(RULES)
    names = {"__name__": "shipped"}
    text = PAGE.read_text()
    try:
        for program in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            exec(program, names)
    finally:
        RULES.clear()
        RULES.update(kept)
    quoted = re.findall(r"```\n(.*?)```", re.sub(r"```\w+\n.*?```", "", text, flags=re.DOTALL), re.DOTALL)
    assert capsys.readouterr().out == "".join(quoted)
