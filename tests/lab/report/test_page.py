"""The page of a run: what it says, what it makes of odd input, and that it asks the network for nothing."""

import math
import os
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from rich.console import Console
from tests.lab.report.fabricated import ODD, SMALL, Page, edit_settings, fabricated_rows, finished, paper_run

from mesu.lab.cli import main as cli
from mesu.lab.experiments import PermutedDigits
from mesu.lab.report import paper_note, summary_table, write
from mesu.lab.runs.run import Run
from mesu.lab.table import Row, summarise


def test_report_holds_what_was_run(small):
    run, path = small
    page = Page(path)
    assert path == run.folder / "report.html"
    assert "permuted-digits" in page.text
    assert "Permuted digits: the paper's Fig. 3 in a minute" in page.text
    assert "seeds2(0,1)" in page.text.replace(" ", "")
    results = page.tables[0]
    scores = summarise(run.table())["mesu"]
    row = dict(zip(results[0], results[1], strict=True))
    assert row["learner"] == "MESU"
    mean, std = (100 * scores["last_five_accuracy"][name] for name in ("mean", "std"))
    assert row["last five %"] == f"{mean:.1f}±{std:.1f}"
    settings = {row[0]: row[1:] for table in page.tables for row in table}
    assert settings["tasks"] == ["6", "50"]  # this run, and the paper's scale
    assert settings["prior_std"] == ["auto", ""]
    assert settings["torch"] == [run.saved["versions"]["torch"]]
    assert settings["machine"] == [run.saved["versions"]["machine"]]
    for panel in ("last-five", "old-tasks", "rigidity", "newest", "outliers", "all-so-far", "five-along", "overview"):
        for suffix in ("png", "svg"):
            assert (run.folder / "figures" / f"{panel}.{suffix}").stat().st_size > 1000
    assert not list(run.folder.glob(".*"))
    assert not list((run.folder / "figures").glob(".*"))


@pytest.mark.usefixtures("words_only")
def test_time_is_told_for_each_learner_and_seed(tmp_path):
    times = {"mesu-0": 100.0, "mesu-1": 25.25, "sgd-0": 1.5, "sgd-1": math.nan}
    page = Page(write(finished(tmp_path, SMALL, times=times)))
    table = next(table for table in page.tables if table[0][0] == "seconds")
    assert table[0] == ["seconds", "seed 0", "seed 1", "together"]
    assert table[1] == ["MESU", "100.0", "25.2", "2 min 5 s"]
    assert table[2] == ["SGD", "1.5", "–", "1.5 s"]  # noqa: RUF001
    assert "2 min 7 s in all" in page.text
    assert "Not recorded: 1." in page.text
    (run,) = tmp_path.iterdir()
    (run / "times.json").unlink()
    assert "Not recorded." in Page(write(Run(run))).text


@pytest.mark.usefixtures("words_only")
def test_paper_stands_beside_ours_with_difference_and_spread(tmp_path):
    page = Page(write(paper_run(tmp_path)))
    table = next(table for table in page.tables if table[0][1:] == ["ours", "paper", "difference", "spread"])
    assert table[1] == ["last five %"]
    # ours (0.92 + 0.93) / 2, the paper's 91.34 and 65.73: 92.5 - 91.34, 92.5 - 65.73
    assert table[2] == ["MESU", "92.50", "91.34", "+1.16", "0.71"]
    assert table[3] == ["EWC Stream", "92.50", "65.73", "+26.77", "0.71"]
    assert table[4] == ["newest %"]
    assert table[5] == ["MESU", "92.50", "94.68", "−2.18", "0.71"]  # noqa: RUF001
    assert table[7] == ["OOD AUROC"]
    assert table[8] == ["MESU", "0.920", "0.94", "−0.02", "0.014"]  # noqa: RUF001
    # first and last task are alike: rigidity is not a number to subtract from
    assert table[10] == ["rigidity"]
    assert table[11] == ["MESU", "–", "328", "–", "–"]  # noqa: RUF001


@pytest.mark.usefixtures("words_only")
def test_a_smaller_run_says_so_beside_the_paper(tmp_path):
    words = "The paper's numbers are of 200 tasks and 5 seeds; these are of 5 tasks and 2 seeds."
    page = Page(write(paper_run(tmp_path)))
    assert words in page.text
    assert paper_note("permuted-mnist", {"tasks": 5, "epochs": 1}, 2) == words
    assert paper_note("permuted-mnist", {"tasks": 200, "epochs": 1}, 5) == ""
    only_seeds = "The paper's numbers are of 5 seeds; these are of 1 seed."
    assert paper_note("permuted-mnist", {"tasks": 200, "epochs": 1}, 1) == only_seeds
    assert paper_note("never heard of", {}, 1) == ""


def test_without_the_papers_numbers_there_is_no_such_section(small):
    page = Page(small[1])
    assert "Beside the paper" not in page.text
    assert "Diamonds" not in page.text


@pytest.mark.parametrize("learners", [("mesu", "sgd"), ("sgd",)])
@pytest.mark.usefixtures("words_only")
def test_the_spelled_command_gives_the_same_settings(learners, tmp_path, monkeypatch):
    settings = PermutedDigits(tasks=3, seeds=1, learners=learners, memory=(5e4, math.inf), prior_std=0.25)
    run = finished(tmp_path / "a run", settings)  # a blank in the path
    page = Page(write(run))
    again, spelled = [line for line in "".join(page.words).splitlines() if line.strip().startswith("mesu run ")]
    got = []
    monkeypatch.setattr(cli.Run, "create", lambda settings, out: got.append(settings) or sys.exit(0))
    for command in (again, spelled):
        with pytest.raises(SystemExit):
            cli.main(shlex.split(command)[1:])
    assert got == [settings, settings]
    assert f"--settings-file '{run.folder}/settings.json'" in again


def test_odd_names_are_text_and_nothing_else(odd):
    run, path = odd
    page = Page(path)
    assert not page.all("script")
    assert page.text.count(ODD) == 6  # results, time, a setting's name and value, a version's
    assert any(ODD in image["alt"] for image in page.all("img"))
    assert all(set(image) == {"src", "width", "height", "alt"} for image in page.all("img"))
    assert "<script" not in path.read_text()
    for svg in (run.folder / "figures").glob("*.svg"):
        assert "<script" not in svg.read_text()
    table = summary_table(summarise(run.table()), "[red]title")
    console = Console(width=150, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    console.print(table)
    console.file.close()
    said = console.export_text()
    assert ODD in said
    assert "[red]title" in said


def test_an_unknown_experiment_gets_its_table(tmp_path):
    run = finished(tmp_path, SMALL, [row._replace(experiment="a/b <new>") for row in fabricated_rows(SMALL)])
    edit_settings(run, experiment="a/b <new>", settings={"size": 3})
    page = Page(write(run))
    assert page.tables[0][1][0] == "MESU"
    assert not page.all("img")
    assert not (run.folder / "figures").exists()
    assert "mesu run 'a/b <new>' --settings-file" in page.text


@pytest.mark.usefixtures("words_only")
def test_measures_without_a_name_are_shown_too(tmp_path):
    rows = [Row("x", learner, 0, 1, 0, None, "pearson_1000", 0.9571) for learner in ("mesu", "ewc")]
    run = finished(tmp_path, SMALL, [*rows, Row("x", "ewc", 0, 1, 0, None, "slope_1000", -0.5)])
    table = Page(write(run)).tables[0]
    assert table == [["learner", "pearson 1000", "slope 1000"], ["MESU", "0.957", ""], ["EWC", "0.957", "−0.500"]]  # noqa: RUF001


def test_a_table_without_rows_is_refused(tmp_path):
    with pytest.raises(ValueError, match="has no rows"):
        write(finished(tmp_path, SMALL, []))


def test_template_is_part_of_the_package():
    told = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert "lab/report/page.html" in told["tool"]["setuptools"]["package-data"]["mesu"]


def test_page_asks_for_nothing(study):
    _, path = study
    page = Page(path)
    asked = [
        value
        for tag, attributes in page.elements
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "poster", "data", "action") and tag != "a"
    ]
    assert len(asked) == 9  # eight pictures and the icon
    assert all(value.startswith("data:") for value in asked)
    text = path.read_text()
    assert "@import" not in text
    assert "url(" not in text
    (policy,) = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert path.stat().st_size < 2_000_000


def test_page_is_read_by_all(study):
    page = Page(study[1])
    assert page.all("html")[0]["lang"] == "en"
    assert all(len(image["alt"]) > 40 for image in page.all("img"))
    assert len(page.all("h1")) == 1
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        for name in ("aria-labelledby", "aria-describedby"):
            assert attributes.get(name, ids[0]) in ids
    assert all(attributes.get("scope") for attributes in page.all("th"))
    assert {"main", "header", "section", "figure", "figcaption"} <= {tag for tag, _ in page.elements}
