"""The pages of results, and what the README quotes of them, are the numbers of the tables beside them."""

import re
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from mesu.lab.drawing.style import label
from mesu.lab.experiments.permuted.figures import mean_of_earlier
from mesu.lab.paper import PERMUTED_MNIST_ALL_TASKS, paper_number
from mesu.lab.report.markdown import papers_table, results_table
from mesu.lab.runs.tables import read_table
from mesu.lab.table import accuracy_matrix, mean_and_std, summarise

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
PAGES = sorted(folder.name for folder in RESULTS.iterdir() if (folder / "table.parquet").is_file())


@cache
def table(page):
    return read_table(RESULTS / page / "table.parquet")


@cache
def summary(page):
    return summarise(table(page))


def text(*path):
    return ROOT.joinpath(*path).read_text(encoding="utf-8")


def has(where, *words):
    missing = [line for line in words if line not in where]
    assert not missing, "\n".join(missing)


def percent(score, more=1):
    return f"{100 * score['mean']:.{more}f}"


def with_spread(score):
    """91.3 ± 0.7, in per cent."""
    return f"{100 * score['mean']:.1f} ± {100 * score['std']:.1f}"


def test_there_is_a_page_for_every_table():
    assert len(PAGES) >= 10
    for page in PAGES:
        has(text("docs", "results", "README.md"), f"({page}/README.md)")


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_of_a_page_are_those_of_its_rows(page):
    written = text("docs", "results", page, "README.md")
    has(written, results_table(summary(page)).strip())
    has(written, papers_table(summary(page)).strip())


@pytest.mark.parametrize(
    ("title", "learner"),
    [
        ("**MESU**", "mesu"),
        ("EWC Online (told of boundaries)", "ewc-online"),
        ("SI (told of boundaries)", "si"),
        ("FOO-VB", "foo-vb"),
        ("EWC Stream", "ewc-stream"),
        ("SGD", "sgd"),
    ],
)
def test_the_readme_has_permuted_mnist_s_numbers(title, learner):
    cells = [title]
    for measure in ("last_five_accuracy", "newest_accuracy"):
        score = summary("permuted-mnist")[learner][measure]
        cells.append(f"{with_spread(score)} ({100 * score['paper']:.1f})")
    score = summary("permuted-mnist")[learner]["ood_auroc"]
    cells.append(f"{score['mean']:.3f} ± {score['std']:.3f} ({score['paper']:.2f})")
    line = next(line for line in text("README.md").splitlines() if line.startswith(f"| {title} |"))
    assert [cell.strip().replace("**", "") for cell in line.strip("| ").split("|")] == [
        cell.replace("**", "") for cell in cells
    ]


def test_the_readme_has_the_animals_numbers():
    of = summary("animals-resnet18")
    keeps = {name: percent(scores["all_tasks_accuracy"]) for name, scores in of.items()}
    best = max((name for name in keeps if name.startswith("sgd")), key=lambda name: float(keeps[name]))
    assert best == "sgd-7e-05"
    said = " ".join(text("README.md").split())
    has(said, f"SGD keeps {keeps['sgd-0.005']} %, at its best rate {keeps[best]} %, MESU {keeps['mesu-slow']} %")


def test_the_overview_has_each_page_s_headline():
    permuted, stays = summary("permuted-mnist")["mesu"], summary("vanishing")
    resnet, lite = summary("animals-resnet18"), summary("animals-effnetlite0")
    split, hessian = summary("split-cifar10"), summary("hessian")["mesu"]
    of = {label: percent(scores["mean_accuracy"]) for label, scores in split.items()}
    every = "all_tasks_accuracy"
    has(
        text("docs", "results", "README.md"),
        f"last five of 200 tasks: {percent(permuted['last_five_accuracy'])} % | "
        f"{100 * paper_number('permuted-mnist', 'mesu', 'last_five_accuracy'):.1f} |",
        f"newest task: {percent(permuted['newest_accuracy'])} % |",
        f"AUROC: {permuted['ood_auroc']['mean']:.2f} |",
        f"| {percent(resnet['mesu-slow'][every])} %; SGD at its best rate {percent(resnet['sgd-7e-05'][every])} |",
        f"| {percent(lite['mesu-slow'][every])} %; SGD at its best rate {percent(lite['sgd-0.0001'][every])} |",
        f"1 split: {of['mesu@1']} %; EWC {of['ewc@1']}, SI {of['si@1']}, Adam {of['adam@1']} |",
        f"16 splits: {of['mesu@16']} %; EWC {of['ewc@16']}, Adam {of['adam@16']}, SI {of['si@16']} |",
        f"AUROC after 1,000 epochs: {stays['mesu-180000']['ood_auroc']['mean']:.3f} |",
        f"without forgetting {stays['foo-vb']['ood_auroc']['mean']:.2f} by ranks |",
        f"correlation {hessian['pearson_1000000']['mean']:.3f}, slope {hessian['slope_1000000']['mean']:.2f} |",
    )


@pytest.mark.parametrize(
    ("title", "learner", "best"),
    [
        ("MESU, slow means", "mesu-slow", {}),
        ("MESU, a photograph counted once", "mesu-weighted", {}),
        ("MESU, narrow start of 0.2", "mesu", {}),
        ("MESU, the paper's rule", "mesu-paper", {}),
        ("SGD at the paper's rate, 0.005", "sgd-0.005", {}),
        ("SGD at 0.001", "sgd-0.001", {}),
        (
            "SGD at its best rate of ten",
            "",
            {"animals-resnet18": "sgd-7e-05", "animals-effnetlite0": "sgd-0.0001"},
        ),
    ],
)
def test_the_overview_s_table_of_animals(title, learner, best):
    cells = [title]
    for page in ("animals-resnet18", "animals-effnetlite0"):
        scores = summary(page)[best.get(page, learner)]
        auroc = scores["ood_auroc"]
        cells.append(f"{with_spread(scores['all_tasks_accuracy'])} / {auroc['mean']:.3f} ± {auroc['std']:.3f}")
    has(text("docs", "results", "README.md"), f"| {' | '.join(cells)} |")


@pytest.mark.parametrize("page", ["animals-resnet18", "animals-effnetlite0"])
@pytest.mark.parametrize("learner", ["mesu-paper", "mesu-slow", "sgd-0.005"])
def test_the_animals_matrices(page, learner):
    """Task by task: after each task (rows), on each task (columns), as the paper's Fig. 2c and d."""
    rows = table(page).filter(learner=learner)
    matrices = 100 * np.array([accuracy_matrix(rows, learner, seed) for seed in sorted(rows["seed"].unique())])
    mean, std = mean_and_std(matrices)
    written = text("docs", "results", page, "README.md")
    for after in range(4):
        cells = " | ".join(f"{m:.1f} ± {s:.1f}" for m, s in zip(mean[after], std[after], strict=True))
        has(written, f"| {label(learner)} | {after + 1} | {cells} |")


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("split-cifar10")])
def test_split_cifar_task_by_task(page):
    rows = table(page)
    for learner in summary(page):
        own = rows.filter(learner=learner, measure="task_accuracy")
        ends = own.filter(pl.col("after_task") == pl.col("after_task").max())
        tasks = [ends.filter(on_task=task)["value"].mean() for task in range(5)]
        line = next(
            line
            for line in text("docs", "results", page, "README.md").splitlines()
            if line.startswith(f"| {label(learner)} |") and line.count("|") > 5
        )
        cells = [cell.strip().replace("**", "") for cell in line.strip("| ").split("|")]
        # a mean that ends in 5 may be rounded either way
        assert [float(cell) for cell in cells[1:6]] == pytest.approx([100 * value for value in tasks], abs=0.0501)
        assert cells[6] == percent(summary(page)[learner]["mean_accuracy"])


def test_permuted_mnist_s_mean_of_all_tasks_is_compared_like_for_like():
    written = text("docs", "results", "permuted-mnist", "README.md")
    for learner in ("foo-vb", "mesu"):
        matrices = np.array([accuracy_matrix(table("permuted-mnist"), learner, seed) for seed in range(3)])
        curve = mean_of_earlier(matrices).mean(0)
        ours = " | ".join(f"{100 * curve[t - 1]:.1f}" for t in (9, 49, 99, 199))
        theirs = " | ".join(f"{100 * PERMUTED_MNIST_ALL_TASKS[learner][t]:.1f}" for t in (9, 49, 99, 199))
        has(written, f"| {label(learner)} | {ours}", f"| {label(learner)}, paper | {theirs} |")


def test_the_hessian_page_s_correlations():
    written = text("docs", "results", "hessian", "README.md")
    for learner, title, measure in (
        ("mesu", "MESU, Pearson (paper)", "pearson"),
        ("foo-vb", "FOO-VB", "pearson"),
        ("ewc", "EWC", "pearson"),
        ("si", "SI", "pearson"),
        ("si", "SI, path since the comparison before", "pearson_restarted"),
    ):
        page = "hessian" if learner in summary("hessian") else "hessian-ewc-si"
        cells = []
        for step in (1_000, 10_000, 100_000, 1_000_000):
            score = summary(page)[learner][f"{measure}_{step}"]
            spread = f" ± {score['std']:.3f}" if score["seeds"] > 1 else ""
            cells.append(f"{score['mean']:.3f}{spread} ({paper_number('hessian', learner, f'pearson_{step}'):.3f})")
        has(written, f"| {title} | {' | '.join(cells)} |")


def test_the_coverage_page_names_what_there_is():
    written = text("docs", "paper.md")
    for name in set(re.findall(r"`(test_\w+\.py)`", written)):
        assert (ROOT / "tests" / "equations" / name).is_file(), name
    rules = import_module("mesu.rules")
    for name in set(re.findall(r"`mesu\.rules\.(\w+)", written)):
        assert hasattr(rules, name), name


def test_the_coverage_page_has_the_numbers_of_the_tables():
    permuted, animals = summary("permuted-mnist"), summary("animals-resnet18")
    ours, sgd = animals["mesu-paper"], animals["sgd-0.005"]

    def auroc(scores):
        return f"{scores['ood_auroc']['mean']:.3f} ± {scores['ood_auroc']['std']:.3f}"

    has(
        text("docs", "paper.md"),
        f"paper's rule {with_spread(ours['all_tasks_accuracy'])} % on all four at the end | 93.0 ± 1.3 |",
        f"| {with_spread(sgd['all_tasks_accuracy'])} % | 79.0 ± 4.9 |",
        f"AUROC {auroc(ours)} |",
        f"AUROC {auroc(sgd)} |",
        f"MESU {with_spread(permuted['mesu']['last_five_accuracy'])} % | 91.34 |",
        f"MESU {permuted['mesu']['rigidity']['mean']:.0f} | 328 |",
        f"MESU {with_spread(permuted['mesu']['newest_accuracy'])} %, "
        f"FOO-VB {with_spread(permuted['foo-vb']['newest_accuracy'])} %",
        f"MESU {auroc(permuted['mesu'])}, FOO-VB {auroc(permuted['foo-vb'])} |",
        f"against {percent(permuted['ewc-online']['last_five_accuracy'])} and "
        f"{percent(permuted['si']['last_five_accuracy'])} %",
    )
