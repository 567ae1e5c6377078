"""`mesu report`, and the report at the end of `mesu run`."""

import json
from pathlib import Path

import pytest
from tests.lab.report.fabricated import SMALL, Page, finished, two_runs

from mesu.lab.cli import main as cli
from mesu.lab.runs.run import Run


@pytest.mark.usefixtures("words_only")
def test_command_writes_one_report_each_or_one_of_all(tmp_path, capsys):
    one, two = two_runs(tmp_path)
    cli.main(["report", str(one.folder), str(two.folder)])
    assert capsys.readouterr().out.split() == [str(run.folder / "report.html") for run in (one, two)]
    cli.main(["report", str(one.folder), str(two.folder), "--out", str(tmp_path / "both")])
    assert capsys.readouterr().out.split() == [str(tmp_path / "both" / "report.html")]


def test_command_says_what_is_wrong(tmp_path, capsys):
    unfinished = Run.create(SMALL, tmp_path)
    for arguments, words in (
        ([str(unfinished.folder)], f"is not finished: `mesu resume {unfinished.folder}` finishes it"),
        ([str(tmp_path / "nowhere")], "nowhere is not a run: it has no settings.json"),
        ([], "name one or more runs"),
    ):
        with pytest.raises(SystemExit) as stopped:
            cli.main(["report", *arguments])
        assert stopped.value.code == 2
        assert words in " ".join(capsys.readouterr().err.split())
    assert sorted(path.name for path in unfinished.folder.iterdir()) == ["parts", "settings.json"]


def test_command_names_a_file_that_is_in_the_way(tmp_path, capsys):
    run, taken = finished(tmp_path, SMALL), tmp_path / "taken"
    taken.write_text("mine")
    figures = run.folder / "figures"
    figures.write_text("mine")
    for arguments, path in (([], figures), (["--out", str(taken)], taken), (["--markdown", str(taken)], taken)):
        with pytest.raises(SystemExit) as stopped:
            cli.main(["report", str(run.folder), *arguments])
        assert stopped.value.code == 2
        said = capsys.readouterr().err
        assert said == f"error: {path} is not a folder: move it away, or choose another folder\n"
        assert path.read_text() == "mine"


def test_a_run_ends_with_its_report(tmp_path, capsys):
    options = ["--tasks", "1", "--seeds", "1", "--epochs", "1", "--hidden", "4", "--learners", "sgd", "--workers", "1"]
    cli.main(["run", "permuted-digits", *options, "--out", str(tmp_path), "--json"])
    said = json.loads(capsys.readouterr().out)
    page = Path(said["report"])
    assert page == Path(said["run"]) / "report.html"
    assert "SGD" in Page(page).text
