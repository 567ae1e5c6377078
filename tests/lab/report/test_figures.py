"""The panels of an experiment: curves, bars and diamonds are the numbers of the table."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.lab.report.fabricated import SMALL, finished, paper_run, vanishing_table

from mesu.lab.drawing.panels import picture, save
from mesu.lab.report import write
from mesu.lab.report.figures import panels
from mesu.lab.table import summarise


def test_curves_leave_out_what_was_not_measured(tmp_path):
    run = finished(tmp_path, replace(SMALL, tasks=23, learners=("mesu",)))
    shown = {panel.name: picture(panel).axes[0] for panel in panels(run.table())}
    # all tasks so far are known while they are five or fewer, after each tenth and at the end; less the newest
    assert list(shown["all-so-far"].lines[0].get_xdata()) == [1, 2, 3, 4, 9, 19, 22]
    assert list(shown["newest"].lines[0].get_xdata()) == list(range(1, 24))
    assert list(shown["five-along"].lines[0].get_xdata()) == list(range(1, 24))
    scores = summarise(run.table())["mesu"]
    earlier = (23 * scores["all_tasks_accuracy"]["mean"] - scores["newest_accuracy"]["mean"]) / 22
    assert shown["all-so-far"].lines[0].get_ydata()[-1] == pytest.approx(earlier)
    assert shown["five-along"].lines[0].get_ydata()[-1] == pytest.approx(scores["last_five_accuracy"]["mean"])
    assert np.mean(shown["newest"].lines[0].get_ydata()) == pytest.approx(scores["plasticity"]["mean"])
    assert np.mean(shown["five-along"].lines[0].get_ydata()[4:]) == pytest.approx(
        scores["running_five_accuracy"]["mean"]
    )
    assert np.mean(shown["old-tasks"].lines[0].get_ydata()) == pytest.approx(scores["all_tasks_accuracy"]["mean"])


def test_bars_are_the_numbers_and_diamonds_the_papers(tmp_path):
    table = paper_run(tmp_path).table()
    shown = {panel.name: panel for panel in panels(table)}
    axes = picture(shown["last-five"]).axes[0]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([0.925, 0.925])
    diamonds = [float(line.get_xdata()[0]) for line in axes.lines if line.get_marker() == "D"]
    assert diamonds == [0.9134, 0.6573]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["MESU", "EWC Stream"]
    assert "Diamonds: the paper, after 200 tasks." in shown["last-five"].caption
    assert shown["last-five"].numbers == ("MESU 92.5±0.7 % (paper: 91.3 %); EWC Stream 92.5±0.7 % (paper: 65.7 %)")
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
