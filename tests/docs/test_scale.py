"""The page on more than one machine runs as it stands."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"


def test_the_programs_of_the_page_run(capsys):
    names: dict = {}
    for program in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(program, names)
    base, X, y = names["base"], names["X"], names["y"]
    assert base._online.snapshot.rows == len(X)
    assert (base.predict(X) == y).mean() > 0.95  # merged five times
    assert "up" in capsys.readouterr().out
