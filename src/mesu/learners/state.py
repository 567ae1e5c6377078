"""The whole state of a learner as named tensors: weights, sigmas, the noise counter, and what the rule keeps.

A learner that is restored from them goes on bit for bit.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

KEPT = "optimizer"  # the rule's tensors are called optimizer.<number of the parameter>.<name>
INNER = "inner"  # those of an inner optimiser, which moves the weights for the rule: inner.<number>.<name>


def device_of(net: nn.Module) -> torch.device:
    """The device that a network is on."""
    return next(net.parameters()).device


def check_moves(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Refuse an optimiser that was made for another network: it moves none of this one's parameters."""
    ours = {id(parameter) for parameter in net.parameters()}
    if not any(id(parameter) in ours for group in optimizer.param_groups for parameter in group["params"]):
        raise ValueError("the optimiser moves no parameter of this network: make it with the network that is to learn")


def tensors_of(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Copies of all tensors that a later update depends on."""
    tensors = {name: value.detach().clone() for name, value in net.state_dict().items()}
    saved = optimizer.state_dict()
    for prefix, state in ((KEPT, saved["state"]), (INNER, saved.get("inner", {}).get("state", {}))):
        for number, kept in state.items():
            for name, value in kept.items():
                tensors[f"{prefix}.{number}.{name}"] = torch.as_tensor(value).detach().clone()
    return tensors


def restore(net: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Make the network and its rule what they were when `tensors_of` was called.

    Raises:
        ValueError: if the tensors belong to another network. Nothing has changed then.
    """
    states: dict[str, dict[int, dict[str, Tensor]]] = {KEPT: {}, INNER: {}}
    weights: dict[str, Tensor] = {}
    for name, value in tensors.items():
        prefix, _, rest = name.partition(".")
        number, _, field = rest.partition(".")
        if prefix in states and number.isdigit() and name not in net.state_dict():
            states[prefix].setdefault(int(number), {})[field] = value.clone()
        else:
            weights[name] = value
    before = {name: value.clone() for name, value in net.state_dict().items()}
    try:
        net.load_state_dict(weights)
    except RuntimeError as error:
        net.load_state_dict(before)  # what fits has been copied by then
        raise ValueError(f"the saved state belongs to another network: {error}") from error
    saved = {**optimizer.state_dict(), "state": states[KEPT]}
    if "inner" in saved:
        saved["inner"] = {**saved["inner"], "state": states[INNER]}
    optimizer.load_state_dict(saved)
