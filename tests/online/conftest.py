"""`made_up` can be imported by the tests of this folder; and a path for a model's file."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"
