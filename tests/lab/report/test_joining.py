"""Several runs as one table: what goes together, and what is refused."""

from dataclasses import replace

import pytest
from tests.lab.report.fabricated import SMALL, Page, edit_settings, fabricated_rows, finished, two_runs

from mesu.lab.experiments import PermutedMNIST
from mesu.lab.report import write_joined
from mesu.lab.runs.run import Run


def test_runs_of_one_experiment_are_joined(tmp_path):
    one, two = two_runs(tmp_path, second={"sgd_lr": 0.5})
    path = write_joined([one, two], tmp_path / "both")
    assert path == tmp_path / "both" / "report.html"
    page = Page(path)
    assert [row[0] for row in page.tables[0]] == ["learner", "MESU", "SGD"]
    assert "2 runs of permuted-digits" in page.text
    assert page.text.count("--settings-file") == 2
    settings = {row[0]: row[1:] for table in page.tables for row in table}
    assert settings["sgd_lr"] == ["0.0008", "0.5", "0.0008"]
    assert (tmp_path / "both" / "figures" / "overview.svg").exists()
    assert not (one.folder / "report.html").exists()


@pytest.mark.usefixtures("words_only")
def test_seeds_of_one_learner_are_put_together(tmp_path):
    one = finished(tmp_path / "a", replace(SMALL, learners=("sgd",)))
    rows = [row._replace(seed=row.seed + 2) for row in fabricated_rows(replace(SMALL, learners=("sgd",)))]
    two = finished(tmp_path / "b", replace(SMALL, learners=("sgd",)), rows, {"sgd-2": 1.0, "sgd-3": 1.0})
    page = Page(write_joined([one, two], tmp_path / "both"))
    assert "0 to 3" in page.text
    edit_settings(two, settings=two.saved["settings"] | {"sgd_lr": 0.5})
    two = Run.open(two.folder)  # which reads them
    with pytest.raises(ValueError, match=r"both have sgd, under different settings: sgd_lr 0.0008 and 0.5"):
        write_joined([one, two], tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_what_cannot_be_joined_is_named(tmp_path):
    one, two = two_runs(tmp_path)
    with pytest.raises(ValueError, match=r"both have mesu with seed 0, mesu with seed 1$"):
        write_joined([one, finished(tmp_path / "c", replace(SMALL, learners=("mesu",)))], tmp_path / "out")
    with pytest.raises(ValueError, match=r"6 stages and .* 7: .* not comparable"):
        write_joined([one, finished(tmp_path / "d", replace(SMALL, learners=("sgd",), tasks=7))], tmp_path / "out")
    other = finished(tmp_path / "e", PermutedMNIST(tasks=6, seeds=1, learners=("sgd",)))
    with pytest.raises(ValueError, match=r"is of permuted-digits, .* of permuted-mnist"):
        write_joined([one, other], tmp_path / "out")
    with pytest.raises(ValueError, match="is a run with a report of its own"):
        write_joined([one, two], two.folder)
    assert not (tmp_path / "out").exists()
