"""`mesu.predict`: outputs drawn by torch for any network, averaged by its likelihood into one prediction.

The result types and their equations are in `mesu.posterior.results`. Perceptrons are predicted in compiled code by
`mesu.engine` (`PosteriorEngine.draw`, and `mesu.engine.predict` for the online models).
"""

from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mesu.posterior.bayesian import Bayesian
from mesu.posterior.likelihood import Categorical, Likelihood, describe_bad
from mesu.posterior.noise import Noise
from mesu.posterior.results import MultiLabelPrediction, Prediction, RegressionPrediction, Uncertainty
from mesu.rules.checks import whole

__all__ = ["MultiLabelPrediction", "Prediction", "RegressionPrediction", "Uncertainty", "predict"]

# Rows times samples that one vectorised pass may hold; more is cut into chunks.
BUDGET = 1 << 17


def predict(
    net: nn.Module,
    x: Tensor,
    samples: int = 100,
    *,
    seed: int = 0,
    chunk: int | None = None,
    likelihood: Likelihood | None = None,
    **kwargs,
) -> Any:
    """Predict with uncertainty, averaging over `samples` draws of all weights.

    The draws come from `seed`, not from the network's own noise: predicting never changes what training will do, and the
    same call gives the same answer. All rows see the same draws of the weights. Dropout is off while predicting.

    Args:
        net: A `Bayesian`; a plain module works too and has no epistemic uncertainty.
        x: Inputs ``[B, ...]``. Large ones are worked through in chunks.
        samples: Draws of the weights.
        seed: Where the draws begin.
        chunk: Rows at a time; by default as many as fit a fixed budget.
        likelihood: What the outputs mean; by default the network's own likelihood, and class scores where it has none.
        **kwargs: Passed on to the network's forward (a head's name, say).

    Returns:
        What the likelihood's `summarise` gives: for classes a `Prediction` (`probs`, `total`, `aleatoric`, `epistemic`), for
        a Gaussian likelihood a `RegressionPrediction` (`mean` and the same three as variances).

    Raises:
        ValueError: for an input that is empty, or not finite, or does not fit a `Bayesian`.

    Example:
        >>> net = mesu.Bayesian(nn.Linear(4, 3), seed=0)
        >>> p = mesu.predict(net, torch.zeros(2, 4), samples=10)
        >>> p.probs.shape, bool((p.total >= p.epistemic).all())
        (torch.Size([2, 3]), True)
    """
    samples = whole("samples", samples)
    if not isinstance(x, Tensor):
        raise TypeError(f"inputs must be a tensor, got {type(x).__name__}: take torch.as_tensor(x)")
    if x.dim() == 0 or x.shape[0] == 0:
        raise ValueError(f"there is nothing to predict: got an input of shape {tuple(x.shape)}")
    if x.is_floating_point() and not torch.isfinite(x).all():
        raise ValueError(f"inputs must be finite, got {describe_bad(x)}: drop or fill those rows first")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be 1 row or more, got {chunk!r}")
    rows = chunk or max(1, BUDGET // samples)
    likelihood = likelihood or likelihood_of(net)
    parts = []
    modes = {module: module.training for module in net.modules()}
    net.eval()
    try:
        with torch.no_grad():
            for part in x.split(rows):
                if isinstance(net, Bayesian):
                    # the same seed for every chunk: every row meets the same draws of the weights
                    out = net.sample(part, samples=samples, noise=Noise(seed), estimator="weights", **kwargs)
                else:
                    out = net(part, **kwargs)
                    out = out[None] if isinstance(out, Tensor) else out
                if not isinstance(out, Tensor):
                    raise TypeError(
                        f"the network gives a {type(out).__name__}, and a prediction wants one tensor: wrap it in a module "
                        "that gives its scores alone"
                    )
                parts.append(likelihood.summarise(out))
    finally:
        for module, mode in modes.items():
            module.training = mode
    return joined(parts)


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
