"""The table: every measurement once, and a summary over the seeds."""

import numpy as np
import pytest

from mesu.lab.entry import Entry
from mesu.lab.experiments import PermutedDigits
from mesu.lab.table import Row, accuracy_matrix, as_table, summarise

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
        "std": pytest.approx(0.1),
        "seeds": 2,
        "paper": None,
    }
    assert scores["newest_accuracy"]["mean"] == pytest.approx(0.7)
    assert scores["rigidity"]["mean"] == pytest.approx(10.0)
