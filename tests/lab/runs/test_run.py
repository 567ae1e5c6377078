"""A run: the same table whoever runs beside it, whatever is killed, and whatever its files hold."""

import contextlib
import hashlib
import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from tests.lab.runs.tiny import LEARNERS, TINY, again, rewritten

from mesu.lab.entry import Entry
from mesu.lab.experiments import Dynamics, PermutedDigits
from mesu.lab.runs import settings
from mesu.lab.runs.run import Run
from mesu.lab.runs.tables import write_table
from mesu.lab.table import as_table

pytestmark = pytest.mark.usefixtures("quick")


def test_a_run_twice_gives_the_same_table_and_the_same_bytes(finished, tmp_path):
    folder, table = finished
    run = Run.create(TINY, tmp_path)
    assert run.execute(workers=1).equals(table)
    assert (run.folder / "table.parquet").read_bytes() == (folder / "table.parquet").read_bytes()
    assert Run.open(run.folder).table().equals(table)
    assert run.settings == TINY
    assert not table.equals(Run.create(replace(TINY, seeds=2), tmp_path).execute(workers=1))


def test_the_table_is_what_the_stages_gave(finished):
    _, table = finished
    rows = []
    for learner in LEARNERS:
        trial = TINY.trial(Entry(learner), 0)
        rows += [row for stage in range(TINY.stages) for row in trial.stage(stage)]
    assert as_table(rows).equals(table)


def test_the_table_is_all_learners_and_seeds_in_order_whoever_else_takes_part(finished, tmp_path):
    _, table = finished
    alone = Run.create(replace(TINY, learners=("si",), seeds=2), tmp_path).execute(workers=1)
    assert alone.filter(seed=0).equals(table.filter(learner="si"))
    assert table["learner"].unique(maintain_order=True).to_list() == list(LEARNERS)
    assert alone["seed"].unique(maintain_order=True).to_list() == [0, 1]


def test_resuming_a_finished_run_does_nothing_and_gives_the_same(finished, tmp_path, monkeypatch):
    folder, table = finished
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.setattr(PermutedDigits, "trial", None)  # nobody is trained
    assert again(tmp_path / "copy").equals(table)


def test_killed_at_every_file_operation_in_turn_it_ends_in_the_same_table(tmp_path, killed_at):
    settings = replace(TINY, learners=("si",))
    table = Run.create(settings, tmp_path / "straight").execute(workers=1)
    for moment in range(1, 1000):
        run = Run.create(settings, tmp_path / f"{moment}")
        try:
            with killed_at(moment):
                run.execute(workers=1)
        except EOFError:
            break
        with contextlib.suppress(EOFError), killed_at(moment // 2 + 1):
            again(run.folder)  # and killed again
        assert again(run.folder).equals(table), moment
        left = [path.name for path in run.folder.rglob(".*")]
        assert not left, (moment, left)
        for learner in settings.learners:
            assert sorted(path.name for path in run.checkpoint_folder(learner, 0).iterdir()) == [
                f"after-{stage:04d}.{kind}" for stage in (2, 3) for kind in ("json", "safetensors")
            ], moment
        shutil.rmtree(run.folder)
    assert moment > 30  # three stages, a part, a table, each of several writes and moves


def test_workers_side_by_side_give_the_same_table(tmp_path):
    settings = replace(TINY, seeds=2)
    apart = Run.create(settings, tmp_path).execute(workers=1)
    assert Run.create(settings, tmp_path).execute(workers=2).equals(apart)


def test_stages_done_counts_parts_and_checkpoints(stopped):
    folder, _ = stopped
    run = Run.open(folder)
    assert run.stages_done() == 6 * 3
    (folder / "checkpoints" / "mesu-0" / "after-0003.json").unlink()
    assert run.stages_done() == 5 * 3 + 2
    shutil.rmtree(folder / "checkpoints" / "mesu-0")
    assert run.stages_done() == 5 * 3
    assert set(settings.versions()) <= set(json.loads((folder / "settings.json").read_text())["versions"])


class Trap:
    """Unpickled, it leaves a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_no_file_of_a_run_can_run_code(stopped, tmp_path, capfd):
    folder, table = stopped
    sprung = tmp_path / "sprung"
    trap = pickle.dumps(Trap(sprung))
    pickle.loads(trap)
    assert sprung.exists()
    sprung.unlink()
    tensors, text = (folder / "checkpoints" / "mesu-0" / f"after-000{n}" for n in ("3.safetensors", "2.json"))
    tensors.write_bytes(trap)
    rewritten(tensors.with_suffix(".json"), lambda d: d | {"sha256": hashlib.sha256(trap).hexdigest()})
    text.write_bytes(trap)
    part, total = folder / "parts" / "si-0.parquet", folder / "table.parquet"
    for path in (part, total):
        path.write_bytes(trap)
        path.with_name(f"{path.name}.sha256").write_text(hashlib.sha256(trap).hexdigest())
    with pytest.raises(ValueError, match="is damaged"):
        Run.open(folder).table()
    assert again(folder).equals(table)
    err = capfd.readouterr().err
    for path in (tensors, text, part):
        assert str(path) in err
    (folder / "settings.json").write_bytes(trap)
    with pytest.raises(ValueError, match="cannot be read"):
        Run.open(folder)
    assert not sprung.exists()


def without_index(folder):
    """Make a run's files what a version without the column `index` wrote."""
    for path in folder.rglob("*.parquet"):
        table = pl.read_parquet(path)
        indexed = pl.col("index").is_not_null()
        on_task = pl.when(indexed).then(pl.col("index")).otherwise(pl.col("on_task"))
        write_table(path, table.with_columns(on_task=on_task).drop("index"))
    for path in folder.rglob("after-*.json"):
        rewritten(path, lambda d: d | {"columns": d["columns"][:-1], "rows": [eight(row) for row in d["rows"]]})


def eight(row):
    *values, index = row
    values[5] = values[5] if index is None else index
    return values


def test_a_run_of_a_version_without_the_column_index_is_read_and_resumed(tmp_path, capfd):
    run = Run.create(Dynamics(steps=300, stages=4, seeds=1, memory=(100, 1_000)), tmp_path)
    table = run.execute(workers=1)
    assert table["index"].is_not_null().any()
    without_index(run.folder)
    assert "index" not in pl.read_parquet(run.folder / "table.parquet").columns
    assert Run.open(run.folder).table().equals(table)
    # one part lost, to be made from a checkpoint in the middle of the trial
    run.part("mesu-100", 0).unlink()
    for path in run.checkpoint_folder("mesu-100", 0).glob("after-0004.*"):
        path.unlink()
    (run.folder / "table.parquet").unlink()
    assert again(run.folder).equals(table)
    assert capfd.readouterr().err == ""  # no checkpoint is called damaged


def test_torch_has_its_threads_back_after_a_run(tmp_path):
    torch.set_num_threads(2)
    try:
        Run.create(replace(TINY, learners=("sgd",)), tmp_path).execute(workers=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_a_trial_learns_with_one_thread(tmp_path, monkeypatch):
    seen, trial = [], PermutedDigits.trial
    monkeypatch.setattr(
        PermutedDigits, "trial", lambda *given: (seen.append(torch.get_num_threads()), trial(*given))[1]
    )
    torch.set_num_threads(2)
    try:
        Run.create(replace(TINY, learners=("sgd",)), tmp_path).execute(workers=1)
    finally:
        torch.set_num_threads(1)
    assert seen == [1]


def test_settings_are_parsed_once(finished, monkeypatch):
    run, loads, parsed = Run(finished[0]), json.loads, []
    monkeypatch.setattr(json, "loads", lambda text: parsed.append(text) or loads(text))
    for _ in range(3):
        assert run.stages_done() == run.settings.stages * len(run.jobs)
    assert len(parsed) == 1
