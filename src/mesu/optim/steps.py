"""What every step needs: pairs of parameters, vectors to run a rule on, and the refusal of a step that would break a weight."""

from typing import Any

import torch
from torch import Tensor, nn

from mesu.posterior import Bayesian, Pair
from mesu.posterior.wrapped import posterior_or_plain
from mesu.rules import Gaussian


class StepRefused(ValueError):
    """A step that would have left a weight not finite, or a sigma not positive. Nothing was changed."""


def refuse_infinite(parameter: Tensor, new: Tensor) -> None:
    """Raise `StepRefused` unless every new weight is finite."""
    if not torch.isfinite(new).all():
        raise StepRefused(
            f"a parameter of shape {tuple(parameter.shape)} would not stay finite, so the step was refused and nothing "
            "changed: look for NaN in the loss, or lower the learning rate"
        )


def named_pairs(params: Any) -> list[Pair]:
    """The parameters that a user gave, as named pairs of tensors of the same shape."""
    if isinstance(params, nn.Module):
        params = posterior_or_plain(params)
    given = params.pairs() if isinstance(params, Bayesian) else [params] if isinstance(params, Pair) else params
    if isinstance(given, nn.Module):
        raise TypeError(f"this {type(given).__name__} has no sigmas: wrap it first, net = mesu.Bayesian(net)")
    pairs = []
    pair: Any
    for index, pair in enumerate(given):
        if isinstance(pair, Pair):
            pairs.append(pair)
            continue
        if not isinstance(pair, tuple) or not all(isinstance(p, Tensor) for p in pair[-2:]) or len(pair) not in (2, 3):
            raise TypeError(
                f"expected pairs (mean, std), got {type(pair).__name__}: pass a mesu.Bayesian or its pairs(), "
                "not net.parameters()"
            )
        mean, std = pair[-2:]
        if mean.shape != std.shape:
            raise ValueError(f"a mean of shape {tuple(mean.shape)} has a std of shape {tuple(std.shape)}")
        pairs.append(Pair(pair[0] if len(pair) == 3 else f"pair {index}", mean, std))
    return pairs


def with_gradients(group: dict) -> list[Pair]:
    """The pairs of a group that have gradients; `StepRefused` where only one of a pair has."""
    params = group["params"]
    pairs = []
    for name, mean, std, start in zip(group["names"], params[::2], params[1::2], group["starts"], strict=True):
        if (mean.grad is None) != (std.grad is None):
            missing = "mean" if mean.grad is None else "std"
            raise StepRefused(
                f"the {missing} of {name!r} has no gradient while its partner has one: differentiate an output of "
                "net(x, samples=...) or net.nll(...), where both take part"
            )
        if mean.grad is not None:
            pairs.append(Pair(name, mean, std, start))
    return pairs


def buckets(pairs: list[Pair], fused: bool) -> list[list[Pair]]:
    """Pairs that go through the rule together: one at a time, or all of one dtype and device as a single vector."""
    if not fused:
        return [[pair] for pair in pairs]
    alike: dict[Any, list[Pair]] = {}
    for pair in pairs:
        alike.setdefault((pair.mean.dtype, pair.mean.device), []).append(pair)
    return list(alike.values())


def as_vector(tensors: list[Any]) -> Tensor:
    """Tensors as one flat vector."""
    flat = [t.reshape(-1) for t in tensors]
    return flat[0] if len(flat) == 1 else torch.cat(flat)


def write(parameters: list[Any], vector: Tensor) -> None:
    """Cut a vector up into parameters."""
    for parameter, part in zip(parameters, vector.split([p.numel() for p in parameters]), strict=True):
        parameter.copy_(part.view_as(parameter))


def refuse_unsound(pairs: list[Pair], g: Gaussian, new: Gaussian, remedy: str) -> None:
    """Raise `StepRefused`, saying which weights and why, unless every mean is finite and every sigma positive."""
    # quicker than a look at every weight: one that is not finite would show in the sum
    total = g.mean.sum() + g.std.sum() + new.mean.sum() + new.std.sum()
    if bool(torch.isfinite(total) & (new.std.min() > 0)):
        return
    unsound = ~((new.std > 0) & torch.isfinite(new.mean + new.std) & torch.isfinite(g.mean) & torch.isfinite(g.std))
    count = int(unsound.sum())
    if not count:  # the sum itself was too large
        return
    index = int(unsound.nonzero()[0])
    ends = torch.tensor([p.mean.numel() for p in pairs]).cumsum(0)
    name = pairs[int((ends <= index).sum())].name
    where = f"{count} of {unsound.numel()} weights, the first in {name!r}"
    g_mean, g_std = float(g.mean[index]), float(g.std[index])
    if not (torch.isfinite(g.mean[index]) and torch.isfinite(g.std[index])):
        largest = max(float(pair.std.detach().max()) for pair in pairs)
        raise StepRefused(
            f"the gradient of {where} is not finite (mean {g_mean}, std {g_std}), so the step was refused and nothing "
            "changed: look for NaN or infinity in the inputs and the loss. If they are sound, the weights have run away "
            f"(the largest sigma is {largest:.3g}): take max_step=1 or less, more samples, or a smaller init_scale"
        )
    raise StepRefused(
        f"{where}, would get sigma {float(new.std[index]):.3g} and mean {float(new.mean[index]):.3g} (gradients: "
        f"mean {g_mean:.3g}, std {g_std:.3g}), so the step was refused and nothing changed: {remedy}"
    )
