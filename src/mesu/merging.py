"""`mesu.merge`: models that learned parts of one stream, each from a copy of one base, become one again."""

import warnings
from collections.abc import Sequence
from typing import Any, TypeVar

from mesu.health import LearningWarning
from mesu.online.face import Face
from mesu.online.merging import merge_models
from mesu.posterior.bayesian import Bayesian
from mesu.posterior.merging import MEANS, merge_networks

Model = TypeVar("Model")


def merge(
    base: Model,
    posteriors: Sequence[Model],
    optimizer: Any = None,
    updates: int | Sequence[int] | None = None,
    means: str = "sum",
) -> Model:
    """One posterior with the evidence of several, which each learned from a copy of `base`. None of them is changed.

    Evidence adds up: each weight's precision is the sum of theirs, less the base's where it would count more than once; means
    are weighted likewise. What was forgotten while they learned is forgotten once. This is exact for linear Gaussian models
    with a diagonal posterior, without and with forgetting; for others, merge often (docs/scale.md says how often).

    Args:
        base: What all began as: a `Bayesian` network, or a model for scikit-learn or River that has learned its first rows.
        posteriors: What they are now. Classes and features that they met since are matched by name.
        optimizer: For networks: the `MESU` of the base, if it has a memory. The estimators know theirs.
        updates: For networks with a memory: how many updates each worker made since the base, one number or one for each.
        means: ``"sum"`` adds up what the workers learned. ``"average"`` takes the average of their means: they then learn no
            faster than one, and cannot overshoot together where each has learned the same.

    Returns:
        A new network or model. Copy it for the next round: `copy.deepcopy`.

    Raises:
        ValueError: naming the first difference, if one of them cannot have begun as a copy of the base.

    Warns:
        LearningWarning: where evidence is negative: a sigma is never wider than the widest of those that are merged.

    Example:
        >>> import copy
        >>> base = mesu.MESUClassifier(random_state=0).partial_fit([[0.0], [1.0]], [0, 1])
        >>> a, b = copy.deepcopy(base), copy.deepcopy(base)
        >>> a, b = a.partial_fit([[0.1]] * 20, [0] * 20), b.partial_fit([[0.9]] * 20, [1] * 20)
        >>> mesu.merge(base, [a, b]).predict([[0.0], [1.0]])
        array([0, 1])
    """
    if means not in MEANS:
        raise ValueError(f"means must be 'sum' or 'average', got {means!r}")
    posteriors = list(posteriors)
    if not posteriors:
        raise ValueError("there is nothing to merge: give the models that learned from the base")
    if isinstance(base, Bayesian):
        found, clipped = merge_networks(base, posteriors, optimizer, updates, means)  # type: ignore[arg-type]
    elif isinstance(base, Face):
        if optimizer is not None or updates is not None:
            raise ValueError("the estimators know their memory and their updates: leave out optimizer and updates")
        found, clipped = merge_models(base, posteriors, means)
    else:
        raise TypeError(f"base must be a mesu.Bayesian, or one of mesu's estimators, got {type(base).__name__}")
    if clipped:
        warnings.warn(
            f"{clipped:.2%} of the weights have a sigma as wide as the widest that was merged, since what was learned of them "
            "widens it: gradients that are drawn may do so, and so does a jump of the targets. estimator='linear' and merging "
            "more often help",
            LearningWarning,
            stacklevel=2,
        )
    return found  # type: ignore[return-value]
