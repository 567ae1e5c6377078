"""The contract of learners, as checks that anybody can run on a learner of their own: `check_learner`."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mesu.learners.learner import Learner

ROWS = 24  # of each of the two tasks that a learner is tried on


def check_learner(make: Callable[[], Learner], features: int, classes: int, batch: int = 1, **inputs: Any) -> None:
    """Check that a classifier keeps the contract of `mesu.learners.Learner`.

    - It predicts probabilities, and learns nothing while it predicts.
    - How the stream is cut into chunks changes nothing.
    - After `restore`, it goes on bit for bit as the learner that gave the `tensors`. Tensors of another network are refused.
    - Bad input is refused with a `ValueError` before anything changes.

    Args:
        make: Makes a fresh learner, each time the same.
        features: Numbers in one example.
        classes: How many classes it tells apart.
        batch: Examples an update: chunks are multiples of it.
        inputs: Further inputs of the network, by name, such as `head=0`.

    Raises:
        AssertionError: naming what does not hold.

    Example:
        >>> from mesu.learners.contract import check_learner
        >>> def make():
        ...     net = mesu.Bayesian(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), init_std=0.1, seed=0)
        ...     with torch.no_grad():
        ...         for pair in net.pairs():
        ...             pair.mean.fill_(0.1)
        ...     return mesu.BayesianLearner(net, mesu.MESU(net, memory=1000))
        >>> check_learner(make, features=4, classes=2)
    """
    rng = np.random.default_rng(0)
    tasks = [
        (rng.normal(size=(ROWS * batch, features)).astype(np.float32), rng.integers(0, classes, ROWS * batch))
        for _ in range(2)
    ]
    _check_predictions(make(), *tasks[0], classes, inputs)
    _check_chunks(make, tasks, batch, inputs)
    _check_restore(make, tasks, inputs)
    _check_bad_input(make(), *tasks[0], classes, batch, inputs)


def _check_predictions(learner: Learner, x: np.ndarray, y: np.ndarray, classes: int, inputs: dict[str, Any]) -> None:
    learner.learn(x, y, **inputs)
    before = learner.tensors()
    probs = learner.predict(x, 8, **inputs).probs
    _require(tuple(probs.shape) == (len(x), classes), f"probs must be [rows, classes], got {tuple(probs.shape)}")
    _require(bool(torch.isfinite(probs).all() and (probs >= 0).all()), "probs must be finite, 0 or greater")
    _require(
        bool(torch.allclose(probs.sum(-1), torch.ones(len(x), dtype=probs.dtype), atol=1e-5)), "probs must sum to 1"
    )
    _require(_same(learner.tensors(), before), "predict must change nothing that a later update depends on")


def _check_chunks(make: Callable[[], Learner], tasks: list, batch: int, inputs: dict[str, Any]) -> None:
    whole, cut, begun = make(), make(), make()
    _require(_same(whole.tensors(), cut.tensors()), "make must give the same learner each time: seed it")
    for x, y in tasks:
        whole.learn(x, y, **inputs)
        for first, last in ((0, batch), (batch, 8 * batch), (8 * batch, len(x))):
            cut.learn(x[first:last], y[first:last], **inputs)
        for learner in (whole, cut):
            learner.boundary(x, y, **inputs)
    _require(not _same(whole.tensors(), begun.tensors()), "learn must change something")
    _require(
        _same(whole.tensors(), cut.tensors()), "a stream cut into other chunks must give the same learner, bit for bit"
    )


def _check_restore(make: Callable[[], Learner], tasks: list, inputs: dict[str, Any]) -> None:
    learner, twin = make(), make()
    learner.learn(*tasks[0], **inputs)
    learner.boundary(*tasks[0], **inputs)
    twin.learn(*tasks[1], **inputs)  # another past
    saved = learner.tensors()
    kept = copy.deepcopy(saved)
    twin.restore(saved)
    for each in (learner, twin):
        each.learn(*tasks[1], **inputs)
        each.boundary(*tasks[1], **inputs)
    _require(_same(saved, kept), "tensors must be copies: learning on must not change what was saved")
    _require(
        _same(learner.tensors(), twin.tensors()), "what was restored must go on as the learner does that was saved"
    )
    x = tasks[0][0]
    one, other = (each.predict(x, 8, **inputs).probs for each in (learner, twin))
    _require(torch.equal(one, other), "what was restored must predict as the learner does that was saved")
    _refuses(learner, lambda: learner.restore({}), "the tensors of another network")


def _check_bad_input(
    learner: Learner, x: np.ndarray, y: np.ndarray, classes: int, batch: int, inputs: dict[str, Any]
) -> None:
    learner.learn(x, y, **inputs)
    for value in (np.nan, np.inf):
        bad = x.copy()
        bad[-1, -1] = value
        _refuses(learner, lambda bad=bad: learner.learn(bad, y, **inputs), f"{value} in the last row")
    for label in (-1, classes):
        wrong = y.copy()
        wrong[-1] = label
        _refuses(learner, lambda wrong=wrong: learner.learn(x, wrong, **inputs), f"label {label} of {classes} classes")
    _refuses(learner, lambda: learner.learn(x[:0], y[:0], **inputs), "an empty chunk")
    _refuses(learner, lambda: learner.learn(x, y[:-batch], **inputs), "fewer labels than rows")
    # torch itself refuses a wrong width, with an error of its own kind
    _refuses(learner, lambda: learner.learn(x[:, 1:], y, **inputs), "rows of another width", (ValueError, RuntimeError))


def _refuses(
    learner: Learner, act: Callable[[], None], what: str, kinds: tuple[type[Exception], ...] = (ValueError,)
) -> None:
    before = learner.tensors()
    try:
        act()
    except kinds as error:
        _require(bool(str(error).strip()), f"the refusal of {what} must say why")
    except Exception as error:
        raise AssertionError(f"{what} must be refused with a ValueError, got {error!r}") from error
    else:
        raise AssertionError(f"{what} must be refused with a ValueError")
    _require(_same(learner.tensors(), before), f"{what} must be refused before anything changes")


def _same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)
