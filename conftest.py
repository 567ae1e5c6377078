"""Names that docstring examples use without importing."""

import pytest


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace):
    import torch
    from torch import nn

    import mesu

    doctest_namespace.update(mesu=mesu, torch=torch, nn=nn)
