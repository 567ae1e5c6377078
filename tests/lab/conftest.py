"""What tests of several rooms of the lab share."""

import pytest

from mesu.lab.report import page as page_module


@pytest.fixture
def words_only(monkeypatch):
    """Pages without pictures, which take a second each to draw."""
    monkeypatch.setattr(page_module, "panels", lambda table, pictures: [])
