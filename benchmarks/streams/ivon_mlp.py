"""IVON, a variational optimiser for torch, on a perceptron of 50 hidden units: `pip install 'mesu[bench]'`.

Settings are those of its README: an effective sample size of as many examples as there are (here the length of the stream,
which it is given), one draw an update, and the defaults for the rest. Predictions average several draws. Only its rate is
lower, 0.01 instead of 0.1: with a row at a time 0.1 ends at 23 % on permuted digits, and at NaN on two of the
streams of numbers.
"""

import importlib.util
from typing import Any

import numpy as np
import torch
from benchmarks.streams.adapters import Running
from benchmarks.streams.data import Stream
from torch import nn
from torch.nn import functional as F

RATE = 0.01
HIDDEN = 50
DRAWS = 10  # of a prediction; MESU has 64, but in torch each costs a pass of its own


def installed() -> bool:
    """Whether the optional package is there."""
    return importlib.util.find_spec("ivon") is not None


class IVONPerceptron:
    """One hidden layer; rows, and the targets of a regression, are standardised as they come."""

    takes_dicts = False

    def __init__(self, stream: Stream, seed: int) -> None:
        import ivon

        torch.manual_seed(seed)
        self.classes = None if stream.regression else stream.classes
        outputs = 1 if self.classes is None else len(self.classes)
        self.number = {label: i for i, label in enumerate(self.classes or ())}
        self.net = nn.Sequential(nn.Linear(len(stream.columns), HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs))
        self.optimizer = ivon.IVON(self.net.parameters(), lr=RATE, ess=len(stream))
        self.inputs, self.targets = Running(), Running()

    def predict(self, x: np.ndarray) -> Any:
        """The probability of each label, or the number that is expected."""
        if not self.inputs.rows:
            return 0.0 if self.classes is None else {}
        z = self._scaled(x)
        total = torch.zeros(1, 1 if self.classes is None else len(self.classes))
        with torch.no_grad():
            for _ in range(DRAWS):
                with self.optimizer.sampled_params():
                    out = self.net(z)
                    total += out if self.classes is None else out.softmax(1)
        mean = (total[0] / DRAWS).tolist()
        return self.targets.back(mean[0]) if self.classes is None else dict(zip(self.classes, mean, strict=True))

    def learn(self, x: np.ndarray, y: Any) -> None:
        """One update on one row."""
        self.inputs.follow(x)
        z = self._scaled(x)
        with self.optimizer.sampled_params(train=True):
            self.optimizer.zero_grad()
            out = self.net(z)
            if self.classes is None:
                self.targets.follow(y)
                loss = 0.5 * (out - self.targets.scaled(y)).square().sum()
            else:
                loss = F.cross_entropy(out, torch.tensor([self.number[y]]))
            loss.backward()
        self.optimizer.step()

    def _scaled(self, x: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(self.inputs.scaled(x).astype(np.float32))
