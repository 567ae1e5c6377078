"""Inputs, targets and outputs that the cost refuses, and what the error says."""

import pytest
import torch
from torch import nn

import mesu


def test_inputs_and_targets_must_be_tensors():
    net = mesu.Bayesian(nn.Linear(2, 2), seed=0)
    with pytest.raises(TypeError, match="inputs must be a tensor, got list"):
        net.nll([[0.0, 1.0]], torch.tensor([0]))
    with pytest.raises(TypeError, match="targets must be a tensor, got list"):
        net.nll(torch.zeros(1, 2), [0])


def test_a_network_that_gives_a_tuple_is_told_what_the_cost_wants():
    net = mesu.Bayesian(nn.LSTM(2, 3, batch_first=True), seed=0)
    before = net.noise.state
    with pytest.raises(TypeError, match="gives a tuple, and the cost wants one tensor"):
        net.nll(torch.zeros(4, 5, 2), torch.zeros(4, dtype=torch.long))
    assert torch.equal(net.noise.state, before)


def test_labels_of_a_sequence_must_lie_as_torch_wants_them():
    net = mesu.Bayesian(nn.Linear(2, 3), seed=0)  # [batch, time, classes]
    with pytest.raises(
        ValueError, match=r"labels of shape \(4, 7\) do not fit outputs of shape \(4, 7, 3\): classes are on"
    ):
        net.nll(torch.zeros(4, 7, 2), torch.zeros(4, 7, dtype=torch.long))
    with pytest.raises(ValueError, match=r"labels of shape \(4, 1\) do not fit outputs of shape \(4, 3\)"):
        net.nll(torch.zeros(4, 2), torch.zeros(4, 1, dtype=torch.long))


def test_a_head_of_one_is_told_that_a_choice_of_two_needs_two():
    net = mesu.Bayesian(nn.Linear(2, 1), seed=0)
    with pytest.raises(ValueError, match="an output for every class, and two for a choice of two"):
        net.nll(torch.zeros(4, 2), torch.ones(4, dtype=torch.long))
