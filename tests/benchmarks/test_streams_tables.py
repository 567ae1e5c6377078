"""The tables of docs/streams.md, and the settings that are changed one at a time."""

from pathlib import Path

import pytest

pytest.importorskip("river")

from benchmarks.streams import checks, markdown, table
from benchmarks.streams.data import STREAMS
from benchmarks.streams.models import mesu_model

PAGE = Path(__file__).parents[2] / "docs/streams.md"


def test_a_start_half_or_twice_as_wide_is_one():
    stream = STREAMS["bananas"](0)
    widths = []
    for name in ("start half as wide", "MESU", "start twice as wide"):
        adapter = mesu_model(stream, 0, **checks.VARIANTS[name])
        adapter.learn({"a": 0.0}, 1)
        widths.append(float(adapter.model._learned().weights.std.max()))
    assert widths[1] / widths[0] == pytest.approx(2, rel=0.1)
    assert widths[2] / widths[1] == pytest.approx(2, rel=0.1)


def test_the_page_has_the_tables_of_the_results():
    folder = PAGE.with_suffix("")
    made = markdown.tables(table.read_results(folder / "results.csv"), table.read_costs(folder / "costs.csv"))
    rows = [line for line in made.splitlines() if line.startswith("|")]
    lines = set(PAGE.read_text(encoding="utf-8").splitlines())
    assert len(rows) > 50
    assert [row for row in rows if row not in lines] == []


def test_what_was_not_run_is_a_dash_and_one_seed_has_no_spread():
    found = {
        ("phishing", "mesu", 0): table.Result("phishing", "mesu", 0, 1_250, 0.9, 0.25, 19, (1_125.0,)),
        ("phishing", "mesu", 1): table.Result("phishing", "mesu", 1, 1_250, 0.8, 0.35, 19, (1_000.0,)),
        ("bananas", "linear", 0): table.Result("bananas", "linear", 0, 2_000, 0.55, 0.69, 1.5, (1_100.0,)),
    }
    lines = markdown.tables(found, {}).splitlines()
    assert "| MESU | 85.0 ± 7.1 | - |" in lines
    assert "| River linear model | - | 55.0 |" in lines
    assert "| MESU | ? / 19 | - |" in lines
