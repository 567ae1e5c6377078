"""The programs of docs/training-loop.md: each runs where its framework is installed (the extra `mesu[loops]`), and learns."""

import re
import warnings
from pathlib import Path

import pytest
import torch
from tests.loops.processes import run

import mesu

PAGE = (Path(__file__).parents[2] / "docs" / "training-loop.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
PROGRAM = re.compile(r"```python.*?\n(.*?)```", re.DOTALL)
START = PROGRAM.findall(PAGE)[0]
FRAMEWORKS = {"Lightning": "lightning", "skorch": "skorch", "accelerate": "accelerate"}


def ran(section, tmp_path, monkeypatch):
    """The names that a recipe leaves behind."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "recipe"}
    with warnings.catch_warnings():
        # frameworks warn of their own affairs; what mesu says stays an error
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message=".*(gradients of the last|mesu|sigma)")
        exec(START, names)
        exec(PROGRAM.findall(SECTIONS[section])[0], names)
    return names


def right(net, x, y):
    seen = mesu.predict(net, x, samples=20)
    assert (seen.epistemic > 0).all()
    return float((seen.labels == y).float().mean())


def test_the_plain_loop_learns(tmp_path, monkeypatch):
    names = ran("A plain loop", tmp_path, monkeypatch)
    assert right(names["net"], names["x"], names["y"]) > 0.85
    assert 0.5 < names["opt"].param_groups[0]["lr"] < 1
    assert all(parameter.dtype == torch.float32 for parameter in names["net"].parameters())


def test_the_loop_that_logs_tells_all_that_the_page_lists(tmp_path, monkeypatch):
    names = ran("Logging", tmp_path, monkeypatch)
    assert [step for step, _ in names["told"]] == [20, 40]
    listed = re.findall(r"^\| `([^|]+)` \|", SECTIONS["Logging"], re.MULTILINE)
    listed = [name.replace("LAYER", "all") for row in listed for name in row.split("`, `")]
    listed = [name if "/" in name or name in ("cost", "steps cut") else None for name in listed]
    assert {name for name in listed if name} <= set(names["told"][0][1])
    assert names["told"][1][1]["cost"] < names["told"][0][1]["cost"]


@pytest.mark.parametrize("section", FRAMEWORKS)
def test_the_recipe_learns(section, tmp_path, monkeypatch):
    pytest.importorskip(
        FRAMEWORKS[section], reason=f"{FRAMEWORKS[section]} is not installed: pip install 'mesu[loops]'"
    )
    names = ran(section, tmp_path, monkeypatch)
    assert right(names["net"], names["x"], names["y"]) > 0.9
    if section == "skorch":
        assert (names["digits"].predict(names["x"]) == names["y"].numpy()).mean() > 0.9


def test_the_recipe_for_transformers_learns(tmp_path, monkeypatch):
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'mesu[loops]'")
    pytest.importorskip(
        "accelerate", reason="accelerate, which the Trainer needs, is not installed: pip install 'mesu[loops]'"
    )
    names = ran("The Trainer of transformers", tmp_path, monkeypatch)
    answers = torch.stack([sentence["labels"] for sentence in names["sentences"]])
    assert float((names["seen"].labels == answers).float().mean()) > 0.9
    assert (names["seen"].epistemic > 0).all()
    assert names["trainer"].lr_scheduler is not None


def test_the_program_for_several_processes_learns():
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        pytest.skip("torch was built without gloo")
    program = PROGRAM.findall(SECTIONS["Several processes: DDP"])[0]
    program = program.replace('"env://")', '"env://"), rank=int(os.environ["RANK"]), world_size=2')
    program = program.replace(
        'os.environ.get("MEETING", "env://"))', 'os.environ["MEETING"], rank=int(os.environ["RANK"]), world_size=2)'
    )
    for rank, printed in enumerate(run(program)):
        found = re.search(rf"process {rank}: (\d+) % right", printed)
        assert found, printed
        assert int(found[1]) > 80


@pytest.mark.filterwarnings("ignore")  # of Avalanche's own affairs
def test_the_recipe_for_avalanche_learns(tmp_path, monkeypatch):
    try:
        import avalanche  # noqa: F401
    except (ImportError, RuntimeError) as error:  # its torchvision may be compiled for another torch
        pytest.skip(f"Avalanche cannot be imported: {error}")
    names = ran("Avalanche", tmp_path, monkeypatch)
    found = names["strategy"].evaluator.get_last_metrics()
    first, second = (value for name, value in found.items() if name.startswith("Top1_Acc_Exp"))
    assert second > 0.9
    assert first > 0.3  # of the same digits in another order of pixels; chance is 0.1
