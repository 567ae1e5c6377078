"""Who learns: MESU, Adam, IVON and MC dropout, each at its default and at the same number of other settings."""

import importlib
import importlib.util
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mesu

# The first setting is the default: Adam's and IVON's rate (IVON has none; 0.1 is its authors' example), MESU's memory.
SETTINGS = {
    "adam": (1e-3, 3e-4, 3e-3),
    "mesu": (10_000, 3_000, 100_000),
    "ivon": (0.1, 0.03, 0.3),
    "dropout": (1e-3,),  # Adam's default rate
}
DROPPED = 0.1  # share of the inputs of each layer but the first
DRAWS = 20


def missing(learner: str) -> str | None:
    """Why a learner cannot be had, or None."""
    if learner == "ivon" and importlib.util.find_spec("ivon") is None:
        return "ivon-opt is not installed: pip install -e '.[bench]'"
    return None


class Learner:
    """A network and its optimiser.

    Args:
        learner: A key of `SETTINGS`.
        setting: One of its settings.
        net: A network that nothing has trained.
        seed: Seed of the posterior's noise.
        rows: Examples that it will see in an epoch.
    """

    def __init__(self, learner: str, setting: float, net: nn.Module, seed: int, rows: int) -> None:
        self.learner, self.net, self.optimizer = learner, net, None
        optimizer: Any
        if learner == "mesu":
            posterior = mesu.Bayesian(net, seed=seed)
            self.net, optimizer = posterior, mesu.MESU(posterior, memory=setting)
        elif learner == "ivon":
            ivon = importlib.import_module("ivon")

            optimizer = ivon.IVON(net.parameters(), lr=setting, ess=rows)
        else:
            optimizer = torch.optim.Adam(net.parameters(), lr=setting)
        if learner == "dropout":
            layers = [m for m in net.modules() if isinstance(m, (nn.Linear, nn.Conv2d, nn.RNNBase))]
            for layer in layers[1:]:
                layer.register_forward_pre_hook(_drop)
        self.optimizer: Any = optimizer

    def learn(self, x: Tensor, y: Tensor) -> None:
        """One update."""
        net: Any = self.net
        with self.optimizer.sampled_params(train=True) if self.learner == "ivon" else nullcontext():
            cost = net.nll(x, y) if self.learner == "mesu" else F.cross_entropy(net(x), y)
            cost.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def predict(self, x: Tensor) -> mesu.Prediction:
        """A prediction, averaged over draws where the learner has any."""
        if self.learner == "mesu":
            return mesu.predict(self.net, x, samples=DRAWS)
        torch.manual_seed(0)  # IVON and dropout draw from torch's own generator
        draw: Callable[[], Any] = self.optimizer.sampled_params if self.learner == "ivon" else nullcontext
        outs = []
        with torch.no_grad():
            for _ in range(1 if self.learner == "adam" else DRAWS):
                with draw():
                    outs.append(torch.cat([self.net(part) for part in x.split(500)]))
        return mesu.Prediction.from_scores(torch.stack(outs))


def _drop(layer: nn.Module, inputs: tuple) -> tuple:
    return (F.dropout(inputs[0], DROPPED), *inputs[1:])
