"""How long to remember, and what any network still remembers."""

import re
from datetime import timedelta
from math import inf

import numpy as np
import pytest
import torch
from torch import nn

import mesu
from mesu.memory import effective_window


@pytest.mark.parametrize(("half_life", "batch"), [(10, 1), (1000, 1), (1000, 20), (1e7, 32)])
def test_half_of_it_counts_after_a_half_life(half_life, batch):
    memory = mesu.memory_for(half_life=half_life, batch=batch)
    assert (1 - 1 / memory) ** (half_life / batch) == pytest.approx(0.5, rel=1e-6)


def test_a_half_life_may_be_a_time():
    week = mesu.memory_for(half_life=timedelta(weeks=1), every=timedelta(seconds=30))
    assert week == mesu.memory_for(half_life=7 * 24 * 120)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "give either a half_life or the rows of the stream"),
        ({"half_life": 10, "rows": 10}, "give either a half_life or the rows"),
        ({"half_life": timedelta(days=1)}, "needs the time from row to row, got every=None"),
        ({"half_life": timedelta(days=1), "every": timedelta(0)}, "needs the time from row to row, got every="),
        ({"half_life": 10, "every": timedelta(1)}, "goes with a half_life that is a time, got half_life=10"),
        ({"half_life": 0}, "half_life must be a finite number greater than 0, got 0"),
        ({"half_life": 10, "batch": 0}, "batch must be a whole number, 1 or more, got 0"),
        ({"rows": 3, "batch": 4}, "that is a memory of 0.75 updates: it must be greater than 1"),
    ],
)
def test_what_makes_no_memory_is_refused(given, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        mesu.memory_for(**given)


def test_the_report_of_any_network_counts_its_sigmas():
    net = mesu.Bayesian(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)), seed=0)
    optimizer = mesu.MESU(net, memory=100)
    conv = dict(net.named_parameters())["module.0.weight_std"]
    with torch.no_grad():
        conv.view(-1)[:9] *= 0.1
        conv.view(-1)[9:12] *= 0.7
    report = mesu.memory_report(net, optimizer, updates=50)
    assert [(part.name, part.weights) for part in report.layers] == [("0", 20), ("2", 27)]
    first = report.layers[0]
    assert (first.consolidated, first.free, first.at_prior) == pytest.approx((9 / 20, 3 / 20, 8 / 20))
    assert first.prior == pytest.approx(1.0)  # 3 / sqrt(9)
    assert report.all.weights == 47
    assert report.window == pytest.approx(sum(0.99**age for age in range(50)))
    assert "50 updates learned; 39 of them still count (memory 100)" in str(report)
    assert "100 updates are remembered at most" in str(mesu.memory_report(net, optimizer))


def test_a_prior_of_a_number_is_the_prior_of_the_report():
    net = mesu.Bayesian(nn.Linear(4, 3), estimator="local", seed=0)
    report = mesu.memory_report(net, mesu.MESU(net, memory=inf, prior_std=0.2))
    assert report.all.prior == 0.2
    assert report.all.at_prior == 1.0  # it starts wider than its prior


def test_groups_with_other_memories_and_rules_without_one_have_no_report():
    net = mesu.Bayesian(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), estimator="local", seed=0)
    two = mesu.MESU([{"params": net.pairs("0"), "memory": 10}, {"params": net.pairs("1")}], memory=20)
    with pytest.raises(ValueError, match=r"different memories, \[10.0, 20.0\]"):
        mesu.memory_report(net, two)
    with pytest.raises(ValueError, match="got FOOVB, which has no memory"):
        mesu.memory_report(net, mesu.FOOVB(net))
    other = mesu.Bayesian(nn.Linear(4, 3), seed=0)
    with pytest.raises(ValueError, match="moves no weight of this network"):
        mesu.memory_report(other, mesu.MESU(net, memory=10))


def test_the_window_of_a_long_stream_is_the_memory():
    assert effective_window(10**7, 1000.0) == pytest.approx(1000)
    assert np.isclose(effective_window(10, 1e12), 10)


def test_a_lower_rate_of_sigma_forgets_more_slowly():
    net = mesu.Bayesian(nn.Linear(4, 3), seed=0)
    report = mesu.memory_report(net, mesu.MESU(net, memory=1000, lr_std=0.2), updates=5000)
    assert report.window == pytest.approx(5000 * (1 - (1 - 1 / 5000) ** 5000))
