"""The programs of the README and the guide run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


def test_the_programs_run_and_tell_noise_from_digits(capsys):
    names = {}
    for program in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL):
        exec(program, names)
    p, noise = names["p"], names["noise"]
    right = (p.labels == names["y"][1500:]).float().mean()
    assert right > 0.7  # chance is 0.1
    assert noise.epistemic.mean() > p.epistemic.mean()
    assert "right; epistemic uncertainty" in capsys.readouterr().out


def test_the_guide_runs():
    names = {}
    for program in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "guide.md").read_text(), re.DOTALL):
        exec(program, names)
    right = names["model"].predict(names["images"][1500:]) == names["labels"][1500:]
    assert right.mean() > 0.7  # chance is 0.1
    assert names["learner"].engine is not None  # the page says that it runs compiled
    assert [pair.name for pair in names["new"]] == ["heads.task2.weight", "heads.task2.bias"]


def test_what_the_pages_name_is_there_after_import_mesu():
    program = "import mesu; mesu.data.digits; mesu.streams.Permuted; mesu.river.MESUClassifier; mesu.optim.MESU"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_part_whose_package_is_missing_is_no_attribute_and_says_why():
    program = (
        "import sys; sys.modules['river'] = None; import mesu; assert not hasattr(mesu, 'river')\n"
        "try: from mesu import river\n"
        "except ImportError as error: assert 'mesu[river]' in str(error), error\n"
        "else: raise AssertionError"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
