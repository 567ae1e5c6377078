"""Vanishing uncertainty at small scale: without forgetting MESU is FOO-VB, and with it sigma is held."""

import pytest

from mesu.lab.data.catalogue import data_sets
from mesu.lab.data.finding import where
from mesu.lab.entry import Entry
from mesu.lab.experiments.vanishing.experiment import Vanishing


def needs(*names):
    """Skip where a data set would have to be fetched."""
    missing = [name for name in names if where(data_sets[name]) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not on this machine: {', '.join(missing)} (mesu data get)")


@needs("mnist", "fashion-mnist")
def test_without_forgetting_mesu_is_foo_vb_and_with_it_sigma_is_held():
    settings = Vanishing(epochs=1, epochs_per_stage=1)
    ends = {}
    for entry in (Entry("mesu", "memory", 180_000), Entry("mesu", "memory", 1e15), Entry("foo-vb")):
        own = {row.measure: row.value for row in settings.trial(entry, 0).stage(0)}
        assert own["accuracy"] > 0.93
        assert own["fashion_auroc"] > 0.85
        assert own["ood_auroc"] > 0.99
        assert 0.98 < own["published_auroc"] < own["ood_auroc"]
        assert own["published_aleatoric_auroc"] == pytest.approx(own["aleatoric_auroc"], abs=0.001)
        assert own["published_aleatoric_auroc"] < own["published_auroc"]
        ends[entry.label] = own
    endless, memory = ends["mesu-1e+15"]["layer_std"], ends["mesu-180000"]["layer_std"]
    assert ends["foo-vb"]["layer_std"] == pytest.approx(endless, rel=0.01)  # .0789 and .0787
    assert memory == pytest.approx(0.0591, rel=0.01)  # a narrow prior, 0.06, already pulls
