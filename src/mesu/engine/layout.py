"""The networks that the engine runs, multilayer perceptrons: how a module is read, and its weights as one flat array."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from mesu.engine.hidden_layers import PANEL, TILE, together, whole, words
from mesu.engine.kernels import Network, Work
from mesu.engine.noise import even
from mesu.posterior.layers import LOCAL_TWIN

CACHE_LINE = 64  # bytes
LINEAR = (nn.Linear, LOCAL_TWIN[nn.Linear])  # the second is what a Bayesian network makes of the first


@dataclass(frozen=True)
class Perceptron:
    """A stack of linear layers with one kind of activation between them."""

    sizes: tuple[int, ...]  # units of each layer, inputs first
    has_bias: bool
    tanh: bool
    layers: tuple[str, ...]  # names of the linear layers in the module

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters in the order in which the engine lays them out."""
        leaves = ("weight", "bias") if self.has_bias else ("weight",)
        return [f"{layer}.{leaf}" if layer else leaf for layer in self.layers for leaf in leaves]

    def network(self, batch: int, samples: int, precision: float) -> Network:
        """The layout that compiled code reads."""
        weights, biases, at = [], [], 0
        for inputs, outputs in zip(self.sizes, self.sizes[1:], strict=False):
            weights.append(at)
            at += inputs * outputs
            biases.append(at)
            at += outputs if self.has_bias else 0
        units = np.concatenate([[0], np.cumsum(self.sizes[1:])])
        return Network(
            sizes=np.array(self.sizes, dtype=np.int64),
            weights=np.array(weights, dtype=np.int64),
            biases=np.array(biases, dtype=np.int64),
            units=np.array(units, dtype=np.int64),
            has_bias=self.has_bias,
            tanh=self.tanh,
            batch=batch,
            samples=samples,
            precision=precision,
        )

    def work(self, batch: int, samples: int, normals: int, dtype) -> Work:
        """Scratch space for `normals` draws an update."""
        rows, widest = batch * samples, max(self.sizes)
        units = rows * sum(self.sizes[1:])
        hidden = self.sizes[1:]
        some = max(
            (min(k, together(n)) * whole(n) for n, k in zip(self.sizes[1:], self.sizes[2:], strict=False)), default=0
        )
        lengths = {
            "noise": even(normals),
            "q": units,
            "h": units,
            "d": units,
            "m": rows * max(hidden),
            "v": 2 * rows * max(hidden),
            "x2": batch * self.sizes[0],
            "upcoming2": batch * self.sizes[0],
            "down": rows * whole(widest),
            "down2": rows * whole(widest),
            "g_mean": max(widest, some),
            "g_std": max(widest, some),
            "var": widest,
            "h2": rows * max(hidden),
            "tile": TILE * PANEL,
            "tile2": TILE * PANEL,
            "panels": rows * whole(max(hidden), PANEL),
            "panels2": rows * whole(max(hidden), PANEL),
            "zeros": rows * widest,
        }
        return Work(
            marks=np.zeros(rows * words(max(hidden)), np.uint64),
            columns=np.zeros(words(rows) * max(hidden), np.uint64),
            **{name: aligned(length, dtype) for name, length in lengths.items()},
        )


def aligned(length: int, dtype) -> np.ndarray:
    """Zeros whose memory begins at a cache line: reading a vector across two lines costs twice."""
    size = np.dtype(dtype).itemsize
    room = np.zeros(length + CACHE_LINE // size, dtype)
    skip = -room.ctypes.data % CACHE_LINE // size
    return room[skip : skip + length]


def read_perceptron(module: nn.Module) -> Perceptron | str:
    """The perceptron that a module is, or the reason why the engine cannot run it.

    Types are compared exactly: a subclass may do anything in its `forward`.
    """
    parts: list = (
        list(module._modules.items()) if type(module) is nn.Sequential else [("", module)]
    )  # repeated ones, too
    linear, activations = [], []
    for name, part in parts:
        if any(part is layer for _, layer in linear):
            return f"its {type(part).__name__} {name!r} is used more than once"
        if "forward" in vars(part):
            return f"its {type(part).__name__} has been given another forward"
        if type(part) in LINEAR:
            if len(linear) != len(activations):
                return "two linear layers follow each other without an activation"
            linear.append((name, part))
        elif type(part) in (nn.ReLU, nn.Tanh) and len(activations) + 1 == len(linear):
            activations.append(type(part))
        elif not (type(part) is nn.Flatten and (part.start_dim, part.end_dim) == (1, -1) and not linear):
            return f"it has a {type(part).__name__} where only Linear, ReLU and Tanh layers can be"
    if "forward" in vars(module):
        return f"its {type(module).__name__} has been given another forward"
    if not linear:
        return "it has no linear layer"
    if len(activations) == len(linear):
        return "it ends in an activation"
    if len(set(activations)) > 1:
        return "it mixes ReLU and Tanh"
    if len({layer.bias is None for _, layer in linear}) > 1:
        return "some of its layers have biases and some have not"
    sizes = (linear[0][1].in_features, *(layer.out_features for _, layer in linear))
    return Perceptron(sizes, linear[0][1].bias is not None, nn.Tanh in activations, tuple(name for name, _ in linear))


def share_flat(tensors: Sequence[torch.Tensor]) -> np.ndarray:
    """One flat array that several tensors share as their memory: writing to one writes to the other.

    Tensors that already lie one after the other in one storage stay where they are; others are moved into a new one.
    """
    first, total = tensors[0], sum(t.numel() for t in tensors)
    at = first.data_ptr()
    together = True
    for tensor in tensors:
        together &= tensor.is_contiguous() and tensor.data_ptr() == at and tensor.dtype == first.dtype
        together &= tensor.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        at += tensor.numel() * tensor.element_size()
    if not together:
        flat = torch.cat([t.detach().reshape(-1) for t in tensors])
        for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.data = part.view_as(tensor)
    else:
        flat = first.detach().as_strided((total,), (1,))
    return flat.numpy()
