"""What the engine can run (`why_not`), and the checks of a chunk before it is learned.

The engine runs only what it knows exactly. It leaves to torch a layer, an optimiser or a likelihood that somebody has derived
from a known one with methods of their own, whatever has hooks, and a rule that cannot be compiled.
"""

import itertools
import sys
import warnings
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules import module as everywhere

from mesu.engine.compiled import NotCompilable, in_precision
from mesu.engine.deterministic import MOST_STATE
from mesu.engine.layout import Perceptron, read_perceptron
from mesu.optim import PosteriorOptimizer, WeightOptimizer
from mesu.posterior.bayesian import AT_MEAN, Bayesian
from mesu.posterior.likelihood import Categorical, GaussianNoise
from mesu.rules.parts import remembers, rule_of, scaled_constants

# What the engine does in the place of these classes: a subclass may have anything else of its own, but not these.
NETWORK = ("__call__", "forward", "at_mean", "nll", "sample", "pairs")
LIKELIHOOD = ("check", "nll", "sample", "drawn_nll", "summarise")
POSTERIOR_OPTIMIZER = ("step", "rule", "constants", "_moved")
WEIGHT_OPTIMIZER = ("step", "constants", "rule_state", "_follow")
MODULE_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
PARAMETER_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
GLOBAL_HOOKS = tuple("_global" + hooks for hooks in MODULE_HOOKS)
GLOBAL_OPTIMIZER_HOOKS = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")
OPTIMIZER_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


optimizers = sys.modules[torch.optim.Optimizer.__module__]  # a module; torch.optim gives its name to something else


class EngineFallback(UserWarning):
    """A network that the engine cannot run learns on the (slower) torch path."""


def why_not(net: nn.Module, optimizer: Any) -> str | None:
    """Why the engine cannot run this network under this optimiser; None if it can."""
    module = net.module if isinstance(net, Bayesian) else net
    shape = read_perceptron(module)
    if isinstance(shape, str):
        return shape
    reason = (
        why_not_hooks(net, optimizer)
        or _why_not_groups(optimizer)
        or _why_not_memory(module)
        or (_why_not_posterior(net, optimizer, shape) if isinstance(net, Bayesian) else _why_not_weights(optimizer))
    )
    return reason or _why_not_parameters(module, optimizer)


def why_not_hooks(net: nn.Module, optimizer: Any) -> str | None:
    """Why hooks keep the engine from running: it would not call them."""
    if any(getattr(everywhere, hooks, None) for hooks in GLOBAL_HOOKS):
        return "there are hooks on all modules, which only torch calls"
    if any(getattr(optimizers, hooks, None) for hooks in GLOBAL_OPTIMIZER_HOOKS):
        return "there are hooks on all optimisers, which only torch calls"
    if any(getattr(part, hooks, None) for part in net.modules() for hooks in MODULE_HOOKS):
        return "it has hooks on its layers, which only torch calls"
    if any(getattr(parameter, hooks, None) for parameter in net.parameters() for hooks in PARAMETER_HOOKS):
        return "it has hooks on its parameters, which only torch calls"
    if any(getattr(optimizer, hooks, None) for hooks in OPTIMIZER_HOOKS):
        return f"there are hooks on {type(optimizer).__name__}, which only torch calls"
    return None


def _why_not_groups(optimizer: Any) -> str | None:
    if len(optimizer.param_groups) != 1:
        return "its parameters are in several groups with settings of their own (max_std='start' makes them: give a number)"
    return None


def _why_not_posterior(net: Bayesian, optimizer: Any, shape: Perceptron) -> str | None:
    if not isinstance(optimizer, PosteriorOptimizer):
        return f"{type(optimizer).__name__} is not a posterior rule"
    reason = why_not_likelihood(net.likelihood)
    if reason:
        return reason
    if sorted(pair.name for pair in net.pairs()) != sorted(shape.parameters):
        return "some of its parameters are deterministic"
    if net.estimator == "joint" and (type(net.likelihood) is not GaussianNoise or shape.sizes[-1] != 1):
        return "estimator='joint' is for one number"
    own = replaced(net, Bayesian, NETWORK)
    if own:
        return f"{type(net).__name__} has a {own} of its own, which only torch runs"
    if optimizer.param_groups[0]["curvature"] != (net.estimator in AT_MEAN):
        return (
            f"its optimiser was made for another estimator than {net.estimator!r}: make it after the estimator is set"
        )
    if net.narrowing != 1 and net.estimator not in AT_MEAN:
        return f"its draws are narrower than its sigmas (narrowing={net.narrowing:g}), which only estimator='linear' compiles"
    return _why_not_rule(optimizer, PosteriorOptimizer, POSTERIOR_OPTIMIZER) or _why_not_starts(net, optimizer)


def why_not_likelihood(likelihood: Any) -> str | None:
    """Why the engine's cost would not be this likelihood's."""
    kind = type(likelihood).__name__
    if type(likelihood) not in (Categorical, GaussianNoise):
        return f"its likelihood, {kind}, has no compiled form"
    own = next((name for name in LIKELIHOOD if name in vars(likelihood)), None)
    if own:
        return f"its likelihood, {kind}, has been given another {own}"
    if isinstance(likelihood, Categorical) and not likelihood.plain:
        return "its likelihood weighs, smooths or leaves out labels, which only torch does"
    return None


def _why_not_starts(net: Bayesian, optimizer: Any) -> str | None:
    """Constants in units of where each sigma started need a start."""
    constants = optimizer.constants(optimizer.param_groups[0])
    in_units = scaled_constants(constants, 1.0) != scaled_constants(constants, 2.0)
    unknown = [pair.name for pair in net.pairs() if pair.start is None]
    if in_units and unknown:
        return f"its rule has settings in units of where each sigma started, which is not known of {', '.join(unknown)}"
    return None


def _why_not_weights(optimizer: Any) -> str | None:
    if not isinstance(optimizer, WeightOptimizer):
        return f"there is no compiled rule for {type(optimizer).__name__}"
    reason = _why_not_rule(optimizer, WeightOptimizer, WEIGHT_OPTIMIZER)
    if reason:
        return reason
    if optimizer.inner is not None:
        return f"{type(optimizer.inner).__name__} moves its weights"
    if len(optimizer.file.State._fields) > MOST_STATE:
        return f"its rule remembers more than {MOST_STATE} numbers of a weight"
    return None


def _why_not_rule(optimizer: Any, base: type, methods: tuple[str, ...]) -> str | None:
    """Why the compiled rule would not be this optimiser's."""
    own = replaced(optimizer, base, methods)
    if own:
        return f"{type(optimizer).__name__} has a {own} of its own, which only torch runs"
    constants = optimizer.constants(optimizer.param_groups[0])
    try:
        rule = rule_of(type(constants))
        if base is PosteriorOptimizer and remembers(constants):
            return (
                f"update={optimizer.param_groups[0]['update']!r} remembers its last moves, which only torch does: "
                "update='exact' runs compiled, with bounded steps"
            )
        for part in (rule.step, getattr(rule, "scaled", None)):
            if part is not None:
                in_precision(part, np.float32)
    except NotCompilable as error:
        return str(error)
    except ValueError as error:
        return f"its rule cannot be told from its constants: {error}"
    files = optimizer.file.values() if isinstance(optimizer.file, dict) else [optimizer.file]
    if all(rule is not file for file in files):
        names = ", ".join(getattr(file, "__name__", repr(file)) for file in files)
        return f"the constants of its rule ({names}) are those of another one, {rule.__name__}: give it Constants of its own"
    return None


def _why_not_memory(module: nn.Module) -> str | None:
    parameters = list(module.parameters())
    if len(parameters) != len(list(module.named_parameters(remove_duplicate=False))) or _overlap(parameters):
        return "some of its parameters share memory"
    return None


def _why_not_parameters(module: nn.Module, optimizer: Any) -> str | None:
    parameters = list(module.parameters())
    if {id(p) for p in optimizer.param_groups[0]["params"]} != {id(p) for p in parameters}:
        return "the optimiser does not move all of its parameters"
    if any(type(p) is not nn.Parameter for p in parameters):
        return f"its parameters are {', '.join(sorted({type(p).__name__ for p in parameters}))}, which only torch computes with"
    if any(p.is_shared() for p in parameters):
        return "its parameters are shared with other processes"
    if not all(p.requires_grad for p in parameters):
        return "some of its parameters are frozen"
    if any(p.device.type != "cpu" for p in parameters):
        return f"it is on {parameters[0].device}, and the engine is for the CPU"
    if any(p.dtype not in (torch.float32, torch.float64) for p in parameters) or len({p.dtype for p in parameters}) > 1:
        return f"its parameters are {parameters[0].dtype}, and the engine knows float32 and float64"
    return None


def _overlap(parameters: list[nn.Parameter]) -> bool:
    """Whether some numbers of these parameters lie at the same place in memory, or may."""
    spans = []
    for p in parameters:
        length = 1 + sum((size - 1) * stride for size, stride in zip(p.shape, p.stride(), strict=True))
        if p.numel() > length:
            return True  # an expanded tensor
        spans.append((p.data_ptr(), p.data_ptr() + length * p.element_size()))
    spans.sort()
    return any(second[0] < first[1] for first, second in itertools.pairwise(spans))


def replaced(thing: Any, base: type, methods: tuple[str, ...]) -> str | None:
    """The first of these methods of a class that a subclass or the instance itself has replaced, or None.

    torch wraps `step` on the class, and a learning rate scheduler on the instance: torch's own wrappers are looked through.
    """
    for name in methods:
        wanted = _without_wrappers(getattr(base, name))
        own = vars(thing).get(name)
        if _without_wrappers(getattr(type(thing), name)) is not wanted:
            return name
        if own is not None and _without_wrappers(own) is not wanted:
            return name
    return None


def _without_wrappers(function: Any) -> Any:
    function = getattr(function, "__func__", function)
    while hasattr(function, "__wrapped__") and getattr(function, "__globals__", {}).get("__name__", "").startswith(
        "torch."
    ):
        function = function.__wrapped__
    return function


def warn_fallback(net: nn.Module, reason: str) -> None:
    """Say once that a network learns on the torch path, and why."""
    warnings.warn(
        f"the compiled engine cannot run this {type(net).__name__}, so it learns on the torch path: {reason}",
        EngineFallback,
        stacklevel=3,
    )


def checked_inputs(x, shape: Perceptron, dtype: type) -> np.ndarray:
    """Inputs as an array for compiled code, or a `ValueError` that names what is wrong."""
    x = np.asarray(x)
    x = x.reshape(len(x), -1) if x.ndim > 2 else x
    if x.ndim != 2 or x.shape[1] != shape.sizes[0]:
        raise ValueError(f"an input of shape {x.shape} does not fit: the first layer takes {shape.sizes[0]} features")
    x = np.ascontiguousarray(x, dtype)
    if not np.isfinite(x).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
        raise ValueError(f"inputs must be finite, got {x[where]} at index {where}: drop or fill those rows first")
    return x


def checked(x, y, shape: Perceptron, likelihood: Any, dtype: type, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """The chunk as arrays for compiled code, or a `ValueError` that names what is wrong, before anything is learned."""
    x, y = checked_inputs(x, shape, dtype), np.asarray(y)
    if len(x) == 0 or len(x) != len(y):
        raise ValueError(f"got {len(x)} inputs and {len(y)} targets: there must be as many, and some")
    if len(x) % batch:
        raise ValueError(
            f"{len(x)} examples cannot be cut into batches of {batch}: leave out the last {len(x) % batch}, or keep them for "
            "the next chunk"
        )
    outputs = shape.sizes[-1]
    if isinstance(likelihood, GaussianNoise):
        y = np.ascontiguousarray(y, dtype)
        if y.shape != (len(x), outputs):
            raise ValueError(f"targets of shape {y.shape} do not match the network's outputs {(len(x), outputs)}")
        if not np.isfinite(y).all():
            raise ValueError("targets must be finite: drop or fill the rows that are not")
        return x, y
    likelihood.check(torch.from_numpy(np.ascontiguousarray(y)))
    if y.ndim != 1:
        raise ValueError(f"class labels must be one a row, got an array of shape {y.shape}")
    if y.max() >= outputs:
        raise ValueError(
            f"label {int(y.max())} is outside the head, which has {outputs} classes (0 to {outputs - 1}): "
            "give the last layer more outputs"
        )
    return x, np.ascontiguousarray(y, np.int64)
