"""The pages about experiments and streams of one's own: their modules run as they stand."""

import json
import re
import sys
from pathlib import Path

import pytest

from mesu.lab.cli import main as cli
from mesu.lab.registry import experiments, streams
from mesu.lab.runs.run import Run

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def module_of(page):
    (program,) = re.findall(r"```python\n(.*?)```", (HOW_TO / page).read_text(), re.DOTALL)
    return program


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("my_module", None)
    experiments._registered.pop("my-experiment", None)
    streams._registered.pop("turned", None)


def test_the_experiment_runs_and_is_reported(folder, capsys):
    (folder / "my_module.py").write_text(module_of("add-an-experiment.md"))
    command = ["run", "my-experiment", "--import", "my_module", "--scale", "smoke", "--workers", "1", "--json"]
    cli.main(command)
    printed = json.loads(capsys.readouterr().out)
    assert set(printed["summary"]) == {"sgd-0.01", "sgd-0.001"}
    assert printed["summary"]["sgd-0.01"]["plasticity"]["mean"] > 0.5
    assert Run.open(Path(printed["run"])).table().columns[-1] == "index"
    assert Path(printed["report"]).is_file()
    with pytest.raises(SystemExit):
        cli.main([*command, "--rates", "-1"])
    assert "lr must be" in " ".join(capsys.readouterr().err.split())


def test_the_stream_keeps_the_contract_and_is_registered(folder):
    names = {"__name__": "my_module"}
    exec(module_of("add-a-stream.md"), names)
    assert streams["turned"] is names["Turned"]
    first = names["Turned"](names["digits"](), 3, 0)[1]
    assert sorted(first.order) == list(range(64))
    assert list(first.order) != list(range(64))
