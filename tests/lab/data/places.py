"""Where the tests of data sets look: an empty cache, and no MESU_DATA, whatever the machine has."""

import os

import pytest

from mesu.lab.data.catalogue import data_sets
from mesu.lab.data.finding import load, where

GIVEN = {name: os.environ.get(name) for name in ("MESU_DATA", "MESU_CACHE")}


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """An empty cache and no MESU_DATA, whatever the machine has."""
    monkeypatch.delenv("MESU_DATA", raising=False)
    monkeypatch.setenv("MESU_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("MESU_DATA", str(folder))
    return folder


@pytest.fixture
def real(monkeypatch):
    """The arrays of a real set, from where this machine has them; the test is skipped if it has not."""

    def arrays(name):
        for variable, value in GIVEN.items():
            monkeypatch.delenv(variable, raising=False) if value is None else monkeypatch.setenv(variable, value)
        known = data_sets[name]
        if where(known) is None:
            pytest.skip(f"{known.title} is neither in MESU_DATA nor in the cache: mesu data get {name}")
        return load(known)

    return arrays
