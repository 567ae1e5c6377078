"""What a learner is at one moment, as named tensors: weights, sigmas, noise, and what the rule keeps. Enough to go on from."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

KEPT = "optimizer"  # tensors of the rule are called optimizer.<number of the parameter>.<name>


def tensors_of(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Copies of all tensors that a later update depends on."""
    tensors = {name: value.detach().clone() for name, value in net.state_dict().items()}
    for number, kept in optimizer.state_dict()["state"].items():
        for name, value in kept.items():
            tensors[f"{KEPT}.{number}.{name}"] = torch.as_tensor(value).detach().clone()
    return tensors


def restore(net: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Make the network and its rule what they were when `tensors_of` was called.

    Raises:
        ValueError: if the tensors belong to another network. Nothing has changed then.
    """
    kept: dict[int, dict[str, Tensor]] = {}
    weights: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if name.startswith(f"{KEPT}."):
            _, number, field = name.split(".", 2)
            kept.setdefault(int(number), {})[field] = value.clone()
        else:
            weights[name] = value
    before = {name: value.clone() for name, value in net.state_dict().items()}
    try:
        net.load_state_dict(weights)
    except RuntimeError as error:
        net.load_state_dict(before)  # what fits has been copied by then
        raise ValueError(f"the saved state belongs to another network: {error}") from error
    optimizer.load_state_dict({**optimizer.state_dict(), "state": kept})
