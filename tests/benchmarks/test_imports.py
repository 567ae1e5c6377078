"""Every benchmark can be imported: what it takes from the library and from the others is there."""

import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
MODULES = sorted(path.relative_to(FOLDER.parent).with_suffix("") for path in FOLDER.rglob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_it_can_be_imported(module, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))  # as for those that are run by their path
    if module.name != "__main__":
        importlib.import_module(".".join(module.parts))
