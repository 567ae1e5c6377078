"""The numbers that people quote, worked out from a table with gaps."""

import json
import math

import numpy as np
import pytest
from tests.lab.report.fabricated import SMALL, Page, fabricated_rows, finished

from mesu import measures
from mesu.lab.report import summary_table, write
from mesu.lab.table import as_table, summarise


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
