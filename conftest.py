"""Names that docstring examples use without importing."""

import pytest

# It needs Avalanche, which tests/test_avalanche.py looks for, and has no examples.
collect_ignore = ["src/mesu/avalanche.py"]


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace):
    import numpy as np
    import torch
    from torch import nn

    import mesu

    doctest_namespace.update(np=np, mesu=mesu, torch=torch, nn=nn)
