"""What both learners share: a chunk of a stream goes through the engine or the torch path, whole or not at all."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mesu.engine.supports import warn_fallback, why_not
from mesu.learners.replaying import PREFIX, learn_replaying
from mesu.learners.state import device_of, restore, tensors_of
from mesu.posterior.likelihood import describe_bad
from mesu.replay import Replay


class ChunkLearner:
    """A network and the optimiser that moves it, which learn a chunk together."""

    net: Any  # the network or the posterior
    optimizer: Any
    batch: int
    engine: Any  # the compiled loop; None on the torch path
    replay: Replay | None = None  # rows to learn again among the new ones

    def cost(self, x: Tensor, y: Tensor, **inputs: Any) -> Tensor:
        """The cost that an update descends, summed over the batch."""
        raise NotImplementedError

    def check_targets(self, y: Tensor) -> None:
        """Raise a `ValueError` if the likelihood cannot score one of these targets."""
        raise NotImplementedError

    def learn(self, x: np.ndarray, y: np.ndarray, **inputs: Any) -> None:
        """One update for each `batch` examples, in order, and for each batch that is replayed among them.

        Raises:
            ValueError: if the chunk cannot be learned; nothing has changed then.
        """
        if self.replay is None:
            self.learn_once(x, y, **inputs)
        elif inputs:
            raise ValueError(f"replay keeps rows without {', '.join(inputs)}: leave it out, or learn without replay")
        else:
            learn_replaying(self, self.replay, x, y)

    def learn_once(self, x: np.ndarray, y: np.ndarray, **inputs: Any) -> None:
        """`learn` without replay."""
        engine = self.compiled()
        if engine is not None:
            engine.learn(x, y, **inputs)
            self.optimizer._opt_called = True  # torch's schedulers warn unless `step` has been called, which they wrap
            return
        examples, labels = checked(x, y)
        self.check_targets(labels)
        several = len(examples) > self.batch or getattr(self.net, "awaits_inputs", False)
        before = tensors_of(self.net, self.optimizer) if several else None
        try:
            for some, theirs in zip(examples.split(self.batch), labels.split(self.batch), strict=True):
                some, theirs = some.to(device_of(self.net)), theirs.to(device_of(self.net))
                self.cost(some, theirs, **inputs).backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
        except Exception:
            self.optimizer.zero_grad()
            if before is not None:  # earlier batches of the chunk have been learned, or told the size of inputs
                restore(self.net, self.optimizer, before)
            raise

    def why_not(self) -> str | None:
        """Why the engine cannot learn this; None if it can."""
        return why_not(self.net, self.optimizer)

    def compiled(self) -> Any:
        """The engine; None where there is none, or where what it runs has been changed since the learner was made."""
        if self.engine is not None:
            reason = self.why_not()
            if reason is not None:
                warn_fallback(self.net, reason)
                self.engine = None
        return self.engine

    def score(self, replay: Replay) -> None:
        """Tell the buffer how epistemic its rows are; a plain network cannot tell, and replays rows as they are drawn."""

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a later update depends on, copied: `restore` goes on from it bit for bit."""
        kept = {} if self.replay is None else self.replay.state_dict()
        return {**tensors_of(self.net, self.optimizer), **{PREFIX + name: value for name, value in kept.items()}}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Return to the state in which these `tensors` were saved."""
        if self.replay is None:
            restore(self.net, self.optimizer, tensors)
            return
        before, own = self.replay.state_dict(), [name for name in tensors if name.startswith(PREFIX)]
        self.replay.load_state_dict({name.removeprefix(PREFIX): tensors[name] for name in own})
        try:
            restore(self.net, self.optimizer, {name: tensors[name] for name in tensors if name not in own})
        except BaseException:
            self.replay.load_state_dict(before)
            raise


def checked(x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
    """A chunk as tensors for the torch path, or a `ValueError` that names what is wrong, before anything is learned.

    What targets may be is for the likelihood to say.
    """
    examples, labels = torch.from_numpy(x), torch.from_numpy(y)
    if len(examples) == 0 or len(examples) != len(labels):
        raise ValueError(f"got {len(examples)} inputs and {len(labels)} targets: there must be as many, and some")
    if examples.is_floating_point() and not torch.isfinite(examples).all():
        raise ValueError(f"inputs must be finite, got {describe_bad(examples)}: drop or fill those rows first")
    return examples, labels
