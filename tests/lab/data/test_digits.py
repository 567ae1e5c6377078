"""The digits of scikit-learn."""

import importlib
from dataclasses import replace

import numpy as np
import pytest
from tests.lab.data.made_up import described

from mesu.lab import data
from mesu.lab.data.published import DamagedData


def test_digits_are_checked(monkeypatch):
    digits_module = importlib.import_module("mesu.lab.data.digits")
    contents = described({"images": np.zeros((1797, 8, 8), np.uint8), "labels": np.zeros(1797, np.uint8)})
    monkeypatch.setattr(digits_module, "DIGITS", replace(digits_module.DIGITS, contents=contents))
    with pytest.raises(DamagedData, match="scikit-learn does not hold Digits: array images has other bytes"):
        data.digits()
