"""`mesu.predict`: outputs drawn by torch for any network, or found in closed form, as one prediction of its likelihood.

The result types and their equations are in `mesu.posterior.results`. Perceptrons are predicted in compiled code by
`mesu.engine` (`PosteriorEngine.draw`, and `mesu.engine.predict` for the online models).
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from mesu.posterior.bayesian import Bayesian
from mesu.posterior.inputs import CONVOLUTION
from mesu.posterior.likelihood import Categorical, Likelihood, describe_bad, named
from mesu.posterior.noise import Noise
from mesu.posterior.predictor import predictor
from mesu.posterior.results import MultiLabelPrediction, Prediction, RegressionPrediction, Uncertainty
from mesu.posterior.wrapped import evaluating, posterior_or_plain
from mesu.rules.checks import whole

__all__ = ["MultiLabelPrediction", "Prediction", "RegressionPrediction", "Uncertainty", "predict"]

# Rows times samples that one vectorised pass may hold; more is cut into chunks.
BUDGET = 1 << 17
# Rows at a time in closed form: with images, so few that the activations stay in the processor's cache.
CLOSED_ROWS, CLOSED_IMAGES = 2048, 128


def predict(
    net: nn.Module,
    x: Tensor,
    samples: int = 100,
    *,
    seed: int = 0,
    chunk: int | None = None,
    likelihood: str | Likelihood | None = None,
    **kwargs,
) -> Any:
    """Predict with uncertainty, averaging over `samples` draws of all weights, or in closed form with ``samples=0``.

    The draws come from `seed`, not from the network's own noise: predicting never changes what training will do, and the
    same call gives the same answer. All rows see the same draws of the weights. Dropout is off while predicting.

    Args:
        net: A `Bayesian`, or one wrapped by `torch.compile`, DDP, DataParallel or AveragedModel; a plain module works too and
            has no epistemic uncertainty. A module with a `Bayesian` somewhere inside is refused.
        x: Inputs ``[B, ...]``. Large ones are worked through in chunks.
        samples: Draws of the weights. 0 draws nothing and takes a few forward passes: means and variances are propagated
            through the layers instead (docs/how-to/cheap-uncertainty.md). What cannot be followed is refused by name.
        seed: Where the draws begin.
        chunk: Rows at a time; by default as many as fit a fixed budget.
        likelihood: What the outputs mean, by name or as an object, as for `Bayesian`; by default the network's own likelihood,
            and class scores where it has none.
        **kwargs: Passed on to the network's forward (a head's name, say). Where `x` is worked through in chunks, so are tensors
            among them with as many rows as `x`.

    Returns:
        What the likelihood's `summarise` gives: for classes a `Prediction` (`probs`, `total`, `aleatoric`, `epistemic`), for
        a Gaussian likelihood a `RegressionPrediction` (`mean` and the same three as variances).

    Raises:
        ValueError: for an input that is empty, or not finite, or does not fit a `Bayesian`, and for a network in which a
            `Bayesian` is hidden.

    Example:
        >>> net = mesu.Bayesian(nn.Linear(4, 3), seed=0)
        >>> p = mesu.predict(net, torch.zeros(2, 4), samples=10)
        >>> p.probs.shape, bool((p.total >= p.epistemic).all())
        (torch.Size([2, 3]), True)
    """
    samples = 0 if type(samples) is int and samples == 0 else whole("samples", samples)
    net = posterior_or_plain(net)
    _check_inputs(x)
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be 1 row or more, got {chunk!r}")
    closed_rows = CLOSED_IMAGES if any(isinstance(m, CONVOLUTION) for m in net.modules()) else CLOSED_ROWS
    rows = chunk or (max(1, BUDGET // samples) if samples else closed_rows)
    meaning = named(likelihood) if isinstance(likelihood, str) else likelihood or likelihood_of(net)
    closed = predictor(net, likelihood=meaning, **kwargs) if samples == 0 and isinstance(net, Bayesian) else None
    parts = []
    for part, own in chunks(x, rows, kwargs):
        with torch.no_grad(), evaluating(net):
            if closed is not None:
                parts.append(closed.prediction(part))
            else:
                parts.append(meaning.summarise(_outputs(net, part, samples, seed, own)))
    return joined(parts)


def _check_inputs(x: Any) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"inputs must be a tensor, got {type(x).__name__}: take torch.as_tensor(x)")
    if x.dim() == 0 or x.shape[0] == 0:
        raise ValueError(f"there is nothing to predict: got an input of shape {tuple(x.shape)}")
    if x.is_floating_point() and not torch.isfinite(x).all():
        raise ValueError(f"inputs must be finite, got {describe_bad(x)}: drop or fill those rows first")


def _outputs(net: nn.Module, x: Tensor, samples: int, seed: int, kwargs: dict[str, Any]) -> Tensor:
    """Drawn outputs ``[samples, B, ...]``; one of a network that is no posterior."""
    if isinstance(net, Bayesian):
        # the same seed for every chunk: every row meets the same draws of the weights
        out = net.sample(x, samples=samples, noise=Noise(seed), estimator="weights", **kwargs)
    else:
        out = net(x, **kwargs)
        out = out[None] if isinstance(out, Tensor) else out
    if not isinstance(out, Tensor):
        raise TypeError(
            f"the network gives a {type(out).__name__}, and a prediction wants one tensor: wrap it in a module that gives "
            "its scores alone"
        )
    return out


def chunks(x: Tensor, rows: int, kwargs: dict[str, Any]) -> Iterator[tuple[Tensor, dict[str, Any]]]:
    """Rows of the inputs, each chunk with its part of the keywords: tensors with as many rows as `x` are cut like it.

    Raises:
        ValueError: if there are several chunks, and a keyword is a list or an array as long as `x`, which may be rows or not.
    """
    total = len(x)
    if total <= rows:
        yield x, kwargs
        return

    def is_cut(value: Any) -> bool:
        return isinstance(value, Tensor) and value.dim() > 0 and len(value) == total

    for name, value in kwargs.items():
        if hasattr(value, "__len__") and not isinstance(value, (Tensor, str, dict)) and len(value) == total:
            raise ValueError(
                f"the keyword {name!r} is a {type(value).__name__} as long as the {total} rows, and those are worked through "
                f"{rows} at a time: give it as a tensor, or predict with chunk=len(x)"
            )
    for at in range(0, total, rows):
        part = slice(at, at + rows)
        yield x[part], pytree.tree_map(lambda value, part=part: value[part] if is_cut(value) else value, kwargs)


def likelihood_of(net: nn.Module) -> Likelihood:
    """The likelihood that a network carries; class scores where it carries none."""
    own: Any = getattr(net, "likelihood", None)
    return own if hasattr(own, "summarise") else Categorical()


def joined(parts: list[Any]) -> Any:
    """The predictions of consecutive rows as one.

    Raises:
        TypeError: unless they are tensors, or dataclasses whose fields are tensors.
    """
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(parts)
    names = [field.name for field in fields(first)] if is_dataclass(first) else []
    if not names or not all(isinstance(getattr(first, name), Tensor) for name in names):
        raise TypeError(
            f"the likelihood's summarise gives a {type(first).__name__}: it must give a tensor, or a dataclass of tensors, "
            "whose first axis is the rows, so that chunks of rows can be joined"
        )
    return type(first)(**{name: torch.cat([getattr(part, name) for part in parts]) for name in names})
