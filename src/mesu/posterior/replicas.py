"""Training on several processes at once, each with a copy of the network and rows of its own (DistributedDataParallel, DDP).

The cost of all rows is the sum of what the processes have, and so is its gradient; sigma's, which is sigma h, adds up like the
mean's. DDP takes the mean over processes instead. `summed` undoes that: it multiplies the gradient of each process's cost by
their number, wherever the cost is made inside of DDP's forward, which is also what makes DDP exchange gradients at all.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mesu.posterior.noise import Noise

FAR = 0x9E3779B97F4A7C15  # odd, so that every rank's seed differs from all others (2**64 over the golden ratio)


def active_ddp() -> Any:
    """The DDP whose forward is running, if there is one and it has company."""
    if torch.compiler.is_compiling():
        return None
    ddp: Any = getattr(DistributedDataParallel, "_active_ddp_module", None)
    return ddp if ddp is not None and ddp.process_group.size() > 1 else None


def summed(cost: Tensor) -> Tensor:
    """The same cost, with a gradient whose mean over the processes is the sum of theirs."""
    ddp = active_ddp()
    if ddp is None or not cost.requires_grad:
        return cost
    return cost + (ddp.process_group.size() - 1) * (cost - cost.detach())


def noise_of_rank(noise: Noise) -> Noise | None:
    """A noise of this process's own, where it is one of several; None for the first, which keeps what it has."""
    ddp = active_ddp()
    if ddp is None or ddp.process_group.rank() == 0:
        return None
    generator = torch.Generator(noise.generator.device)
    generator.set_state(noise.generator.get_state())  # a copy: one draw of it follows what was saved, but moves nothing
    seed = int(torch.randint(2**62, (1,), generator=generator, device=generator.device).item())
    return Noise((seed + ddp.process_group.rank() * FAR) % 2**63)


def refuse_unsynchronised(net: Any) -> None:
    """Raise `RuntimeError` for a cost whose gradients the processes would not exchange."""
    together = torch.distributed.is_available() and torch.distributed.is_initialized()
    alone = not together or torch.distributed.get_world_size() == 1
    if alone or torch.compiler.is_compiling() or not torch.is_grad_enabled() or active_ddp() is not None:
        return
    raise RuntimeError(
        f"this {type(net).__name__} is wrapped by DistributedDataParallel, and ddp.module.nll goes past it: each process would "
        "learn from its own rows alone. Wrap the cost, ddp = DistributedDataParallel(mesu.Cost(net)), and call ddp(x, y)"
    )


class Cost(nn.Module):
    """The cost of a posterior as a module, ``Cost(net)(x, y)`` is ``net.nll(x, y)``: for wrappers that only see `forward`.

    In DistributedDataParallel the processes' gradients are summed, not averaged, as the rule needs it: two processes with half
    a batch each move the weights as one process with the whole.

    Args:
        net: A `Bayesian`; it is not copied.

    Example:
        >>> net = mesu.Bayesian(nn.Linear(4, 3), seed=0)
        >>> cost = mesu.Cost(net)  # on several processes: ddp = DistributedDataParallel(mesu.Cost(net))
        >>> cost(torch.ones(1, 4), torch.tensor([2])).backward()
    """

    def __init__(self, net: Any) -> None:
        super().__init__()
        if not callable(getattr(net, "nll", None)):
            raise TypeError(f"Cost takes a mesu.Bayesian, got {type(net).__name__}")
        self.net = net

    def forward(self, x: Tensor, y: Tensor, samples: int | None = None, **kwargs) -> Tensor:
        """As `Bayesian.nll`."""
        return self.net.nll(x, y, samples=samples, **kwargs)
