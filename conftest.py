"""Names that docstring examples use without importing."""

import pytest

collect_ignore = ["src/mesu/avalanche.py"]  # needs Avalanche, which tests/test_avalanche.py looks for; it has no examples


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace):
    import numpy as np
    import torch
    from torch import nn

    import mesu

    doctest_namespace.update(np=np, mesu=mesu, torch=torch, nn=nn)
