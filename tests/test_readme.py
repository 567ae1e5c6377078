"""The README's programs run as they stand."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_programs_run_and_tell_noise_from_digits(capsys):
    names = {}
    for program in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL):
        exec(program, names)
    p, noise = names["p"], names["noise"]
    right = (p.labels == names["y"][1500:]).float().mean()
    assert right > 0.7  # chance is 0.1
    assert noise.epistemic.mean() > p.epistemic.mean()
    assert "right; epistemic uncertainty" in capsys.readouterr().out
