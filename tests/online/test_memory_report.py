"""The memory report against counts of its own."""

from math import inf

import numpy as np
import pytest
from made_up import clusters, layers, line

import mesu
from mesu.memory import effective_window


def test_the_effective_window():
    assert effective_window(500, inf) == 500
    for rows, memory in ((1, 10), (7, 10), (1000, 10), (500, 1e5)):
        weights = sum((1 - 1 / memory) ** age for age in range(rows))
        assert effective_window(rows, memory) == pytest.approx(weights, rel=1e-9)


def test_what_is_remembered_is_reported():
    X, y = clusters(500)
    X[:, 0] = 1.0  # a column that says nothing
    model = mesu.MESUClassifier(hidden=(12,), memory=100, prior_std=0.3, random_state=0).partial_fit(X, y)
    report, snapshot = model.memory_report(), model._online.snapshot
    assert (report.rows, report.memory) == (500, 100)
    assert report.window == pytest.approx(100 * (1 - 0.99**500))
    assert [part.name for part in report.layers] == ["5 -> 12", "12 -> 4"]
    assert [part.weights for part in report.layers] == [6 * 12, 13 * 4]
    start = [5**-0.5, 12**-0.5]
    for part, sigma, own in zip(report.layers, layers(snapshot.weights), start, strict=True):
        std = np.concatenate([sigma[2].ravel(), sigma[3]])
        assert part.median == pytest.approx(np.median(std), rel=1e-6)
        assert part.consolidated == pytest.approx((std < min(own, 0.3) / 2).mean())
        assert part.at_prior == pytest.approx((std > 0.285).mean())
        assert part.free + part.consolidated + part.at_prior == pytest.approx(1)
    assert report.layers[0].at_prior >= 1 / 6  # the column's weights are back there after five memories
    assert report.all.weights == 6 * 12 + 13 * 4
    text = str(report).splitlines()
    assert text[0] == "500 examples learned; 99 of them still count (memory 100)"
    assert len(text) == 6
    assert f"{report.all.consolidated:.0%}" in text[-1]


def test_what_is_remembered_is_drawn(tmp_path):
    report = mesu.MESURegressor(hidden=(6, 6, 6), random_state=0).fit(*line(100)).memory_report()
    figure = report.figure()
    left, right = figure.axes
    assert [text.get_text() for text in left.get_yticklabels()] == ["all", "6 -> 1", "6 -> 6", "6 -> 6", "3 -> 6"]
    ends = {bar.get_y(): bar.get_x() + bar.get_width() for bar in left.patches}  # of the last bar on each line
    assert list(ends.values()) == pytest.approx([1] * 5)
    widths = [bar.get_width() for bar in left.patches]
    assert widths[:5] == pytest.approx([part.free for part in (report.all, *report.layers[::-1])])
    assert right.get_xlabel() == "sigma"
    figure.savefig(tmp_path / "memory.png")
