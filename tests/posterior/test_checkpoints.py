"""Activation checkpointing: the same gradients as without it, or refused."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import mesu


class Deep(nn.Module):
    """Blocks that may be run again in the backward pass instead of being kept."""

    def __init__(self, again):
        super().__init__()
        self.again = again
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6)),
                nn.Sequential(nn.LayerNorm(6), nn.Dropout(0.3), nn.Linear(6, 6), nn.GELU()),
            ]
        )
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.head(x)


def both(**settings):
    plain = Deep(False).double()
    again = copy.deepcopy(plain)
    again.again = True
    return [mesu.Bayesian(module, seed=0, **settings) for module in (plain, again)]


def test_the_default_is_the_same_with_checkpoints():
    x, y = torch.randn(5, 4).double(), torch.randint(3, (5,))
    plain, again = both()
    for net in (plain, again):
        opt = mesu.MESU(net, memory=1000)
        torch.manual_seed(1)
        for labels in (1, 2, 3):
            net.nll(x, y, samples=labels).backward()
            opt.step()
            opt.zero_grad()
    start = both()[0]
    assert not torch.equal(plain.module.head.weight, start.module.head.weight)
    for (name, one), other in zip(plain.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other), name


@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("estimator", ["local", "weights"])
def test_draws_are_refused_for_they_could_not_be_drawn_again(estimator, vectorize):
    x, y = torch.randn(5, 4).double(), torch.randint(3, (5,))
    plain, again = both(estimator=estimator, vectorize=vectorize)
    before = again.noise.state
    with pytest.raises(ValueError, match=r"activation checkpointing.*use estimator='linear'"):
        again.nll(x, y, samples=2)
    assert torch.equal(again.noise.state, before)
    plain.nll(x, y, samples=2).backward()
    with torch.autograd.graph.save_on_cpu():  # which keeps what it saves, and only moves it
        plain.nll(x, y, samples=2).backward()
    assert torch.equal(mesu.predict(again, x, samples=3).probs, mesu.predict(plain, x, samples=3).probs)
