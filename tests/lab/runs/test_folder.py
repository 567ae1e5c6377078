"""The folder of a run: its name, and what it says of times."""

import time
from pathlib import Path

import pytest
from tests.lab.runs.tiny import LEARNERS, TINY, again

from mesu.lab.runs.run import Run

pytestmark = pytest.mark.usefixtures("quick")


def test_two_runs_in_one_second_get_two_folders(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "strftime", lambda _: "now")
    monkeypatch.setattr(Path, "exists", lambda _: False)  # another process makes it between the look and the making
    folders = [Run.create(TINY, tmp_path).folder for _ in range(3)]
    assert [folder.name for folder in folders] == [f"permuted-digits-now{tail}" for tail in ("", "-1", "-2")]


def test_times_that_are_lost_or_damaged_do_not_matter(stopped):
    folder, table = stopped
    for path, text in zip((folder / "parts").glob("*.seconds"), ("", "soon", "\x00", "1", "2"), strict=True):
        path.write_text(text)
    assert again(folder).equals(table)
    assert set(Run.open(folder).times()) == {f"{name}-0" for name in LEARNERS}
    for text in ("", "[]", "3", '{"mesu-0": "long"}', "{", "[" * 100_000):
        (folder / "times.json").write_text(text)
        assert Run.open(folder).times() == {}
