"""Checkpoints: read as they were written; damaged ones are named, and the one before is used."""

import shutil

import numpy as np
import pytest
import torch
from tests.lab.runs.tiny import DAMAGE, again, flip, rewritten

from mesu.lab.runs import checkpoints
from mesu.lab.runs.checkpoints import Checkpoint, Damaged
from mesu.lab.table import Row

pytestmark = pytest.mark.usefixtures("quick")


def flip_a_measured_digit(path):
    # the first digit of the last value: still JSON, still a number, and another one
    text = path.read_text()
    flip(path, text.rindex(", ", 0, text.rindex(', null]], "check"')) + 2)


@pytest.mark.parametrize("kind", ["json", "safetensors"])
@pytest.mark.parametrize("damage", [*DAMAGE, "a digit"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(stopped, damage, kind, capfd):
    folder, table = stopped
    newest = folder / "checkpoints" / "mesu-0" / f"after-0003.{kind}"
    if damage == "a digit":
        flip_a_measured_digit(newest.with_suffix(".json"))
    else:
        DAMAGE[damage](newest)
    assert again(folder).equals(table)
    err = capfd.readouterr().err
    if damage == "missing" and kind == "json":  # as after a kill between the two files, which is nothing to complain of
        assert "mesu:" not in err
        return
    assert str(newest.with_suffix(".json") if damage == "a digit" else newest) in err
    assert "mesu with seed 0 goes on after 2 of 3 tasks" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("damage", DAMAGE)
def test_with_all_checkpoints_damaged_it_starts_over_and_keeps_new_ones(stopped, damage, capfd, killed_at):
    folder, table = stopped
    own = folder / "checkpoints" / "mesu-0"
    for path in own.iterdir():
        DAMAGE[damage](path)
    with killed_at(12):  # in its second task
        again(folder)
    err = capfd.readouterr().err
    assert "starts over" in err or damage == "missing"
    assert own / "after-0001.json" in own.iterdir()
    assert again(folder).equals(table)
    err = capfd.readouterr().err
    assert "starts over" not in err  # the first task is not done a third time
    assert sorted(path.name for path in own.glob("*.json")) == ["after-0002.json", "after-0003.json"]


def test_a_bit_flipped_anywhere_in_a_checkpoint_does_not_pass(finished, tmp_path):
    folder, _ = finished
    for path in (folder / "checkpoints" / "mesu-0").glob("after-0003.*"):
        shutil.copy(path, tmp_path)
    path, beside = tmp_path / "after-0003.json", tmp_path / "after-0003.safetensors"
    whole = checkpoints.read(path)
    rng = np.random.default_rng(0)
    for file in (path, beside):
        data = file.read_bytes()
        for where in rng.choice(len(data), 200, replace=False):
            changed = bytearray(data)
            changed[where] ^= 1 << int(rng.integers(8))
            file.write_bytes(changed)
            try:
                got = checkpoints.read(path)
            except Damaged:
                continue
            # 1e-05 and 1E-05 are the same number; and one bit can only be in the name of the check itself
            assert file == path
            assert got.rows == whole.rows
            assert got.stages == whole.stages
        file.write_bytes(data)


TAMPERED = {
    "a list": lambda d: [d],
    "a number": lambda d: 3,
    "nothing": lambda d: None,
    "a word": lambda d: "checkpoint",
    "empty": lambda d: {},
    "other columns": lambda d: d | {"columns": [*d["columns"][1:], "other"]},
    "rows too short": lambda d: d | {"rows": [row[1:] for row in d["rows"]]},
    "rows too long": lambda d: d | {"rows": [[*row, 1] for row in d["rows"]]},
    "rows of words": lambda d: d | {"rows": ["accuracy"]},
    "rows a number": lambda d: d | {"rows": 5},
    "no rows": lambda d: {name: value for name, value in d.items() if name != "rows"},
    "value a word": lambda d: d | {"rows": [[*row[:-2], "high", row[-1]] for row in d["rows"]]},
    "seed a word": lambda d: d | {"rows": [[*row[:2], "one", *row[3:]] for row in d["rows"]]},
    "value too large": lambda d: d | {"rows": [[*row[:-2], 10**400, row[-1]] for row in d["rows"]]},
    "index a word": lambda d: d | {"rows": [[*row[:-1], "one"] for row in d["rows"]]},
    "stages of another": lambda d: d | {"stages": 2},
    "stages endless": lambda d: d | {"stages": float("inf")},
    "stages a list": lambda d: d | {"stages": [3]},
    "no number of seconds": lambda d: d | {"seconds": "long"},
    "no hash": lambda d: d | {"sha256": None},
}


@pytest.mark.parametrize("how", TAMPERED)
def test_a_checkpoint_that_was_tampered_with_is_passed_over(stopped, how, capfd):
    folder, table = stopped
    newest = folder / "checkpoints" / "mesu-0" / "after-0003.json"
    rewritten(newest, TAMPERED[how])
    assert again(folder).equals(table)
    assert "after-0003" in capfd.readouterr().err


def test_json_nested_without_end_is_passed_over(stopped, capfd):
    folder, table = stopped
    newest = folder / "checkpoints" / "mesu-0" / "after-0003.json"
    newest.write_text("[" * 100_000)
    assert again(folder).equals(table)
    assert str(newest) in capfd.readouterr().err


def test_only_two_checkpoints_stay_and_what_killed_writers_left_goes(tmp_path):
    rows = [Row("e", "sgd", 0, 1, 0, None, "m", 0.5)]
    tensors = {"w": torch.arange(3.0)}
    for stage in range(1, 12):
        checkpoints.write(tmp_path, Checkpoint(stage, rows * stage, tensors))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"after-00{n}.{kind}" for n in (10, 11) for kind in ("json", "safetensors")]
    (tmp_path / "after-0004.safetensors").touch()  # of one that was killed while it cleared up
    (tmp_path / ".after-0012.json.123").touch()
    (tmp_path / ".keep").touch()
    assert checkpoints.newest(tmp_path, pytest.fail).stages == 11
    checkpoints.write(tmp_path, Checkpoint(12, rows, tensors))
    assert not (tmp_path / "after-0004.safetensors").exists()
    checkpoints.remove_leftovers(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".keep", *(f"after-00{n}.{kind}" for n in (11, 12) for kind in ("json", "safetensors"))]
    # more than the name has digits for
    checkpoints.write(tmp_path, Checkpoint(9_999, rows, tensors))
    checkpoints.write(tmp_path, Checkpoint(10_000, rows, tensors))
    assert checkpoints.newest(tmp_path, pytest.fail).stages == 10_000


def test_tensors_without_their_json_are_passed_over_in_silence(tmp_path):
    rows = [Row("e", "mesu", 0, 0, 0, None, "m", 0.5)]
    for stages in (1, 2):
        checkpoints.write(tmp_path, Checkpoint(stages, rows, {"w": torch.zeros(2)}))
    (tmp_path / "after-0002.json").unlink()  # killed between the two files
    assert checkpoints.newest(tmp_path, pytest.fail).stages == 1


def test_a_checkpoint_is_read_as_it_was_written(tmp_path):
    values = [0.1 + 0.2, 1e-320, float("nan"), float("inf"), -0.0, 1.0]
    rows = [Row("e", "si", 2**40, 7, 3, None if n % 2 else n, "m", value) for n, value in enumerate(values)]
    tensors = {
        "a.b": torch.tensor([[1.0, -0.0], [torch.nan, 1e-45]]).T,
        "bytes": torch.arange(9, dtype=torch.uint8)[::2],
        "one": torch.tensor(3, dtype=torch.int64),
        "none": torch.zeros(0, 4),
    }
    checkpoints.write(tmp_path, Checkpoint(3, rows, tensors, 12.5))
    got = checkpoints.newest(tmp_path, pytest.fail)
    assert repr(got.rows) == repr(rows)
    assert (got.stages, got.seconds) == (3, 12.5)
    assert got.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert got.tensors[name].dtype == tensor.dtype
        assert got.tensors[name].numpy().tobytes() == tensor.numpy().tobytes()
    assert checkpoints.newest(tmp_path / "nowhere", pytest.fail) is None
