"""The closed form: outputs as a Gaussian, by one pass of moments through a network, and the prediction made of them.

`follow` reads a module as a list of steps (`torch.fx`), `Steps` runs them on moments. The covariance of the outputs is walked
back through the last linear layers,

    J <- J W,   J <- J * slope,        covariance  sum over layers  J diag(own variance) J^T

as far as two forward passes pay for it. A likelihood then summarises a fixed set of outputs, which has exactly these means and
covariances and is made of the same few normals for every row.
"""

import operator
from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache
from math import prod
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from mesu.posterior import moments
from mesu.posterior.coverage import inside, owners
from mesu.posterior.likelihood import Categorical, Likelihood
from mesu.posterior.moments import RULES, Gaussian, Unknown, added, multiplied, reshaped
from mesu.posterior.results import Prediction

REMEDY = "Average draws instead: mesu.predict(net, x, samples=100)"
POINTS = 32  # outputs that the likelihood summarises
WIDEST = 64  # outputs whose covariance is worked out; more are taken to be independent
POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
PASSES = 2.0  # forward passes that walking back may cost


class At(NamedTuple):
    """The result of an earlier step, in a step's arguments."""

    name: str


class Step(NamedTuple):
    """One step of a network: what is called, with which arguments."""

    name: str
    kind: str  # "placeholder", "get_attr", "call_module", "call_function", "call_method" or "output"
    target: Any
    args: tuple
    kwargs: dict


class _Tracer(fx.Tracer):
    """Looks into modules of people's own, and takes those with a rule, and torch's, as one step."""

    proxy_buffer_attributes = True

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return type(m) in RULES or super().is_leaf_module(m, module_qualified_name)


class Whole(nn.Module):
    """A network with arguments of its forward fixed for good: what is traced."""

    def __init__(self, module: nn.Module, settings: dict[str, Any]) -> None:
        super().__init__()
        self.module, self.settings = module, settings

    def forward(self, x: Tensor) -> Any:
        """The network's output."""
        return self.module(x, **self.settings)


def follow(module: nn.Module, uncertain: Collection[str], settings: dict[str, Any]) -> list[Step]:
    """The steps of a module; their names of its parts begin with "module.".

    Args:
        module: The network at its means, in evaluation mode.
        uncertain: Names of the submodules that have uncertain parameters.
        settings: Arguments of its forward by name.

    Raises:
        TypeError: for what cannot be followed: the error names it, and the remedy.
    """
    for name, each in module.named_modules():
        if each._forward_hooks or each._forward_pre_hooks:
            raise Unknown(f"module {name!r} has hooks, which a closed form cannot run. {REMEDY}")
    for name, holders in owners(module).items():
        if len(holders) > 1:
            raise Unknown(f"parameter {name!r} is shared by {len(holders)} layers: their draws are the same. {REMEDY}")
    try:
        graph = _Tracer().trace(Whole(module, settings))
    except Exception as error:
        raise Unknown(
            f"the forward of {type(module).__name__} cannot be followed: it depends on values, or calls what torch.fx "
            f"cannot read ({type(error).__name__}: {error}). {REMEDY}"
        ) from error
    steps = []
    for node in graph.nodes:
        args, kwargs = map_arg((node.args, node.kwargs), lambda node: At(node.name))
        steps.append(Step(node.name, node.op, node.target, args, kwargs))
    for name, times in Counter(step.target for step in steps if step.kind == "call_module").items():
        if times > 1 and has_uncertain(name, uncertain):
            raise Unknown(f"layer {shown(name)} is called {times} times with the same weights. {REMEDY}")
    refuse_overwritten(module, steps)
    return maximum_first(module, steps)


# What may give its input as it is, or a view of it
VIEWS = (
    "view",
    "reshape",
    "flatten",
    "transpose",
    "permute",
    "squeeze",
    "unsqueeze",
    "contiguous",
    "getitem",
    "dropout",
)


def refuse_overwritten(module: nn.Module, steps: list[Step]) -> None:
    """Raise `Unknown` where an activation is changed in place and read again later: moments are never changed in place."""
    layers = {f"module.{name}": each for name, each in module.named_modules()}
    made = {step.name: step for step in steps}
    read = {name: place for place, step in enumerate(steps) for name in _needed(step)}  # where for the last time
    for place, step in enumerate(steps):
        name = str(getattr(step.target, "__name__", step.target))
        in_place = step.kwargs.get("inplace") or getattr(layers.get(name), "inplace", False)
        in_place = in_place or (step.kind in ("call_function", "call_method") and name.endswith("_"))
        in_place = in_place or step.target in (operator.iadd, operator.isub, operator.imul, operator.itruediv)
        changed = step.args[0] if in_place and step.args else step.kwargs.get("input") if in_place else None
        while isinstance(changed, At):
            if read[changed.name] > place:
                raise Unknown(
                    f"{shown(name)} changes an activation in place that is read again later: use inplace=False. {REMEDY}"
                )
            before = made[changed.name]
            kind = type(layers.get(str(before.target))).__name__.lower() if before.kind == "call_module" else ""
            called = str(getattr(before.target, "__name__", before.target))
            same = called in VIEWS or kind in ("flatten", "unflatten", "identity") or kind.startswith("dropout")
            changed = before.args[0] if same and before.args else None


def maximum_first(module: nn.Module, steps: list[Step]) -> list[Step]:
    """The same network with every maximum over positions before the ReLU that it follows: fewer moments to work out."""
    kinds = {f"module.{name}": type(each) for name, each in module.named_modules()}
    used = Counter(name for step in steps for name in _needed(step))
    places = {step.name: i for i, step in enumerate(steps)}
    for i, step in enumerate(steps):
        if kinds.get(str(step.target)) in POOLS and isinstance(step.args[0], At):
            before = places[step.args[0].name]
            if kinds.get(str(steps[before].target)) is nn.ReLU and used[steps[before].name] == 1:
                relu = steps[before].target
                steps[before], steps[i] = steps[before]._replace(target=step.target), step._replace(target=relu)
    return steps


def has_uncertain(target: str, uncertain: Collection[str]) -> bool:
    """Whether the module of a step, or one inside it, has uncertain parameters."""
    return any(inside(f"module.{name}" if name else "module", target) for name in uncertain)


def shown(target: str) -> str:
    """The name of a module in messages."""
    return repr(target.removeprefix("module").removeprefix(".") or "the network itself")


# -- functions and methods ----------------------------------------------------------------------------------------------


def _function(kind: type) -> Any:
    """A function as the layer that does the same, with the function's settings."""

    def run(x: Gaussian, *args: Any, **kwargs: Any) -> Gaussian:
        kwargs.pop("training", None)
        kwargs.pop("inplace", None)
        return RULES[kind](kind(*args, **kwargs).eval(), x)

    return run


def _reshape(name: str) -> Any:
    def run(x: Gaussian, *args: Any, **kwargs: Any) -> Gaussian:
        if name == "flatten" and x.mean.dim() == 2 and args == (1,):  # flat already
            return x
        in_order = name in ("flatten", "reshape", "view", "squeeze", "unsqueeze")
        return reshaped(x, lambda t: getattr(t, name)(*args, **kwargs), in_order)

    return run


def _plus(x: Any, y: Any, sign: float = 1.0) -> Gaussian:
    if sign != 1:
        y = multiplied(y, sign) if isinstance(y, Gaussian) else sign * y
    return added(x, y)


def _times(x: Any, y: Any) -> Gaussian:
    if isinstance(x, Gaussian) and isinstance(y, Gaussian):
        raise Unknown("a product of two uncertain activations")
    return multiplied(x, y) if isinstance(x, Gaussian) else multiplied(y, x)


def _over(x: Any, y: Any) -> Gaussian:
    if isinstance(y, Gaussian):
        raise Unknown("a division by an uncertain activation")
    return multiplied(x, 1 / y)


def _average(x: Gaussian, dim: Any = None, keepdim: bool = False) -> Gaussian:
    """The average over all positions; over anything else it is not known how it varies."""
    axes = tuple(sorted(d % x.mean.dim() for d in ((dim,) if isinstance(dim, int) else dim or ())))
    if axes != moments.positions(x.mean) or not axes:
        raise Unknown(f"a mean over the axes {dim}, and only that over all positions after batch and channels is known")
    pooled = moments.through_average(lambda t: t.mean(axes, keepdim=True), x)
    return pooled if keepdim else reshaped(pooled, lambda t: t.flatten(1), in_order=True)


def _size(x: Gaussian, *args: Any) -> Any:
    return x.mean.size(*args)


def _attribute(x: Gaussian, name: str) -> Any:
    if name not in ("shape", "ndim", "dtype", "device"):
        raise Unknown(f"the attribute {name!r}")
    return getattr(x.mean, name)


FUNCTIONS: dict[Any, Any] = {
    **dict.fromkeys((F.relu, torch.relu, "relu", "relu_", F.relu_, torch.relu_), _function(nn.ReLU)),
    **dict.fromkeys((F.tanh, torch.tanh, "tanh"), _function(nn.Tanh)),
    **dict.fromkeys((F.sigmoid, torch.sigmoid, "sigmoid"), _function(nn.Sigmoid)),
    F.gelu: _function(nn.GELU),
    F.silu: _function(nn.SiLU),
    F.elu: _function(nn.ELU),
    F.leaky_relu: _function(nn.LeakyReLU),
    F.softplus: _function(nn.Softplus),
    F.avg_pool1d: _function(nn.AvgPool1d),
    F.avg_pool2d: _function(nn.AvgPool2d),
    F.adaptive_avg_pool1d: _function(nn.AdaptiveAvgPool1d),
    F.adaptive_avg_pool2d: _function(nn.AdaptiveAvgPool2d),
    **dict.fromkeys((F.max_pool1d, torch.max_pool1d), _function(nn.MaxPool1d)),
    **dict.fromkeys((F.max_pool2d, torch.max_pool2d), _function(nn.MaxPool2d)),
    F.dropout: lambda x, *args, **kwargs: x,
    **dict.fromkeys((operator.add, operator.iadd, torch.add, "add", "add_"), _plus),
    **dict.fromkeys((operator.sub, torch.sub, "sub"), lambda x, y: _plus(x, y, -1.0)),
    **dict.fromkeys((operator.mul, torch.mul, "mul"), _times),
    **dict.fromkeys((operator.truediv, torch.div, "div"), _over),
    **dict.fromkeys((torch.mean, "mean"), _average),
    **dict.fromkeys((torch.flatten, "flatten"), _reshape("flatten")),
    **dict.fromkeys((torch.reshape, "reshape"), _reshape("reshape")),
    **dict.fromkeys((torch.permute, "permute"), _reshape("permute")),
    **dict.fromkeys((torch.transpose, "transpose"), _reshape("transpose")),
    **dict.fromkeys((torch.squeeze, "squeeze"), _reshape("squeeze")),
    **dict.fromkeys((torch.unsqueeze, "unsqueeze"), _reshape("unsqueeze")),
    "view": _reshape("view"),
    "contiguous": lambda x, *args, **kwargs: x,
    operator.getitem: lambda x, index: reshaped(x, lambda t: t[index]),
    "size": _size,
    "dim": lambda x: x.mean.dim(),
    getattr: _attribute,
}


# -- running ------------------------------------------------------------------------------------------------------------


def run(whole: nn.Module, steps: Sequence[Step], uncertain: Collection[str], x: Tensor) -> Any:
    """The output of the steps for an input ``[B, ...]``: a `Gaussian`, or a tensor where nothing is uncertain.

    Args:
        whole: What the steps' names begin at.
        steps: From `follow`.
        uncertain: As there.
        x: The input.
    """
    known: dict[str, Any] = {}
    last = {name: step.name for step in steps for name in _needed(step)}
    for step in steps:
        args, kwargs = pytree.tree_map_only(At, lambda at: known[at.name], (step.args, step.kwargs), is_leaf=_is_at)
        if step.kind == "output":
            return args[0]
        known[step.name] = x if step.kind == "placeholder" else _result(whole, step, uncertain, args, kwargs)
        for name in _needed(step):  # activations that are not needed any more
            if last[name] == step.name:
                known.pop(name, None)
    raise AssertionError("a graph ends with its output")


def _is_at(value: Any) -> bool:
    return isinstance(value, At)


def _needed(step: Step) -> list[str]:
    return [leaf.name for leaf in pytree.tree_leaves((step.args, step.kwargs), is_leaf=_is_at) if _is_at(leaf)]


def _result(whole: nn.Module, step: Step, uncertain: Collection[str], args: tuple, kwargs: dict) -> Any:
    """What one step gives."""
    plain = not any(isinstance(a, Gaussian) for a in pytree.tree_leaves((args, kwargs)))
    what = repr(getattr(step.target, "__name__", step.target))
    if step.kind == "get_attr":
        owner, _, leaf = step.target.rpartition(".")
        value = getattr(whole.get_submodule(owner), leaf)
        spread = moments.variance(whole.get_submodule(owner), leaf)
        return value if spread is None else Gaussian(value, spread)
    if step.kind == "call_module":
        layer: Any = whole.get_submodule(step.target)
        what = f"{shown(step.target)} ({type(layer).__name__})"
        if plain and not has_uncertain(step.target, uncertain):
            return layer(*args, **kwargs)
        function, args = RULES.get(type(layer)), (layer, *args)
    elif plain and step.kind == "call_method":
        return getattr(args[0], step.target)(*args[1:], **kwargs)
    else:
        function = step.target if plain else FUNCTIONS.get(step.target)
    if function is None:
        raise Unknown(f"no moments are known for {what}. {REMEDY}, or add a rule: mesu.posterior.moments.rule")
    try:
        return function(*args, **kwargs)
    except Unknown as error:
        raise Unknown(f"no moments are known for {what}: {error}. {REMEDY}") from error


# -- outputs ------------------------------------------------------------------------------------------------------------


def covariance(out: Gaussian) -> Tensor | None:
    """The covariance of outputs ``[B, C]``, walked back through the last layers; None if it would cost too much."""
    outs = moments.number(out.mean.shape[-1])
    if out.mean.dim() != 2 or out.made is None or out.made.weight is None or outs > WIDEST:
        return None
    cost, total, jacobian, x = 0, 0.0, None, out
    while x.made is not None:
        made, parent = x.made, x.made.parent
        if made.weight is not None:
            cost += 0 if jacobian is None else outs * moments.number(made.weight.numel())
            if cost > PASSES * out.work:
                break
            total = total + _with(jacobian, made.own)
            jacobian = made.weight.expand(out.mean.shape[0], -1, -1) if jacobian is None else jacobian @ made.weight
        elif made.slope is not None:
            jacobian = jacobian * made.slope[:, None]  # type: ignore[operator]
        elif parent is not None and parent.common is not None:
            return total + _with_common(jacobian, parent)
        else:
            break
        if parent is None:
            return total  # type: ignore[return-value]
        x = parent
    return total + _with(jacobian, x.var)


def _with(jacobian: Any, var: Any) -> Tensor:
    """J diag(var) J^T."""
    return moments.on_diagonal(var) if jacobian is None else (jacobian * var[:, None]) @ jacobian.transpose(1, 2)


def _with_common(jacobian: Any, x: Gaussian) -> Tensor:
    """The same for flattened channels and positions, which have a part of their variance in common."""
    together = moments.share_in_common(x)
    alone = x.var * moments.per_channel(1 - together, x.var)
    std = x.var.clamp_min(moments.TINY).sqrt().flatten(2)
    profile = std / std.mean(2, keepdim=True)
    channels = (jacobian.unflatten(2, profile.shape[1:]) * profile[:, None]).sum(3)
    return _with(jacobian, alone.flatten(1)) + channels @ x.common @ channels.transpose(1, 2)


def root(matrices: Tensor) -> Tensor:
    """Cholesky's L of ``[B, C, C]``, in plain operations, which every format can express."""
    columns, rest = [], matrices
    least = 10 * torch.finfo(matrices.dtype).eps * moments.diagonal(matrices) + moments.TINY
    for j in range(moments.number(matrices.shape[-1])):
        pivot = torch.maximum(rest[:, 0, 0], least[:, j])  # less is rounding
        column = rest[:, :, 0] * pivot.rsqrt()[:, None]
        columns.append(F.pad(column, (j, 0)))
        rest = rest[:, 1:, 1:] - column[:, 1:, None] * column[:, None, 1:]
    return torch.stack(columns, -1)


@lru_cache(maxsize=8)
def normals(outs: int) -> np.ndarray:
    """Fixed normals ``[POINTS / 2, outs]``; with their negatives the mean is 0, and the covariance the identity if it can be.

    A Latin hypercube: every output meets the same quantiles, in another order.
    """
    half = POINTS // 2
    quantiles = np.array([NormalDist().inv_cdf((i + 0.5) / half) for i in range(half)])
    order = np.random.RandomState(1)
    e = np.stack([quantiles[order.permutation(half)] for _ in range(outs)], 1)
    if outs < half:
        return e @ np.linalg.inv(np.linalg.cholesky(e.T @ e / half)).T
    return e / np.sqrt(np.square(e).mean(0))


def outputs(out: Gaussian) -> Tensor:
    """A fixed set of outputs ``[POINTS, B, ...]`` with the means and the covariances of a Gaussian."""
    spread, shape = covariance(out), [moments.number(size) for size in out.mean.shape[1:]]
    e = moments.constant(normals(prod(shape)).tolist(), out.mean)
    if spread is None:
        away = e.reshape(-1, 1, *shape) * out.var.clamp_min(moments.TINY).sqrt()
        return torch.cat([out.mean + away, out.mean - away])
    # the rows last, so that the many small sums of a softmax are done for several rows at a time
    away = torch.einsum("bij,sj->sib", root(spread), e).contiguous()
    mean = out.mean.T.contiguous()
    return torch.cat([mean + away, mean - away]).transpose(1, 2)


def summarised(likelihood: Likelihood, out: Tensor) -> Any:
    """What a likelihood makes of outputs ``[S, B, ...]``.

    For classes it is worked out here: `Categorical.summarise` guards against impossible classes, which finite outputs do not
    have, and takes several times longer.
    """
    if type(likelihood).summarise is not Categorical.summarise or out.dim() != 3:
        return likelihood.summarise(out)
    scores = out.transpose(1, 2)
    scores = scores - scores.amax(1, keepdim=True)
    e = scores.exp()
    sums = e.sum(1, keepdim=True)
    p = e / sums
    probs = p.mean(0)
    total = -(probs * probs.clamp_min(torch.finfo(probs.dtype).tiny).log()).sum(0)
    aleatoric = (sums.log()[:, 0] - (p * scores).sum(1)).mean(0)
    aleatoric = torch.minimum(aleatoric, total)  # Jensen's inequality, past rounding
    return Prediction(probs.T, total, aleatoric, total - aleatoric)
