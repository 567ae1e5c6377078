"""One thread for torch (workers share the cores) and one hypothesis profile: no clock, the same examples every run."""

import hypothesis
import pytest
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile("mesu", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("mesu")


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
