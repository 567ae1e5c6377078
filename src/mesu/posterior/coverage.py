"""Which parameters of a network get a standard deviation, and which layers draw their outputs instead of their weights."""

from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase

import torch
from torch import nn
from torch.nn.utils.parametrizations import _Orthogonal

from mesu.posterior.layers import LOCAL_TWIN

BATCHNORM = (nn.modules.batchnorm._BatchNorm,)
PLAIN = {twin: plain for plain, twin in LOCAL_TWIN.items()}


def choose(
    module: nn.Module, prefix: str, deterministic: Iterable[str], covered: list[str], batchnorm: str
) -> list[str]:
    """Names of the parameters below `prefix` to cover: those with a gradient, unless they are left out by name.

    Args:
        module: The whole network.
        prefix: The submodule that was added, or "" for the whole network.
        deterministic: Names and patterns to leave out.
        covered: Names that have a standard deviation already.
        batchnorm: "refuse" or "freeze".

    Raises:
        ValueError: for layers that cannot be covered, and for a pattern that matches nothing.
    """
    patterns = as_patterns(deterministic)
    normalised = {name for name, m in module.named_modules() if isinstance(m, BATCHNORM)}
    refused = sorted(name or type(module).__name__ for name in normalised if inside(name, prefix))
    if refused and batchnorm == "refuse":
        raise ValueError(
            f"layer {refused[0]!r} is a batch normalisation ({len(refused)} in all): it mixes the examples of a batch "
            "and keeps running averages that no posterior covers. Use GroupNorm or LayerNorm instead, or keep it "
            "deterministic at the averages it has with Bayesian(..., batchnorm='freeze')"
        )
    if any(isinstance(m, torch.jit.ScriptModule) for m in module.modules()):
        raise ValueError("a module of torch.jit cannot get further parameters: give the module that it was made from")
    holders = owners(module)
    rotations = {name for name, m in module.named_modules() if any(isinstance(p, _Orthogonal) for p in m.children())}
    unused = set(patterns)
    chosen = []
    for name, parameter in module.named_parameters():
        matching = {pattern for pattern in patterns if _matches(name, pattern)}
        unused -= matching
        is_std = name.endswith("_std") and name.removesuffix("_std") in covered
        frozen = not parameter.requires_grad or name.rpartition(".")[0] in normalised
        if name in covered or is_std or frozen or matching or not inside(name, prefix):
            continue
        _refuse(name, parameter, holders[name], name.rpartition(".")[0] in rotations)
        chosen.append(name)
    if unused:
        raise ValueError(f"deterministic={sorted(unused)[0]!r} matches no parameter of the module")
    return chosen


def _refuse(name: str, parameter: nn.Parameter, holders: list[tuple[nn.Module, str]], is_rotation: bool) -> None:
    """Raise `ValueError` for a parameter that cannot have a standard deviation."""
    if isinstance(parameter, nn.UninitializedParameter):
        raise ValueError(f"parameter {name!r} has no shape yet: run the lazy module once before wrapping it")
    if any(getattr(owner, "sparse", False) is True for owner, _ in holders):
        raise ValueError(
            f"parameter {name!r} is of a layer with sparse=True: drawn weights have dense gradients, and those of "
            f"sigma are never sparse. Make the layer with sparse=False, or leave it out: deterministic=[{name!r}]"
        )
    if is_rotation:
        raise ValueError(
            f"parameter {name!r} stands for an orthogonal matrix: its diagonal holds signs, which a mean that moves by a "
            f"little would make zero. Leave it out: deterministic=[{name!r}]"
        )
    if not parameter.is_floating_point():
        raise ValueError(
            f"parameter {name!r} is {parameter.dtype}, and sigmas are for real numbers: keep its real and imaginary parts "
            f"as two parameters, or leave it out: deterministic=[{name!r}]"
        )
    if parameter.dtype == torch.float16:
        raise ValueError(
            f"parameter {name!r} is torch.float16, in which small variances are zero: keep weights in float32 "
            "(net.float()), and compute in half precision with torch.autocast"
        )


def use_local_layers(module: nn.Module, covered: list[str]) -> None:
    """Let each layer that can do so draw its outputs, by changing its class, if its weight is covered and used in one place."""
    holders = owners(module)
    places = Counter(id(m) for _, m in module.named_modules(remove_duplicate=False))
    for name, layer in module.named_modules():
        weight = f"{name}.weight" if name else "weight"
        tied = len(holders.get(weight, ())) > 1 or len(holders.get(f"{weight[:-6]}bias", ())) > 1
        shared = tied or places[id(layer)] > 1  # all uses of a shared weight must see the same draw
        if type(layer) in LOCAL_TWIN and weight in covered and not shared:
            layer.__class__ = LOCAL_TWIN[type(layer)]


def freeze_batchnorm(module: nn.Module) -> None:
    """Keep every batch normalisation in evaluation mode, with the averages that it has."""
    for each in module.modules():
        if isinstance(each, BATCHNORM):
            each.training = False


def owners(module: nn.Module) -> dict[str, list[tuple[nn.Module, str]]]:
    """For each parameter name, every (submodule, attribute) that holds the same tensor: more than one if it is tied."""
    holders: dict[int, list[tuple[nn.Module, str]]] = {}
    names: dict[str, int] = {}
    for path, owner in module.named_modules():
        for leaf, parameter in owner._parameters.items():
            if parameter is not None:
                holders.setdefault(id(parameter), []).append((owner, leaf))
                names[f"{path}.{leaf}" if path else leaf] = id(parameter)
    return {name: holders[key] for name, key in names.items()}


def as_patterns(names: str | Iterable[str]) -> list[str]:
    """One name or several, as a list."""
    return [names] if isinstance(names, str) else list(names)


def inside(name: str, prefix: str) -> bool:
    """Whether a dotted name is `prefix` or below it; everything is below ""."""
    return not prefix or name == prefix or name.startswith(prefix + ".")


def _matches(name: str, pattern: str) -> bool:
    return inside(name, pattern) or fnmatchcase(name, pattern)
