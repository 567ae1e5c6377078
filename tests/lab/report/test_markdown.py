"""Pages of Markdown: numbers worked out by hand from fabricated tables."""

import pytest

from mesu.lab.experiments import PermutedDigits
from mesu.lab.report import markdown
from mesu.lab.runs.run import Run
from mesu.lab.table import Row, as_table

SETTINGS = PermutedDigits(tasks=2, seeds=2, learners=("mesu", "sgd"))


@pytest.fixture
def run(tmp_path):
    rows = []
    for learner, level in (("mesu", 0.9), ("sgd", 0.7)):
        for seed in (0, 1):
            for after in (0, 1):
                where = ("permuted-digits", learner, seed, 100 * (after + 1), after)
                rows += [Row(*where, on, "accuracy", level + 0.02 * seed) for on in range(after + 1)]
                rows.append(Row(*where, None, "ood_auroc", level))
    run = Run.create(SETTINGS, tmp_path / "runs")
    as_table(rows).write_parquet(run.folder / "table.parquet")
    return run


def grid(page):
    """The first table of a page, as lists of cells without the line below its head."""
    lines = page.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    end = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:end]]
    assert set(cells[1]) == {"---"}
    return [cells[0], *cells[2:]]


def test_a_row_for_each_learner_and_what_it_was_drawn_from(run, tmp_path):
    page = markdown.write_markdown(run, tmp_path / "page", note="Why this is so.")
    head, mesu, sgd = grid(page)
    assert mesu[0] == "MESU"
    assert sgd[0] == "SGD"
    newest = next(i for i, cell in enumerate(head) if cell.startswith("newest"))
    assert mesu[newest] == "91.0±1.4"  # 90 and 92 %, a sample of two
    assert sgd[newest] == "71.0±1.4"
    assert "Why this is so." in page.read_text()
    assert {"README.md", "figure.png", "table.parquet", "settings.json"} <= {p.name for p in page.parent.iterdir()}


def test_a_table_too_wide_to_read_is_turned(run, tmp_path, monkeypatch):
    upright = grid(markdown.write_markdown(run, tmp_path / "upright"))
    monkeypatch.setattr(markdown, "WIDE", 2)
    turned = grid(markdown.write_markdown(run, tmp_path / "turned"))
    assert turned[0] == ["measure", "MESU", "SGD"]
    assert [row[1:] for row in turned[1:]] == [list(column) for column in zip(*upright[1:], strict=True)][1:]
    assert [row[0] for row in turned[1:]] == upright[0][1:]
