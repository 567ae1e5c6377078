"""`Replay`: a bounded buffer of rows that were learned, half of them recent and half a sample of all before, to learn again.

Rows fill the slots of one array. The first half is a ring of the last rows. Each row that leaves the ring is offered to the
second half, a reservoir: the n-th one offered replaces one of its m rows with probability m / n, so that at any time all rows
offered so far are in it with the same probability.

For every new row `times` kept rows are learned again. Each is the most epistemic of a few that are drawn from all slots, by
scores that are found anew every `REFRESH` rows. A row that has no score yet is taken as often as it is drawn.

All randomness is a function of the seed and of the number of the row in the stream. How the stream is cut into calls, and a
resume, change nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mesu.prediction import predict
from mesu.rules.checks import whole

REFRESH = 256  # rows between two looks at how epistemic the kept rows are
UNKNOWN = -np.inf  # the score of a row that has come since
DRAWS = 16  # networks that such a look averages: a rough order of rows is enough
NUMBERS = ("size", "times", "candidates", "seed", "seen", "scored")
# Odd constants of splitmix64, and the finaliser's
ROW, LANE, FIRST, SECOND = (
    np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


class Replay:
    """A bounded buffer of rows to learn again among new ones: half recent rows, half a sample of all before.

    A row of the stream is learned ``1 + times`` times on average. It should be evidence once: `share` is what each time may
    count, for the rate of sigma (``lr_std``). `BayesianLearner` and `WeightLearner` take a `Replay` and do all of this
    themselves; in a loop of your own:

    Args:
        size: Rows that are kept.
        times: Rows that are learned again for each new one.
        candidates: Each is the most epistemic of so many that are drawn; 1 takes them as they are drawn.
        seed: Of the draws.

    Example:
        >>> net = mesu.Bayesian(nn.Linear(4, 3), seed=0)
        >>> replay = mesu.Replay(500)
        >>> opt = mesu.MESU(net, memory=1000, lr_std=replay.share)
        >>> for x, y in [(torch.ones(8, 4), torch.zeros(8, dtype=torch.long))]:
        ...     for rows, labels in replay.mix(x, y, net):  # this batch, then four batches of kept rows
        ...         net.nll(rows, labels).backward()
        ...         opt.step(); opt.zero_grad()
        >>> len(replay)
        8
    """

    def __init__(self, size: int, times: int = 4, candidates: int = 4, seed: int = 0) -> None:
        self.size, self.times = whole("size", size, 2), whole("times", times)
        self.candidates, self.seed = whole("candidates", candidates), whole("seed", seed, 0)
        if self.seed >= 2**63:
            raise ValueError(f"seed must be below 2**63, got {seed!r}")
        self.recent = self.size // 2  # slots of the ring; the reservoir is in the others
        self.seen = self.scored = 0  # rows so far, and how many there were when the kept ones were last scored
        self.x: Any = None  # of every slot, once the first row tells its shape
        self.y: Any = None
        self.scores = np.full(self.size, UNKNOWN)
        self._log: list[tuple[Any, Any, Any]] | None = None  # what was overwritten, where it may be undone

    def __len__(self) -> int:
        """Rows that are kept now."""
        return min(self.seen, self.size)

    @property
    def share(self) -> float:
        """What one of the times that a row is learned may count as evidence: 1 / (1 + times)."""
        return 1 / (1 + self.times)

    def mix(self, x: Tensor, y: Tensor, net: Any = None) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches to learn: this one, then as many rows of kept ones, `times` over.

        A batch is kept when the loop comes back for the next one: if learning it raises an error, it is not kept.

        Args:
            x: Inputs ``[B, ...]``; each row of one call as those of the others.
            y: Targets ``[B, ...]``.
            net: The posterior, to pick rows by how uncertain it is of them. None picks at random, and so does a plain network.

        Raises:
            ValueError: if the rows are not as those that are kept, are none, or are not finite; nothing has changed then.
        """
        new_x, new_y = self.checked(_array(x), _array(y))
        if net is not None and self.due:
            self.score(lambda rows: epistemic(predict(net, torch.from_numpy(rows).to(x), samples=DRAWS)))
        return self._mixed(x, y, new_x, new_y)

    def _mixed(self, x: Tensor, y: Tensor, new_x: np.ndarray, new_y: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
        yield x, y
        for slots in self.put(new_x, new_y):
            yield torch.from_numpy(self.x[slots]).to(x), torch.from_numpy(self.y[slots]).to(y)

    def checked(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows, or a `ValueError` that names what keeps them from being kept beside the others."""
        if x.ndim == 0 or y.ndim == 0 or len(x) == 0 or len(x) != len(y):
            raise ValueError(
                f"got inputs of shape {x.shape} and targets of shape {y.shape}: there must be as many, and some"
            )
        for name, rows, kept in (("inputs", x, self.x), ("targets", y, self.y)):
            if rows.dtype.kind not in "biuf":
                raise ValueError(f"{name} must be numbers, got {rows.dtype}: encode them as numbers first")
            if rows.dtype.kind == "f" and not np.isfinite(rows).all():
                where = tuple(int(i) for i in np.argwhere(~np.isfinite(rows))[0])
                raise ValueError(
                    f"{name} must be finite, got {rows[where]} at index {where}: drop or fill those rows first"
                )
            if kept is not None and rows.shape[1:] != kept.shape[1:]:
                raise ValueError(
                    f"{name} of shape {rows.shape[1:]} do not fit beside the kept ones of shape {kept.shape[1:]}: bring all "
                    "rows to one shape, or begin a new mesu.Replay"
                )
            if kept is not None and rows.dtype != kept.dtype:
                raise ValueError(
                    f"{name} are {rows.dtype} now, and the kept ones are {kept.dtype}: convert them to {kept.dtype}"
                )
        return x, y

    def put(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Keep rows, and pick some to learn again: the slots ``[times, B]`` of those, `times` for each new row."""
        if self.x is None:
            self.x = np.zeros((self.size, *x.shape[1:]), x.dtype)
            self.y = np.zeros((self.size, *y.shape[1:]), y.dtype)
        numbers = np.arange(self.seen, self.seen + len(x), dtype=np.uint64)
        drawn = scrambled(self.seed, numbers, 1 + self.times * self.candidates)
        for number, place, row, target in zip(range(self.seen, self.seen + len(x)), drawn[:, 0], x, y, strict=True):
            ring, offered = number % self.recent, number - self.recent
            if offered >= 0:
                at = offered if offered < self.size - self.recent else int(place) % (offered + 1)
                if at < self.size - self.recent:
                    self._write(self.recent + at, self.x[ring], self.y[ring], self.scores[ring])
            self._write(ring, row, target, UNKNOWN)
        self.seen += len(x)
        slots = (drawn[:, 1:] % np.uint64(len(self))).astype(np.int64)
        return self.best(slots.reshape(len(x), self.times, self.candidates)).T

    def best(self, slots: np.ndarray) -> np.ndarray:
        """The slot with the highest score of each row of `slots`; the first one if that has no score."""
        if self.candidates == 1:
            return slots[..., 0]
        scores = self.scores[slots]
        choice = scores.argmax(-1)
        choice[scores[..., 0] == UNKNOWN] = 0
        return np.take_along_axis(slots, choice[..., None], -1)[..., 0]

    def sequence(self, x: np.ndarray, y: np.ndarray, batch: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Rows as a chunk to learn: each batch of new rows, which are then kept, and `times` batches of kept ones."""
        shape = len(x) // batch, 1 + self.times, batch
        xs, ys = np.empty((*shape, *x.shape[1:]), x.dtype), np.empty((*shape, *y.shape[1:]), y.dtype)
        for i in range(shape[0]):
            new = slice(i * batch, (i + 1) * batch)
            slots = self.put(x[new], y[new])
            xs[i, 0], ys[i, 0], xs[i, 1:], ys[i, 1:] = x[new], y[new], self.x[slots], self.y[slots]
        return xs.reshape(-1, *x.shape[1:]), ys.reshape(-1, *y.shape[1:])

    @property
    def due(self) -> bool:
        """Whether the kept rows should be scored before the next row comes."""
        return self.candidates > 1 and self.seen // REFRESH > self.scored // REFRESH

    def until_due(self, batch: int = 1) -> int:
        """How many rows may come before the kept ones should be scored, in whole batches."""
        return -(-(REFRESH - self.seen % REFRESH) // batch) * batch

    def score(self, doubt: Callable[[np.ndarray], np.ndarray]) -> None:
        """Look at how epistemic the kept rows are: `doubt` gives a number for each of the rows that it is given."""
        if self._log is not None:
            self._log.append((self.scores, slice(None), self.scores.copy()))
        self.scores[: len(self)] = doubt(self.x[: len(self)])
        self.scored = self.seen

    @contextmanager
    def undone_after_an_error(self) -> Iterator[None]:
        """Inside, an error leaves the buffer as it was before."""
        self._log, before = [], (self.seen, self.scored)
        try:
            yield
        except BaseException:
            for array, where, value in reversed(self._log):
                array[where] = value
            self.seen, self.scored = before
            if not self.seen:
                self.x = self.y = None
            raise
        finally:
            self._log = None

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that a later pick depends on, as tensors of their own."""
        empty = np.zeros(0)
        arrays = {"x": self.x, "y": self.y, "scores": self.scores}
        return {
            "numbers": torch.tensor([getattr(self, name) for name in NUMBERS]),
            **{name: torch.from_numpy(np.array(empty if array is None else array)) for name, array in arrays.items()},
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `state_dict` gave, with its seed.

        Raises:
            ValueError: if it is the state of a buffer with other settings, or none at all; nothing has changed then.
        """
        if state.keys() != {"numbers", "x", "y", "scores"} or state["numbers"].shape != (len(NUMBERS),):
            raise ValueError(
                f"this is not the state of a mesu.Replay: it has {', '.join(map(str, state)) or 'nothing'}"
            )
        saved = dict(zip(NUMBERS, state["numbers"].tolist(), strict=True))
        for name in NUMBERS[:3]:
            if saved[name] != getattr(self, name):
                raise ValueError(
                    f"the saved buffer has {name}={saved[name]}, and this one {getattr(self, name)}: make it with "
                    f"mesu.Replay({saved['size']}, times={saved['times']}, candidates={saved['candidates']})"
                )
        x, y, scores = (np.array(state[name].cpu().numpy()) for name in ("x", "y", "scores"))
        filled = saved["seen"] > 0
        if scores.shape != (self.size,) or (filled and not len(x) == len(y) == self.size):
            raise ValueError(f"the saved buffer has {len(x)} slots instead of {self.size}: it was altered")
        self.x, self.y = (x, y) if filled else (None, None)
        self.seed, self.seen, self.scored, self.scores = saved["seed"], saved["seen"], saved["scored"], scores

    def _write(self, slot: int, x: Any, y: Any, score: float) -> None:
        arrays = (self.x, x), (self.y, y), (self.scores, score)
        if self._log is not None:
            self._log += [(array, slot, np.array(array[slot])) for array, _ in arrays]
        for array, value in arrays:
            array[slot] = value

    def __repr__(self) -> str:
        """The settings, and how many rows are kept."""
        settings = f"{self.size}, times={self.times}, candidates={self.candidates}, seed={self.seed}"
        return f"Replay({settings}): {len(self)} rows kept of {self.seen}"


def scrambled(seed: int, rows: np.ndarray, lanes: int) -> np.ndarray:
    """Uniform numbers of 64 bits ``[rows, lanes]``: a function of the seed, the number of the row and the lane (splitmix64)."""
    begin = _mixed_bits(np.array([seed], np.uint64) * LANE + ROW)
    z = _mixed_bits(begin + rows * ROW)[:, None] + np.arange(lanes, dtype=np.uint64) * LANE
    return _mixed_bits(z)


def _mixed_bits(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * FIRST
    z = (z ^ (z >> np.uint64(27))) * SECOND
    return z ^ (z >> np.uint64(31))


def epistemic(prediction: Any) -> np.ndarray:
    """One epistemic uncertainty for each row: the mean over its outputs, where there are several."""
    doubt = torch.as_tensor(prediction.epistemic).detach().cpu()
    return doubt.reshape(len(doubt), -1).mean(1).numpy()


def _array(rows: Any) -> np.ndarray:
    if isinstance(rows, Tensor):
        rows = rows.detach().cpu()
        return (rows.float() if rows.dtype == torch.bfloat16 else rows).numpy()
    raise TypeError(f"rows must be tensors, got {type(rows).__name__}: take torch.as_tensor(rows)")
