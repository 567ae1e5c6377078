"""The soak in seconds: its checks hold, and each of them fails when what it checks is broken."""

import importlib.util
import sys
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest

import mesu

spec = importlib.util.spec_from_file_location("soak", Path(__file__).parents[2] / "benchmarks" / "soak.py")
assert spec
assert spec.loader
soak = importlib.util.module_from_spec(spec)
sys.modules["soak"] = soak  # dataclasses look their module up
spec.loader.exec_module(soak)

SHORT = soak.Setup(updates=50_000, every=5_000, memory=1_000, recovery=2_000, growth=3.454e-5)


@pytest.fixture(scope="module")
def records():
    return soak.classifier(SHORT), soak.regressor(SHORT)


def failed(record, least, honest):
    return [words for words, holds in soak.checks(record, least, honest) if not holds]


def test_a_short_soak_holds(records):
    classes, numbers = records
    assert len(classes.before) == len(classes.after) == len(numbers.rss) == 9
    assert failed(classes, 0.85, honest=False) == []
    assert failed(numbers, 0.8, honest=True) == []
    # chance is 1/4 for classes; coefficients that have nothing to do with the true ones explain less than nothing
    assert 0.1 < np.mean(classes.after) < 0.5
    assert np.mean(numbers.after) < 0.2


def test_a_model_that_never_forgets_does_not_recover():
    endless = replace(SHORT, memory=inf, estimator="local")  # "linear" finds the jumps of numbers by itself
    assert any("recovered" in words for words in failed(soak.classifier(endless), 0.85, honest=False))
    assert any("recovered" in words for words in failed(soak.regressor(endless), 0.8, honest=True))


def test_each_check_can_fail(records):
    _, numbers = records
    for change, words in (
        ({"whole": False}, "weights finite"),
        ({"rss": [*numbers.rss[:-1], numbers.rss[-1] + 50]}, "memory grew"),
        ({"size": [*numbers.size[:-1], numbers.size[-1] + 1000]}, "file grew"),
        ({"before": [0.5] * 9}, "before a change"),
        ({"after": numbers.before}, "just after"),
        ({"recovered": [*numbers.recovered[:-1], 0.2]}, "at last"),
        ({"covered": [0.6] * 9}, "nine in ten"),
        ({"covered": [1.0] * 9}, "nine in ten"),
    ):
        assert any(words in line for line in failed(replace(numbers, **change), 0.8, honest=True)), words


def test_broken_weights_are_noticed(monkeypatch):
    load = mesu.load

    def spoilt(path):
        model = load(path)
        model._online.snapshot.weights.std[3] = 0.0
        return model

    monkeypatch.setattr(mesu, "load", spoilt)
    record = soak.classifier(replace(SHORT, updates=10_500))
    assert not record.whole


@pytest.mark.parametrize("holds", [True, False])
def test_a_failed_check_is_the_exit_code(holds, monkeypatch, capsys):
    record = soak.Record([1.0] * 10, [0.1] * 10, [1.0] * 10, [0.9] * 10, [100.0] * 10, [1000] * 10, whole=holds)
    for run in ("classifier", "regressor"):

        def lived(setup, quiet):
            assert setup.updates in (10_000_000, 2_000_000)
            return record

        lived.__name__ = run
        monkeypatch.setattr(soak, run, lived)
    monkeypatch.setattr(sys, "argv", ["soak.py"])
    assert soak.main() == (0 if holds else 1)
    assert ("**failed**" in capsys.readouterr().out) is not holds
