"""settings.json: read as it was written, and refused where it is wrong."""

import json
from dataclasses import replace

import pytest
from tests.lab.runs.tiny import TINY

from mesu.lab.experiments import experiments
from mesu.lab.runs.run import Run

pytestmark = pytest.mark.usefixtures("quick")


WRONG_SETTINGS = {
    "nothing": "",
    "half": '{"experiment": "permuted-digits", "settings": {"tasks"',
    "a list": "[1, 2]",
    "endless": "[" * 100_000,
    "no experiment": {"settings": {}},
    "a list of experiments": {"experiment": ["permuted-digits"], "settings": {}},
    "an unknown experiment": {"experiment": "permuted-cats", "settings": {}},
    "no settings": {"experiment": "permuted-digits"},
    "settings in a list": {"experiment": "permuted-digits", "settings": [1]},
    **{
        f"{name}={value!r}": {"experiment": "permuted-digits", "settings": {name: value}}
        for name, value in (
            ("task", 3),
            ("tasks", "three"),
            ("tasks", 2.5),
            ("tasks", None),
            ("tasks", True),
            ("tasks", -1),
            ("learners", "mesu"),
            ("learners", [1]),
            ("learners", ["cat"]),
            ("memory", 5),
            ("memory", ["long"]),
            ("prior_std", "wide"),
            ("prior_std", -1.0),
            ("update", 3),
        )
    },
}


@pytest.mark.parametrize("what", WRONG_SETTINGS)
def test_a_wrong_settings_file_is_refused(what, tmp_path, refused):
    path = tmp_path / "run" / "settings.json"
    path.parent.mkdir()
    content = WRONG_SETTINGS[what]
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    said = refused("resume", path.parent, "--workers", 1)
    assert len(said) > 20
    out = tmp_path / "out"
    said = refused("run", "permuted-digits", "--workers", 1, "--settings-file", path, "--out", out)
    assert len(said) > 20
    assert not out.exists()
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("name", experiments)
def test_settings_of_every_experiment_and_scale_are_read_as_they_were_written(name, tmp_path):
    for scale in ("smoke", "small", "paper"):
        settings = experiments[name](**experiments[name].scales[scale])
        run = Run.open(Run.create(settings, tmp_path).folder)
        assert run.settings == settings
        assert run.stages_done() == 0
        assert len(run.jobs) == len(settings.entries) * settings.seeds


def test_settings_files_keep_an_endless_memory(tmp_path):
    settings = replace(TINY, memory=(180_000.5, float("inf"), 5))
    assert Run.open(Run.create(settings, tmp_path).folder).settings == settings
