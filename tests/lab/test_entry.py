"""Entries and their labels: made in one place, and read back from tables."""

from math import inf

import pytest

from mesu.lab.entry import Entry
from mesu.lab.experiments import CIFAR, AnimalFamilies, Dynamics, PermutedMNIST, Vanishing, experiments

LABELS = {  # as published tables and finished runs have them
    "sgd": Entry("sgd"),
    "mesu-slow": Entry("mesu-slow"),
    "foo-vb": Entry("foo-vb"),
    "mesu-300000": Entry("mesu", "memory", 300_000),
    "mesu-1e+15": Entry("mesu", "memory", 1e15),
    "mesu-inf": Entry("mesu", "memory", inf),
    "sgd-0.005": Entry("sgd", "sgd_lr", 0.005),
    "sgd-7e-05": Entry("sgd", "sgd_lr", 7e-5),
    "mesu-start-0.2": Entry("mesu", "init_scale", 0.2),
    "mesu@16": Entry("mesu", "splits", 16),
    "mesu-exact@1": Entry("mesu-exact", "splits", 1),
}


@pytest.mark.parametrize("label", LABELS)
def test_a_label_is_made_of_an_entry_and_read_as_it(label):
    assert LABELS[label].label == label
    assert Entry.read(label) == LABELS[label]


@pytest.mark.parametrize(
    "label", ["mesu-", "mesu-start-", "sgd-fast", "mesu@", "a/b <new>", "", "mesu-paper", "ewc-online"]
)
def test_any_other_label_is_a_learner_without_a_setting(label):
    assert Entry.read(label) == Entry(label)


def test_a_setting_of_ones_own_is_named_in_the_label():
    assert Entry("sgd", "width", 20).label == "sgd-width-20"


def test_cost_is_for_the_order_of_work_and_no_part_of_who_it_is():
    assert Entry("mesu", cost=10) == Entry("mesu")
    assert len({Entry("mesu", cost=10), Entry("mesu")}) == 1


@pytest.mark.parametrize("name", experiments)
def test_no_two_entries_of_an_experiment_have_one_label(name):
    for scale in experiments[name].scales.values():
        labels = [entry.label for entry in experiments[name](**scale).entries]
        assert len(set(labels)) == len(labels) > 0


def test_entries_are_those_of_the_settings_and_those_that_draw_are_started_first():
    assert [entry.label for entry in Vanishing().entries][:2] == ["mesu-180000", "mesu-1e+15"]
    assert PermutedMNIST().entries[0].label == "mesu"
    assert [entry.label for entry in Dynamics().entries] == ["mesu-1000", "mesu-10000", "mesu-100000", "mesu-inf"]
    assert [entry.label for entry in AnimalFamilies().entries][-3:] == ["sgd-0.005", "sgd-0.001", "sgd-0.0001"]
    assert [entry.label for entry in CIFAR().entries][:5] == ["mesu@1", "ewc@1", "si@1", "adam@1", "mesu@2"]
    first = sorted(PermutedMNIST().entries, key=lambda entry: -entry.cost)[:2]
    assert {entry.learner for entry in first} == {"mesu", "foo-vb"}
