"""A learner with a `mesu.Replay`: kept rows are learned again among the new ones, and a row is evidence once.

In an update that sees a row for one of `times + 1` times, sigma takes 1 / (times + 1) of the evidence, and forgets as much
less; the mean's gradient counts as it is. So sigma and the memory count rows of the stream, while the mean gets closer to what
fits the kept rows too. A joint step, which moves all weights by one gain, takes its example with a variance of the noise that
is `times + 1` times as large instead.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mesu.learners.state import restore, tensors_of
from mesu.posterior.bayesian import Bayesian
from mesu.replay import Replay

PREFIX = "kept rows."  # of the buffer's tensors among a learner's


def checked_replay(net: Any, optimizer: Any, replay: Any) -> Replay | None:
    """The buffer of a learner, or an error that says why it cannot be used with this optimiser."""
    if replay is None:
        return None
    if not isinstance(replay, Replay):
        raise TypeError(f"replay must be a mesu.Replay, got {replay!r}: mesu.Replay(500) keeps 500 rows")
    if isinstance(net, Bayesian) and not all("lr_std" in group for group in optimizer.param_groups):
        raise ValueError(
            f"{type(optimizer).__name__} has no lr_std, by which rows that are learned several times count once: use "
            "mesu.MESU or mesu.FOOVB, or no replay"
        )
    return replay


def learn_replaying(learner: Any, replay: Replay, x: np.ndarray, y: np.ndarray) -> None:
    """Learn a chunk and the rows that are replayed among it: all of it, or nothing if something is refused."""
    if len(x) % learner.batch:
        raise ValueError(
            f"{len(x)} examples cannot be cut into batches of {learner.batch}: leave out the last {len(x) % learner.batch}, "
            "or keep them for the next chunk"
        )
    x, y = replay.checked(np.asarray(x), np.asarray(y))
    before = tensors_of(learner.net, learner.optimizer) if len(x) > replay.until_due(learner.batch) else None
    try:
        with replay.undone_after_an_error(), counted_once(learner, replay.share):
            at = 0
            while at < len(x):
                if replay.due:
                    learner.score(replay)
                piece = slice(at, at + replay.until_due(learner.batch))
                learner.learn_once(*replay.sequence(x[piece], y[piece], learner.batch))
                at = piece.stop
    except BaseException:
        if before is not None:
            restore(learner.net, learner.optimizer, before)
        raise


@contextmanager
def counted_once(learner: Any, share: float) -> Iterator[None]:
    """Inside, an example that a posterior learns is this share of an example. A plain network counts no evidence."""
    net, groups = learner.net, learner.optimizer.param_groups
    changed: list[tuple[dict, str, float]] = []
    if isinstance(net, Bayesian) and net.estimator == "joint":
        changed = [(vars(net.likelihood), "noise_std", share**-0.5)]
        changed += [(group, "memory", 1 / share) for group in groups if "memory" in group]
    elif isinstance(net, Bayesian):
        changed = [(group, "lr_std", share) for group in groups]
    before = [settings[name] for settings, name, _ in changed]
    for settings, name, factor in changed:
        settings[name] *= factor
    try:
        yield
    finally:
        for (settings, name, _), value in zip(changed, before, strict=True):
            settings[name] = value
