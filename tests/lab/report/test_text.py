"""The table in the terminal: whole at every width, the paper's numbers below ours."""

import pytest
from tests.lab.report.fabricated import SIX, fabricated, finished, printed

from mesu.lab.cli import main as cli
from mesu.lab.drawing.numbers import number
from mesu.lab.drawing.style import label
from mesu.lab.report import summary_table
from mesu.lab.runs.run import Run
from mesu.lab.table import as_table, summarise


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
    monkeypatch.setattr(Run, "execute", lambda self, workers, log=(): self.table())
    monkeypatch.setattr(Run, "stages_done", lambda self: len(self.jobs) * SIX.stages)
    monkeypatch.setattr(cli, "write", lambda run, summary: run.folder / "report.html")
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
