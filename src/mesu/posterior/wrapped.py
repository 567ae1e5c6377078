"""Which posterior stands behind a module: torch's wrappers are looked through, and anything else that hides one is refused.

A wrapper runs the network's forward, which draws weights once. Whoever took it for a plain network would average a hundred
identical predictions and find no epistemic uncertainty at all.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from torch.fx import GraphModule
from torch.optim.swa_utils import AveragedModel

from mesu.posterior.bayesian import Bayesian

WRAPPERS = (nn.parallel.DistributedDataParallel, nn.DataParallel, AveragedModel)

_locks: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()  # of plain networks while they predict


def unwrapped(net: nn.Module) -> nn.Module:
    """The network itself, without what torch has wrapped around it: `torch.compile`, DDP, DataParallel or AveragedModel."""
    while True:
        compiled = net._modules.get("_orig_mod")  # of torch.compile, whose class is slow to import
        if compiled is not None:
            net = compiled
        elif isinstance(net, WRAPPERS):
            net = net.module
        else:
            return net


def posterior_or_plain(net: nn.Module) -> nn.Module:
    """The posterior that a network is or wraps, or the network if there is no posterior in it.

    Raises:
        TypeError: if it is no module.
        ValueError: if a posterior is hidden in it, whose draws its forward would not show.
    """
    if not isinstance(net, nn.Module):
        raise TypeError(f"the network must be an nn.Module, got {type(net).__name__}")
    net = unwrapped(net)
    if isinstance(net, Bayesian):
        return net
    kind = type(net).__name__
    if isinstance(net, GraphModule) and _has_sigmas(net):
        raise ValueError(
            f"this {kind} was exported from a mesu.Bayesian and shows one draw of it at a time, so it has no epistemic "
            "uncertainty: predict with the mesu.Bayesian itself"
        )
    name = next((name for name, part in net.named_modules() if isinstance(part, Bayesian)), None)
    if name is None:
        return net
    if "FullyShardedDataParallel" in (each.__name__ for each in type(net).__mro__):
        raise ValueError(
            f"this {kind} holds a mesu.Bayesian whose weights are in pieces on several processes: predict with its .module "
            "inside of FullyShardedDataParallel.summon_full_params(net)"
        )
    raise ValueError(
        f"this {kind} has a mesu.Bayesian inside, at {name!r}. Running it would draw those weights once and show no epistemic "
        f"uncertainty: predict with that part, or make one mesu.Bayesian of the whole network"
    )


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """In evaluation mode, and alone with the network: threads that train a posterior wait, and so do others that predict."""
    with net._turns if isinstance(net, Bayesian) else _locks.setdefault(net, threading.RLock()):
        modes = {module: module.training for module in net.modules()}
        net.eval()
        try:
            yield
        finally:
            for module, mode in modes.items():
                module.training = mode


def _has_sigmas(net: nn.Module) -> bool:
    """Whether parameters stand beside others of the same shape that are named as their standard deviations."""
    shapes = {name: parameter.shape for name, parameter in net.named_parameters()}
    return any(
        name.endswith("_std") and shapes.get(name.removesuffix("_std")) == shape for name, shape in shapes.items()
    )
