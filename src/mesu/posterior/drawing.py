"""Running a network with drawn weights: w = mu + sigma * e (eq. 11), one draw after the other or all in one batch."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from mesu.posterior.draws import drawn_std
from mesu.posterior.inputs import CONVOLUTION
from mesu.posterior.noise import Noise

# vmap has no batching rule for recurrent layers and attention, and turns drawn convolutions into slow grouped ones.
LOOPED = (nn.RNNBase, nn.MultiheadAttention, *CONVOLUTION)


def one_by_one(module: nn.Module, names: list[str], samples: int, noise: Noise, args: tuple, kwargs: dict) -> Any:
    """Outputs of `samples` networks, stacked, each from a forward pass of its own.

    Args:
        module: The network.
        names: Parameters whose values are drawn.
        samples: How many networks.
        noise: What they are drawn with.
        args: What the network is called with.
        kwargs: The same, by name.
    """
    outs = []
    for _ in range(samples):
        weights = _weights(module, names, _normals(module, names, noise))
        outs.append(functional_call(module, weights, args, kwargs))
    return pytree.tree_map(lambda *leaves: torch.stack(leaves), *outs)


def all_at_once(module: nn.Module, names: list[str], samples: int, noise: Noise, args: tuple, kwargs: dict) -> Any:
    """The same as `one_by_one`, in one batched forward pass."""
    draws = [_normals(module, names, noise) for _ in range(samples)]
    weights = _weights(module, names, [torch.stack(e) for e in zip(*draws, strict=True)])
    index = torch.arange(samples)  # gives vmap its axis when every layer draws its own outputs

    def one(weights, _):
        return functional_call(module, weights, args, kwargs)

    return vmap(one, randomness="different")(weights, index)


def vmap_is_faster(module: nn.Module) -> bool:
    """Whether the samples of this network are better run as one batch."""
    return not any(isinstance(m, LOOPED) for m in module.modules())


def is_vmap_refusal(error: Exception) -> bool:
    """Whether an error says that vmap cannot run an operation, and not that the operation is wrong."""
    text = str(error)
    return any(word in text for word in ("vmap", "Batching rule", "batching rule", "functorch"))


def _normals(module: nn.Module, names: list[str], noise: Noise) -> list[Tensor]:
    """One flat draw of standard normals for the named parameters, cut to their shapes."""
    means = [module.get_parameter(name) for name in names]
    if not means:
        return []
    flat = noise.normal((sum(m.numel() for m in means),), like=means[0])
    return [e.view(m.shape) for e, m in zip(flat.split([m.numel() for m in means]), means, strict=True)]


def _weights(module: nn.Module, names: list[str], eps: list[Tensor]) -> dict[str, Tensor]:
    """Eq. 11: w = mu + sigma * e."""
    weights = {}
    for name, e in zip(names, eps, strict=True):
        owner, _, leaf = name.rpartition(".")
        std: Any = drawn_std(module.get_submodule(owner), leaf)
        weights[name] = module.get_parameter(name) + std * e
    return weights


class _EveryCall(TorchFunctionMode):
    """Passes every torch function on as it is. While a mode is active, torch's attention takes its ordinary path."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@contextmanager
def ordinary_attention(module: nn.Module) -> Iterator[None]:
    """Keep attention layers off torch's fused inference path, in this thread only.

    The fused path reads the weights of the layers inside a transformer block and never calls those layers, so they could
    not draw their outputs. torch's own switch, `torch.backends.mha.set_fastpath_enabled`, is for the whole process.
    """
    if any(isinstance(m, nn.MultiheadAttention) for m in module.modules()):
        with _EveryCall():
            yield
    else:
        yield


class Turns:
    """A lock, taken while drawn weights stand in for a network's own. A copy of it is a new lock.

    `functional_call` puts the drawn weights into the module for the time of the call. Without the lock, a second thread
    that predicts, or reads the means to train or save them, would take the drawn weights of the first for the means.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __deepcopy__(self, memo: dict) -> "Turns":
        return Turns()

    def __reduce__(self) -> tuple:
        return Turns, ()
