"""Reports: numbers worked out by hand from fabricated tables, the page's promises, and how a browser shows it."""

import json
import math
import os
import select
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from mesu import measures
from mesu.lab.cli import main as cli
from mesu.lab.drawing.numbers import duration, number
from mesu.lab.drawing.panels import mean_and_std, picture, save
from mesu.lab.drawing.style import LEARNERS, colour, label, memory
from mesu.lab.experiments import PermutedDigits, PermutedMNIST
from mesu.lab.experiments.permuted import shared as permuted
from mesu.lab.report import page as page_module
from mesu.lab.report import paper_note, summary_table, write, write_joined
from mesu.lab.report.figures import panels
from mesu.lab.runs.run import Run
from mesu.lab.table import Row, as_table, summarise

KEEPS = {"mesu": 0.99, "ewc-online": 0.97, "si": 0.96, "foo-vb": 0.999, "ewc-stream": 0.9, "sgd": 0.8}


def fabricated(experiment, learner, seed, tasks, every=10):
    """Rows of a permuted stream as they might be, of no run: accuracy falls from 0.95 with a task's age."""
    rng = np.random.default_rng([seed, len(learner)])
    for after in range(tasks):
        where = (experiment, learner, seed, 100 * (after + 1), after)
        for on in permuted.tested(after, tasks, every):
            value = 0.1 + 0.85 * KEEPS.get(learner, 0.95) ** (after - on) + rng.normal(0, 0.004)
            yield Row(*where, on, "accuracy", float(value))
        yield Row(*where, None, "calibration_error", 0.02 + 0.01 * rng.random())
        yield Row(*where, None, "ood_auroc", 0.9 + 0.05 * rng.random())


def finished(parent, settings, rows=None, times=None):
    """A run folder with fabricated rows in place of a run's."""
    run = Run.create(settings, parent)
    jobs = [(entry.label, seed) for entry in settings.entries for seed in range(settings.seeds)]
    if rows is None:
        rows = [row for job in jobs for row in fabricated(settings.name, *job, settings.tasks)]
    as_table(rows).write_parquet(run.folder / "table.parquet")
    if times is None:
        times = {f"{name}-{seed}": 30.0 for name, seed in jobs}
    (run.folder / "times.json").write_text(json.dumps(times))
    return run


def edit_settings(run, **changes):
    path = run.folder / "settings.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


SMALL = PermutedDigits(tasks=6, seeds=2, learners=("mesu", "sgd"))
STUDY = PermutedMNIST(tasks=200, seeds=2, learners=("mesu", "sgd"), memory=(180e3, 300e3, 1.2e6, math.inf))


class Page(HTMLParser):
    """What a report says and asks for."""

    def __init__(self, path):
        super().__init__()
        self.elements, self.words, self.tables, self.open = [], [], [], []
        self.feed(Path(path).read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data

    @property
    def text(self):
        return " ".join("".join(self.words).split())

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    run = finished(tmp_path_factory.mktemp("small"), SMALL)
    return run, write(run)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """As long as the paper's, with a study of N: the biggest page there is."""
    run = finished(tmp_path_factory.mktemp("study"), STUDY)
    return run, write(run)


@pytest.fixture
def words_only(monkeypatch):
    """Pages without pictures, which take a second each to draw."""
    monkeypatch.setattr(page_module, "panels", lambda table, pictures: [])


# --- what the page says ---


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
    assert settings["prior_std"] == ["0.4", ""]
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


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (63, "63 s"),
        (100, "1 min 40 s"),
        (3599.6, "1 h 0 min"),
        (90_000, "25 h 0 min"),
    ],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


def paper_run(parent, **changes):
    """Two seeds whose last five tasks have an accuracy of 0.92 and 0.93, and all other numbers alike."""
    settings = replace(PermutedMNIST(tasks=5, seeds=2, learners=("mesu", "ewc-stream")), **changes)
    rows = []
    for learner in settings.learners:
        for seed in (0, 1):
            for after in range(5):
                where = ("permuted-mnist", learner, seed, 60_000 * (after + 1), after)
                rows += [Row(*where, on, "accuracy", 0.92 + 0.01 * seed) for on in range(after + 1)]
                rows.append(Row(*where, None, "ood_auroc", 0.91 + 0.02 * seed))
    return finished(parent, settings, rows)


@pytest.mark.usefixtures("words_only")
def test_paper_stands_beside_ours_with_difference_and_spread(tmp_path):
    page = Page(write(paper_run(tmp_path)))
    table = next(table for table in page.tables if table[0][1:] == ["ours", "paper", "difference", "spread"])
    assert table[1] == ["last five %"]
    # ours (0.92 + 0.93) / 2, the paper's 91.34 and 65.73: 92.5 - 91.34, 92.5 - 65.73
    assert table[2] == ["MESU", "92.50", "91.34", "+1.16", "0.50"]
    assert table[3] == ["EWC Stream", "92.50", "65.73", "+26.77", "0.50"]
    assert table[4] == ["newest %"]
    assert table[5] == ["MESU", "92.50", "94.68", "−2.18", "0.50"]  # noqa: RUF001
    assert table[7] == ["OOD AUROC"]
    assert table[8] == ["MESU", "0.920", "0.940", "−0.020", "0.010"]  # noqa: RUF001
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


# --- odd input ---

ODD = "$x^$ <script>alert('1')</script> & \"quoted\" [bold]"


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    rows = [row._replace(learner=ODD) if row.learner == "sgd" else row for row in fabricated_rows(SMALL)]
    run = finished(tmp_path_factory.mktemp("odd"), SMALL, rows, {f"{ODD}-0": 3.0})
    edit_settings(run, settings={"update": ODD, "tasks": 6, "empty": None, ODD: True}, versions={ODD: ODD})
    return run, write(run)


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


def fabricated_rows(settings):
    return [
        row
        for entry in settings.entries
        for seed in range(settings.seeds)
        for row in fabricated(settings.name, entry.label, seed, settings.tasks)
    ]


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


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("last_five_accuracy", 0.91369, "91.4"),
        ("rigidity", 3.82, "3.82"),
        ("rigidity", 49.3, "49.3"),
        ("rigidity", 328.4, "328"),
        ("rigidity", 2425.6, "2,426"),
        ("ood_auroc", 0.997, "0.997"),
        ("ood_auroc", None, "–"),  # noqa: RUF001
        ("ood_auroc", math.nan, "–"),  # noqa: RUF001
        ("slope", -12.3456, "−12.35"),  # noqa: RUF001
    ],
)
def test_numbers_are_written_for_people(name, value, words):
    assert number(name, value) == words


# --- what was not measured ---


def test_curves_leave_out_what_was_not_measured(tmp_path):
    run = finished(tmp_path, replace(SMALL, tasks=23, learners=("mesu",)))
    shown = {panel.name: picture(panel).axes[0] for panel in panels(run.table())}
    # all tasks so far are known while they are five or fewer, after each tenth and at the end
    assert list(shown["all-so-far"].lines[0].get_xdata()) == [1, 2, 3, 4, 5, 10, 20, 23]
    assert list(shown["newest"].lines[0].get_xdata()) == list(range(1, 24))
    assert list(shown["five-along"].lines[0].get_xdata()) == list(range(1, 24))
    scores = summarise(run.table())["mesu"]
    assert shown["all-so-far"].lines[0].get_ydata()[-1] == pytest.approx(scores["all_tasks_accuracy"]["mean"])
    assert shown["five-along"].lines[0].get_ydata()[-1] == pytest.approx(scores["last_five_accuracy"]["mean"])
    assert np.mean(shown["newest"].lines[0].get_ydata()) == pytest.approx(scores["plasticity"]["mean"])
    assert np.mean(shown["five-along"].lines[0].get_ydata()[4:]) == pytest.approx(
        scores["running_five_accuracy"]["mean"]
    )
    assert np.mean(shown["old-tasks"].lines[0].get_ydata()) == pytest.approx(scores["all_tasks_accuracy"]["mean"])


def test_forgetting_of_tasks_tested_now_and_then():
    # task 0 was tested when learned and at the end, task 1 in between too
    nan = np.nan
    a = [[0.9, nan, nan, nan], [nan, 0.7, nan, nan], [nan, 0.8, 0.6, nan], [0.3, 0.5, 0.6, 0.9]]
    assert measures.forgetting(a) == pytest.approx((0.6 + 0.3 + 0.0) / 3)
    a[0][0] = nan  # never tested before the end: not known, and no warning
    assert math.isnan(measures.forgetting(a))


def test_what_some_seed_did_not_measure_is_none_and_valid_json(tmp_path):
    rows = fabricated_rows(SMALL)
    rows = [row for row in rows if not (row.measure == "calibration_error" and row.seed == 1)]
    rows = [
        row._replace(value=math.nan) if row.measure == "ood_auroc" and row.learner == "sgd" else row for row in rows
    ]
    summary = summarise(as_table(rows))
    assert summary["mesu"]["calibration_error"]["mean"] is None
    assert summary["mesu"]["ood_auroc"]["mean"] > 0
    assert summary["sgd"]["ood_auroc"]["mean"] is summary["sgd"]["ood_auroc"]["std"] is None
    json.dumps(summary, allow_nan=False)
    run = finished(tmp_path, SMALL, rows)
    results = Page(write(run)).tables[0]
    assert dict(zip(results[0], results[2], strict=True))["OOD AUROC"] == "–"  # noqa: RUF001
    summary_table(summary, "")


def test_mean_and_spread_are_of_what_was_measured():
    mean, std = mean_and_std(np.array([[0.2, np.nan, np.nan], [0.4, 0.5, np.nan]]))
    assert mean[:2] == pytest.approx([0.3, 0.5])
    assert std[:2] == pytest.approx([0.1, 0.0])
    assert np.isnan(mean[2])
    assert np.isnan(std[2])


# --- figures ---


def test_bars_are_the_numbers_and_diamonds_the_papers(tmp_path):
    table = paper_run(tmp_path).table()
    shown = {panel.name: panel for panel in panels(table)}
    axes = picture(shown["last-five"]).axes[0]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([0.925, 0.925])
    diamonds = [float(line.get_xdata()[0]) for line in axes.lines if line.get_marker() == "D"]
    assert diamonds == [0.9134, 0.6573]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["MESU", "EWC Stream"]
    assert "Diamonds: the paper, after 200 tasks." in shown["last-five"].caption
    assert shown["last-five"].numbers == ("MESU 92.5±0.5 % (paper: 91.3 %); EWC Stream 92.5±0.5 % (paper: 65.7 %)")
    auroc = picture(shown["outliers"]).axes[0]
    assert [bar.get_width() for bar in auroc.patches] == pytest.approx([0.92, 0.92])
    assert [line.get_xdata()[0] for line in auroc.lines if line.get_linestyle() == ":"] == [0.5]


def test_study_of_the_memory(study):
    run, _ = study
    panel = next(panel for panel in panels(run.table()) if panel.name == "memory")
    axes = picture(panel).axes[0]
    assert axes.get_xscale() == "log"
    ours = axes.lines[0]
    assert list(ours.get_xdata()) == [180e3, 300e3, 1.2e6, 7.2e6]  # without end: right of the paper's 2.4 million
    scores = summarise(run.table())
    names = ("mesu-180000", "mesu-300000", "mesu-1200000", "mesu-inf")
    assert list(ours.get_ydata()) == [scores[name]["last_five_accuracy"]["mean"] for name in names]
    (papers,) = [line for line in axes.lines if line.get_marker() == "D"]
    theirs = dict(zip(papers.get_xdata(), papers.get_ydata(), strict=True))
    assert theirs == {180e3: 0.869, 300e3: 0.913, 600e3: 0.895, 1.2e6: 0.874, 2.4e6: 0.841, 7.2e6: 0.693}
    assert [text.get_text() for text in axes.get_xticklabels()] == ["180k", "300k", "600k", "1.2M", "2.4M", "∞"]
    assert "MESU, N = 300,000" in panel.numbers


def test_no_study_of_one_memory(small):
    assert [panel.name for panel in panels(small[0].table())][-1] == "five-along"


def vanishing_table():
    rows = []
    for learner, falls in (("mesu-180000", 0.0), ("mesu-1e+15", 0.1), ("foo-vb", 0.1), ("sgd", None)):
        for seed in (0, 1):
            for stage in range(5):
                where = ("vanishing", learner, seed, 60_000 * 10 * (stage + 1), stage, None)
                rows.append(Row(*where, "accuracy", 0.97))
                rows.append(Row(*where, "ood_auroc", 0.95 - 0.02 * stage * (falls != 0)))
                if falls is not None:
                    rows.append(Row(*where, "layer_std", 0.05 * math.exp(-falls * stage) * (1 + seed)))
    return as_table(rows)


def test_vanishing_has_the_two_panels_of_the_paper():
    shown = {panel.name: panel for panel in panels(vanishing_table())}
    assert list(shown) == ["ood-auroc", "layer-std", "accuracy"]
    auroc, sigma = (picture(shown[name]).axes[0] for name in ("ood-auroc", "layer-std"))
    assert list(auroc.lines[0].get_xdata()) == [10, 20, 30, 40, 50]  # epochs
    assert sigma.get_yscale() == "log"
    curves = {line.get_label(): line for line in sigma.lines}
    assert "SGD" not in curves  # it has no sigma
    assert list(curves["FOO-VB"].get_ydata()) == pytest.approx([0.075 * math.exp(-0.1 * i) for i in range(5)])
    assert {
        round(float(line.get_ydata()[0]), 3)
        for line in sigma.lines
        if line.get_marker() == "D" and len(line.get_ydata())
    } == {0.037, 0.009}
    assert curves["MESU, N = 10¹⁵"].get_linestyle() == "--"


def test_same_table_gives_the_same_pictures(small, tmp_path):
    run, _ = small
    for panel in panels(run.table()):
        save(picture(panel), tmp_path / panel.name)
        for suffix in (".svg", ".png"):
            mine, theirs = (folder / f"{panel.name}{suffix}" for folder in (tmp_path, run.folder / "figures"))
            assert mine.read_bytes() == theirs.read_bytes()
    page = (run.folder / "report.html").read_bytes()
    assert write(run).read_bytes() == page


@pytest.mark.parametrize(
    ("learner", "name", "window"),
    [
        ("mesu", "MESU", None),
        ("mesu-300000", "MESU, N = 300,000", 300_000),
        ("mesu-inf", "MESU, N = ∞", math.inf),
        ("mesu-1e+15", "MESU, N = 10¹⁵", 1e15),
        ("mesu-nan", "mesu-nan", None),
        ("mesu-free", "mesu-free", None),
        ("ewc-online", "EWC Online", None),
        ("300000", "300000", None),
    ],
)
def test_learners_have_names(learner, name, window):
    assert label(learner) == name
    assert memory(learner) == window


def test_learners_have_colours_of_their_own():
    together = ["mesu", "foo-vb", "ewc-online", "si", "ewc-stream", "sgd", "adam"]
    study = [f"mesu-{n}" for n in ("180000", "600000", "1200000", "2400000", "inf")]
    assert len({colour(name).lower() for name in [*together, *study]}) == len(together) + len(study)
    assert colour("mesu-300000").lower() == colour("mesu").lower()
    assert {colour(name) for name in together} <= {one for _, one in LEARNERS.values()}
    assert colour("never heard of") == colour("never heard of")


# --- in the terminal ---


def printed(table, width=200):
    console = Console(width=width, file=open(os.devnull, "w"), record=True)  # noqa: SIM115, PTH123
    console.print(table, crop=False)
    console.file.close()
    return console.export_text().splitlines()


def test_terminal_table_has_the_papers_numbers_within_100_columns(study):
    run, _ = study
    lines = printed(summary_table(summarise(run.table()), "title", "The paper's numbers are of more."))
    assert max(map(len, lines)) <= 100
    assert lines[0].strip() == "title"
    at = next(i for i, line in enumerate(lines) if "MESU, N = 300,000" in line)
    assert "paper" in lines[at + 1]
    assert "91.3" in lines[at + 1]
    assert "±" in lines[at]
    assert "The paper's numbers are of more." in " ".join(lines)
    assert any("also in the report: " in line for line in lines)


SIX = replace(SMALL, seeds=3, learners=tuple(KEEPS))  # what `make demo` runs


def cells(summary, name):
    return {f"{number(name, scores[name]['mean'])}±{number(name, scores[name]['std'])}" for scores in summary.values()}


def assert_whole(lines, summary, shown):
    """No name and no number is cut: each learner has a row, and each of these measures a column."""
    text = "\n".join(lines)
    assert "…" not in text
    for learner in summary:
        assert f"│ {label(learner)} " in text
    for name in shown:
        assert all(f" {cell} " in text for cell in cells(summary, name))


@pytest.mark.parametrize("width", [80, 90, 100])
def test_terminal_table_of_the_demo_is_whole_at_every_usual_width(width):
    jobs = [(entry.label, seed) for entry in SIX.entries for seed in range(3)]
    summary = summarise(as_table([row for job in jobs for row in fabricated(SIX.name, *job, SIX.tasks)]))
    lines = printed(summary_table(summary, "title", width=width), width)
    assert max(map(len, lines)) <= width
    shown = ("last_five_accuracy", "running_five_accuracy", "newest_accuracy", "all_tasks_accuracy", "ood_auroc")
    assert_whole(lines, summary, shown)


def test_terminal_table_in_a_narrow_terminal_names_the_columns_it_leaves_out():
    jobs = [(entry.label, seed) for entry in SIX.entries for seed in range(3)]
    summary = summarise(as_table([row for job in jobs for row in fabricated(SIX.name, *job, SIX.tasks)]))
    lines = printed(summary_table(summary, "title", width=50), 50)
    assert max(map(len, lines)) <= 50
    assert_whole(lines, summary, ("last_five_accuracy", "running_five_accuracy"))
    assert "OOD AUROC" in " ".join(" ".join(lines).partition("also in the report:")[2].split())
    lines = printed(summary_table(summary, "title", width=10), 10)  # where one column is too many, it is wider
    assert_whole(lines, summary, ("last_five_accuracy",))


@pytest.mark.parametrize("columns", [None, "60"])
def test_a_pipe_gets_the_table_at_full_width(columns, tmp_path, monkeypatch, capsys):
    run = finished(tmp_path, SIX)
    monkeypatch.setattr(Run, "execute", lambda self, workers: self.table())
    monkeypatch.setattr(Run, "stages_done", lambda self: len(self.jobs) * SIX.stages)
    monkeypatch.setattr(cli, "write", lambda run: run.folder / "report.html")
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    cli.main(["resume", str(run.folder)])
    lines = capsys.readouterr().out.splitlines()
    assert any("last five %" in line and "OOD AUROC" in line for line in lines)
    assert_whole(lines, summarise(run.table()), ("last_five_accuracy", "all_tasks_accuracy", "ood_auroc"))


def test_terminal_table_without_the_paper(small):
    lines = printed(summary_table(summarise(small[0].table()), "title", "note"))
    assert not any("paper" in line or "note" in line for line in lines)


# --- joined runs ---


def two_runs(parent, first=None, second=None):
    one = finished(parent / "a", replace(SMALL, learners=("mesu",), **(first or {})))
    two = finished(parent / "b", replace(SMALL, learners=("sgd",), **(second or {})))
    return one, two


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
    with pytest.raises(ValueError, match="is a run, whose report stays its own"):
        write_joined([one, two], two.folder)
    assert not (tmp_path / "out").exists()


# --- the command ---


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


def test_a_table_without_rows_is_refused(tmp_path):
    with pytest.raises(ValueError, match="has no rows"):
        write(finished(tmp_path, SMALL, []))


def test_a_run_ends_with_its_report(tmp_path, capsys):
    options = ["--tasks", "1", "--seeds", "1", "--epochs", "1", "--hidden", "4", "--learners", "sgd", "--workers", "1"]
    cli.main(["run", "permuted-digits", *options, "--out", str(tmp_path), "--json"])
    said = json.loads(capsys.readouterr().out)
    page = Path(said["report"])
    assert page == Path(said["run"]) / "report.html"
    assert "SGD" in Page(page).text


# --- the page as a file and in a browser ---


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


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# its two pipes become files 3 and 4, where it listens and answers
LAUNCH = """
import fcntl, os, sys
asks, answers = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(asks, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """A headless Chromium, spoken to through its debugging pipe."""

    def __init__(self, home):
        (asks, self.write), (self.read, answers) = os.pipe(), os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={home}"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(asks), str(answers), CHROMIUM, *options, "about:blank"],
            pass_fds=(asks, answers),
            stderr=subprocess.DEVNULL,
        )
        os.close(asks)
        os.close(answers)
        self.count, self.buffer, self.events, self.session = 0, b"", [], {}
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self.session = {"sessionId": self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        self("Page.enable")
        self("Network.enable")

    def __call__(self, method, **parameters):
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters} | self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while (answer := self.next()).get("id") != self.count:
            self.events.append(answer)
        assert "result" in answer, answer
        return answer["result"]

    def next(self):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], 120)
            chunk = os.read(self.read, 1 << 20) if ready else b""
            assert chunk, "the browser does not answer"
            self.buffer += chunk
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def show(self, path, width, colours):
        """Load a page; returns the addresses that were asked for."""
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        self("Emulation.setDeviceMetricsOverride", **metrics)
        self("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": colours}])
        self.events.clear()
        self("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.next())
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in sent]

    def evaluate(self, expression):
        result = self("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"]["value"]

    def close(self):
        os.close(self.write)
        os.close(self.read)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine: how the page looks in a browser is not checked")
    opened = Browser(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


WIDE = """
    [...document.querySelectorAll('body *')]
        .filter(e => !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName)
"""


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_page_fits_shows_its_pictures_and_asks_the_network_for_nothing(width, colours, study, browser):
    _, path = study
    asked = browser.show(path, width, colours)
    assert [address for address in asked if not address.startswith("data:")] == [path.as_uri()]
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(WIDE) == []
    images = browser.evaluate("[...document.images].map(i => [i.complete, i.naturalWidth, i.clientWidth])")
    assert len(images) == 8
    assert all(complete and natural > 0 and shown > 280 for complete, natural, shown in images)
    # wide tables scroll in their own box
    boxes = browser.evaluate("[...document.querySelectorAll('.scroll')].map(e => [e.clientWidth, e.scrollWidth])")
    assert all(client <= width for client, _ in boxes)
    assert any(scroll > client for client, scroll in boxes) or width > 360
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(254, 254, 254)", "dark": "rgb(22, 24, 29)"}[colours]
    # a picture's first pixel is its paper: it follows the reader's colours too
    pixel = """
        (async () => {
            const canvas = document.createElement('canvas').getContext('2d');
            canvas.drawImage(document.images[0], 0, 0);
            return [...canvas.getImageData(1, 1, 1, 1).data].slice(0, 3);
        })()
    """
    assert browser.evaluate(pixel) == {"light": [254, 254, 254], "dark": [22, 24, 29]}[colours]


def test_odd_names_fit_on_a_telephone(odd, browser):
    _, path = odd
    browser.show(path, 360, "light")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 360
    assert browser.evaluate(WIDE) == []
