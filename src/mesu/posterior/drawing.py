"""Running a network with drawn weights: w = mu + sigma * e (eq. 11), one draw after the other or all in one batch."""

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.utils.parametrizations import _WeightNorm
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from mesu.posterior.draws import drawn_std
from mesu.posterior.inputs import CONVOLUTION
from mesu.posterior.layers import hooks_on_saved
from mesu.posterior.noise import Noise

# vmap has no batching rule for recurrent layers and attention, and turns drawn convolutions into slow grouped ones. For the
# others it warns and loops by itself.
LOOPED = (nn.RNNBase, nn.MultiheadAttention, *CONVOLUTION, nn.EmbeddingBag, nn.Bilinear, _WeightNorm)


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
    """Whether the samples of this network are better run as one batch.

    Not where there are hooks: what they keep (the weight of `torch.nn.utils.spectral_norm`, say) would be of no use after it.
    """
    return not any(isinstance(m, LOOPED) or m._forward_pre_hooks or m._forward_hooks for m in module.modules())


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


class _WithoutCheckpoints(TorchFunctionMode):
    """Refuses activation checkpoints: what runs again in the backward pass would do so without the drawn weights."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        hooks = hooks_on_saved(True)
        if hooks is not None and getattr(hooks[0], "__qualname__", "").startswith("_checkpoint_hook"):
            raise ValueError(
                "activation checkpointing runs parts of the network again in the backward pass, without the weights that were "
                "drawn: use estimator='linear' (the default), which draws none, or leave checkpointing off"
            )
        return func(*args, **(kwargs or {}))


def without_checkpoints() -> AbstractContextManager[Any]:
    """Refuse activation checkpoints inside, where a backward pass may follow."""
    if not torch.is_grad_enabled() or hooks_on_saved is None or torch.compiler.is_compiling():
        return nullcontext()
    return _WithoutCheckpoints()


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
    """Who may use a network's modules: one thread while it changes them, otherwise any number. A copy of it is a new lock.

    `functional_call` puts the drawn weights into the module for the time of the call, and a prediction puts the module into
    evaluation mode. Without the lock, a second thread that predicts, or reads the means to train or save them, would take the
    drawn weights of the first for the means. ``with turns`` is for the thread that changes something, ``with turns.shared()``
    for those that only read.
    """

    def __init__(self) -> None:
        self._state = threading.Condition(threading.Lock())  # held only to read and change what follows
        self._owner: int | None = None  # the thread that may change things, and how often it has asked to
        self._depth = 0
        self._readers: dict[int, int] = {}  # the same of threads that read
        self._waiting = 0  # threads that wait to change something: no new reader goes before them
        _all.add(self)

    def __enter__(self) -> None:
        self.take()

    def take(self, longest: float | None = None) -> bool:
        """Begin to change something, when no other thread uses the modules. False if that took longer than so many seconds."""
        me = threading.get_ident()
        with self._state:
            if self._owner != me:
                self._waiting += 1
                try:
                    free = self._state.wait_for(
                        lambda: self._owner is None and not self._readers.keys() - {me}, longest
                    )
                finally:
                    self._waiting -= 1
                if not free:
                    self._state.notify_all()  # readers that waited behind this thread
                    return False
                self._owner = me
            self._depth += 1
            return True

    def __exit__(self, *_: object) -> None:
        with self._state:
            self._depth -= 1
            if self._depth == 0:
                self._owner = None
                self._state.notify_all()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """For reading: beside other readers, but not while another thread changes something."""
        me = threading.get_ident()
        with self._state:
            if self._owner != me and me not in self._readers:
                self._state.wait_for(lambda: self._owner is None and not self._waiting)
            self._readers[me] = self._readers.get(me, 0) + 1
        try:
            yield
        finally:
            with self._state:
                self._readers[me] -= 1
                if not self._readers[me]:
                    del self._readers[me]
                    self._state.notify_all()

    def renew(self) -> None:
        """In a forked child: forget the threads that it does not have."""
        me = threading.get_ident()
        self._state, self._waiting = threading.Condition(threading.Lock()), 0
        self._readers = {thread: times for thread, times in self._readers.items() if thread == me}
        if self._owner != me:
            self._owner, self._depth = None, 0

    def __deepcopy__(self, memo: dict) -> "Turns":
        return Turns()

    def __reduce__(self) -> tuple:
        return Turns, ()


# A fork copies only the thread that calls it. It waits until no other thread has drawn weights in a module, for the child would
# take them for means; and the child has no locks that others held.
LONGEST = 60.0  # seconds that a fork waits at the most
_all: WeakSet[Turns] = WeakSet()
_taken: list[Turns] = []


def _before_fork() -> None:
    _taken.extend(turns for turns in _networks() if turns.take(LONGEST))


def _after_fork_in_parent() -> None:
    while _taken:
        _taken.pop().__exit__()


def _after_fork_in_child() -> None:
    for turns in _networks():
        turns.renew()
    _after_fork_in_parent()


def _networks() -> list[Turns]:
    while True:
        try:
            return list(_all)
        except RuntimeError:  # another thread has just made a network
            continue


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
