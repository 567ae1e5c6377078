"""The table: every measurement once, a summary over the seeds, and tables written before there was the column `index`."""

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.lab.report.fabricated import SMALL as TWO_TASKS
from tests.lab.report.fabricated import Page, fabricated_rows, finished

from mesu import measures
from mesu.lab.entry import Entry
from mesu.lab.experiments import PermutedDigits
from mesu.lab.report import summary_table, write
from mesu.lab.runs.tables import read_table
from mesu.lab.table import INDEXED, Row, accuracy_matrix, as_table, read_rows, summarise, with_index

SMALL = PermutedDigits(tasks=2, seeds=2, epochs=1, learners=("mesu", "si"), hidden=8, samples=2, test_samples=2)


def table_of(settings, entry, seed):
    trial = settings.trial(entry, seed)
    return as_table(row for stage in range(settings.stages) for row in trial.stage(stage))


def test_table_has_every_measurement_once():
    table = table_of(SMALL, Entry("si"), seed=1)
    assert table.columns == list(Row._fields)
    accuracy = table.filter(measure="accuracy")
    assert accuracy.select("after_task", "on_task").rows() == [(0, 0), (1, 0), (1, 1)]
    assert set(table["measure"]) == {"accuracy", "calibration_error", "ood_auroc"}
    assert accuracy["step"].to_list() == [1437, 2874, 2874]
    assert np.isnan(accuracy_matrix(table, "si", 1)[0, 1])


def test_summary_is_over_seeds():
    rows = [
        Row("e", "sgd", seed, 1, after, on, "accuracy", value)
        for seed, values in enumerate([(0.9, 0.5, 0.8), (0.7, 0.3, 0.6)])
        for (after, on), value in zip([(0, 0), (1, 0), (1, 1)], values, strict=True)
    ]
    scores = summarise(as_table(rows))["sgd"]
    assert scores["last_five_accuracy"] == {
        "mean": pytest.approx(0.55),
        "std": pytest.approx(0.1 * 2**0.5),  # of a sample: n - 1
        "seeds": 2,
        "paper": None,
    }
    assert scores["newest_accuracy"]["mean"] == pytest.approx(0.7)
    assert scores["rigidity"]["mean"] == pytest.approx(10.0)


# -- tables written before there was the column `index`

RESULTS = Path(__file__).parents[2] / "docs" / "results"
BEFORE = list(Row._fields[:-1])


@pytest.mark.parametrize("name", sorted(path.parent.name for path in RESULTS.glob("*/table.parquet")))
def test_published_tables_are_read_as_they_would_be_written_today(name):
    written, read = pl.read_parquet(RESULTS / name / "table.parquet"), read_table(RESULTS / name / "table.parquet")
    assert read.columns == list(Row._fields)
    assert read.drop("on_task", "index").equals(written.drop("on_task", "index", strict=False))
    # every number is in one of the two, and none is about a task and a weight at once
    assert (read["on_task"].is_null() | read["index"].is_null()).all()
    both = read.select(pl.coalesce("on_task", "index")).to_series()
    assert both.to_list() == with_index(written).select(pl.coalesce("on_task", "index")).to_series().to_list()
    if "index" not in written.columns:
        assert both.to_list() == written["on_task"].to_list()
    of_tasks = set(read.filter(pl.col("on_task").is_not_null())["measure"])
    assert of_tasks <= {"accuracy", "task_accuracy"}
    assert set(read.filter(pl.col("index").is_not_null())["measure"]) <= set(INDEXED)


def test_a_table_of_today_is_left_as_it_is():
    # whatever its measures are called: `std` may be about a task in an experiment of somebody's own
    rows = [Row("e", "sgd", 0, 1, 0, 2, "std", 0.5), Row("e", "sgd", 0, 1, 0, None, "std", 0.5, 3)]
    assert with_index(as_table(rows)).equals(as_table(rows))
    assert read_rows(Row._fields, rows) == rows
    with_eight = [row[:-1] for row in rows[:1]]
    assert read_rows(BEFORE, with_eight) == [Row("e", "sgd", 0, 1, 0, None, "std", 0.5, 2)]
    assert with_index(as_table(rows[:1]).drop("index")).rows() == [("e", "sgd", 0, 1, 0, None, "std", 0.5, 2)]


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        (["value", *Row._fields[:-1]], []),
        (Row._fields, [("e", "sgd", 0, 1, 0, 2, "m", 0.5)]),
        (BEFORE, [("e", "sgd", 0, 1, 0, 2, "m")]),
        (BEFORE, [("e", "sgd", 0, 1, 0, 2, "m", "high")]),
    ],
)
def test_rows_that_are_none_of_a_table_are_refused(columns, rows):
    with pytest.raises((ValueError, TypeError, pl.exceptions.PolarsError)):
        read_rows(columns, rows)


def test_values_of_an_index_are_no_scores():
    rows = [Row("e", "sgd", 0, 1, 0, None, "std", 0.1 * weight, weight) for weight in range(3)]
    rows.append(Row("e", "sgd", 0, 1, 0, None, "deviation", 0.25))
    assert list(summarise(as_table(rows))["sgd"]) == ["deviation"]


def test_forgetting_of_tasks_tested_now_and_then():
    # task 0 was tested when learned and at the end, task 1 in between too
    nan = np.nan
    a = [[0.9, nan, nan, nan], [nan, 0.7, nan, nan], [nan, 0.8, 0.6, nan], [0.3, 0.5, 0.6, 0.9]]
    assert measures.forgetting(a) == pytest.approx((0.6 + 0.3 + 0.0) / 3)
    a[0][0] = nan  # never tested before the end: not known, and no warning
    assert math.isnan(measures.forgetting(a))


def test_what_some_seed_did_not_measure_is_none_and_valid_json(tmp_path):
    rows = fabricated_rows(TWO_TASKS)
    rows = [row for row in rows if not (row.measure == "calibration_error" and row.seed == 1)]
    rows = [
        row._replace(value=math.nan) if row.measure == "ood_auroc" and row.learner == "sgd" else row for row in rows
    ]
    summary = summarise(as_table(rows))
    assert summary["mesu"]["calibration_error"]["mean"] is None
    assert summary["mesu"]["ood_auroc"]["mean"] > 0
    assert summary["sgd"]["ood_auroc"]["mean"] is summary["sgd"]["ood_auroc"]["std"] is None
    json.dumps(summary, allow_nan=False)
    run = finished(tmp_path, TWO_TASKS, rows)
    results = Page(write(run)).tables[0]
    assert dict(zip(results[0], results[2], strict=True))["OOD AUROC"] == "–"  # noqa: RUF001
    summary_table(summary, "")
