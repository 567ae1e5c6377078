"""Learning a chunk of a stream in compiled code: the engines that `mesu.learners` drive."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import nn

from mesu import optim
from mesu.engine import predict
from mesu.engine.layout import Perceptron, read_perceptron, share_flat
from mesu.engine.loops import fisher_loop, learning_loop, predicting_loop
from mesu.engine.plan import Plan, compiled_constants, explained, scratch
from mesu.engine.supports import checked, checked_inputs, why_not
from mesu.health import next_look
from mesu.optim import StepRefused
from mesu.optim import health as sigmas
from mesu.posterior import health as batches
from mesu.posterior.bayesian import AT_MEAN, Bayesian, Pair
from mesu.posterior.draws import drawn_std
from mesu.posterior.likelihood import Categorical
from mesu.rules.checks import whole

ROWS_WORTH_A_THREAD = 64  # fewer rows than this are predicted sooner than a thread starts


class PosteriorEngine:
    """Compiled learning for a `Bayesian` perceptron under any posterior rule.

    Args:
        net: The posterior; its parameters are shared, not copied.
        optimizer: Its optimiser, for the rule and the settings.
        samples: Monte Carlo samples of each update; ignored by the estimators "linear" and "joint", which draw nothing.
        batch: Examples an update; 1 for the estimator "joint".
    """

    def __init__(self, net: Bayesian, optimizer: optim.PosteriorOptimizer, samples: int, batch: int = 1) -> None:
        reason = why_not(net, optimizer)
        if reason:
            raise ValueError(f"the engine cannot run this network: {reason}")
        if net.estimator == "joint" and batch != 1:
            raise ValueError(
                f"estimator='joint' learns one example an update, got batch={batch}: use estimator='linear'"
            )
        shape = read_perceptron(net.module)
        assert isinstance(shape, Perceptron)
        self.net, self.optimizer, self.shape = net, optimizer, shape
        self.samples, self.batch = 1 if net.estimator in AT_MEAN else samples, batch
        self._work: dict[Any, Any] = {}
        self._planned: tuple[Any, Plan] | None = None  # with what it was made for
        self._updates, self._look = 0, 1  # how many were made, and when to look for what goes wrong: `mesu.health`

    def learn(self, x: np.ndarray, y: np.ndarray, noise: np.ndarray | None = None) -> None:
        """Learn a chunk in order, `batch` examples an update.

        Args:
            x: Inputs ``[T, d]``.
            y: Class numbers ``[T]``, or targets ``[T, outputs]``.
            noise: Normals to use instead of the network's own, a row for each update.

        Raises:
            ValueError: if the chunk cannot be learned; nothing has changed then.
            StepRefused: if a sigma stopped being positive on the way; nothing has changed then either.
        """
        net = self.net
        plan = self.plan()
        mean, std, dtype = plan.mean, plan.std, plan.mean.dtype.type
        x, y = checked(x, y, self.shape, net.likelihood, dtype, self.batch)
        normals = self.normals(mean.size)
        given = None if noise is None else np.ascontiguousarray(noise, dtype)
        if given is not None and given.shape != (len(x) // self.batch, normals):
            raise ValueError(f"noise must have shape {(len(x) // self.batch, normals)}, got {given.shape}")
        before = mean.copy(), std.copy()
        sized = self._fit_inputs(x)
        good = False
        try:
            good = (self.plan() if sized is not None else plan).run(x, y, given)
        finally:
            if not good:
                mean[:], std[:] = before
                if sized is not None:
                    net.set_extra_state(sized)
        if not good:
            raise self.refusal(x)
        self.learned(x, y, drawn=noise is None)

    def plan(self) -> Plan:
        """What moves the weights, under the settings as they are: made anew if these have changed, or the weights' memory."""
        net, pairs = self.net, self._pairs()
        noise_std = getattr(net.likelihood, "noise_std", None)
        places = [(part.data_ptr(), part.stride(), part.dtype) for pair in pairs for part in (pair.mean, pair.std)]
        starts = [pair.start for pair in pairs]
        constants = self.optimizer.constants(self.optimizer.param_groups[0])
        key = net.estimator, self.samples, self.batch, noise_std, type(constants), constants, starts, id(net.noise)
        if self._planned is None or self._planned[0] != (places, key):
            weights = sum(pair.mean.numel() for pair in pairs)
            dtype = np.float32 if pairs[0].mean.dtype == torch.float32 else np.float64
            work = self._scratch(self.normals(weights), dtype)
            plan = Plan(net, pairs, self.optimizer, self.shape, self.samples, self.batch, work)
            # only now: the plan may have moved the weights to one place
            places = [(part.data_ptr(), part.stride(), part.dtype) for pair in pairs for part in (pair.mean, pair.std)]
            self._planned = (places, key), plan
        return self._planned[1]

    def counting(self, plan: Plan, times: float) -> Plan:
        """The plan for rows whose evidence counts several times, or a part of once; forgetting goes with it.

        An update then is what one update is with so many copies of the row, under a memory as many times shorter: a rate of the
        rule multiplies both. A joint step divides by the variance of what it believes, so for it the targets are as many times
        more precise.

        Raises:
            ValueError: if one update would forget everything.
        """
        group = dict(self.optimizer.param_groups[0])
        if self.net.estimator == "joint":
            group["memory"] = group["memory"] / times
            precision = plan.precision * times
        else:
            group["lr"] = group.get("lr", 1.0) * times
            precision = plan.precision
        return plan.counting(*compiled_constants(self.optimizer, plan.mean.dtype.type, group), precision)

    def learned(self, x: np.ndarray, y: np.ndarray, drawn: bool = True) -> None:
        """Count rows that a plan has learned, and look for what goes wrong now and then; `drawn` if their noise was drawn."""
        updates = len(x) // self.batch
        if drawn and self.net.estimator not in AT_MEAN:
            self.net.noise.step += updates
        self._updates += updates
        if self._updates >= self._look:
            self._look = next_look(self._updates)
            sigmas.look_at_sigmas(self.optimizer, self._updates)
            batches.look_at_chunk(self.net, self._updates, x, y)

    def refusal(self, x: np.ndarray) -> StepRefused:
        """The error for rows after which the weights cannot be used."""
        return StepRefused(
            f"learning these {len(x)} examples would leave some weights not finite or their sigma not positive, so the "
            f"chunk was refused and nothing changed: scale the inputs down (the largest is {np.abs(x).max():.3g}), or "
            f"{self.optimizer.remedy}"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_work": {}, "_planned": None}  # machine code is of one process

    def _fit_inputs(self, x: np.ndarray) -> torch.Tensor | None:
        """Let the first update's inputs tell how large they are; what the network knew before, or None if it knew already."""
        if not self.net.awaits_inputs:
            return None
        before, updates = self.net.get_extra_state(), x.reshape(-1, self.batch, x.shape[1])
        telling = np.flatnonzero(updates.any(axis=(1, 2)))
        if len(telling):  # zeros tell nothing
            self.net.fit_inputs(torch.from_numpy(updates[telling[0]]))
        return before

    def draw(self, x: np.ndarray, samples: int, seed: int = 0) -> np.ndarray:
        """Outputs ``[samples, B, outputs]`` of the network, drawn in local form; threads as torch has.

        Nothing of the network changes. The result is a function of weights, rows and seed: threads do not show in it.
        """
        shape = self.shape
        samples = whole("samples", samples)
        mean, std = share_flat([pair.mean for pair in self._pairs()]), self._drawn()
        x = checked_inputs(x, shape, mean.dtype.type)
        if len(x) == 0:
            raise ValueError(f"there is nothing to predict: got an input of shape {x.shape}")
        layout = shape.network(1, samples, 0.0)
        out = np.empty((samples, len(x), shape.sizes[-1]), mean.dtype)
        threads = max(1, min(torch.get_num_threads(), len(x) // ROWS_WORTH_A_THREAD))
        edges = np.linspace(0, len(x), threads + 1).astype(int)
        spaces = [predict.scratch(shape.sizes, samples, mean.dtype) for _ in range(threads)]
        loop = predicting_loop()
        loop(mean, std, layout, x[:1], seed, 0, out[:, :1], spaces[0])  # one thread compiles it, if need be
        with ThreadPoolExecutor(threads) as pool:
            parts = [
                pool.submit(loop, mean, std, layout, x[a:b], seed, int(a), out[:, a:b], space)
                for (a, b), space in zip(itertools.pairwise(edges), spaces, strict=True)
            ]
            for part in parts:
                part.result()
        return out

    def normals(self, weights: int) -> int:
        """Normals drawn for one update of that many weights."""
        if self.net.estimator in AT_MEAN:
            return 0
        if self.net.estimator == "weights":
            return self.samples * weights
        return self.samples * self.batch * sum(self.shape.sizes[1:])

    def _pairs(self) -> list[Pair]:
        """The network's pairs in the order in which the engine lays them out."""
        named = {pair.name: pair for pair in self.net.pairs()}
        return [named[name] for name in self.shape.parameters]

    def _drawn(self) -> np.ndarray:
        """The standard deviations that weights are drawn with, one after the other."""
        std = share_flat([pair.std for pair in self._pairs()])
        if self.net.narrowing == 1:
            return std
        with torch.no_grad():
            places = [name.rpartition(".") for name in self.shape.parameters]
            drawn = [drawn_std(self.net.module.get_submodule(owner), leaf) for owner, _, leaf in places]
            return torch.cat([s.reshape(-1) for s in drawn if s is not None]).numpy()

    def _scratch(self, normals: int, dtype: type) -> Any:
        """Scratch space of the loop, kept from chunk to chunk."""
        key = self.net.estimator, self.batch, self.samples, normals, dtype
        if key not in self._work:
            self._work = {key: scratch(self.net.estimator, self.shape, self.samples, self.batch, normals, dtype)}
        return self._work[key]


class WeightEngine:
    """Compiled learning for a plain perceptron under a weight rule.

    Args:
        net: The network; its parameters are shared, not copied.
        optimizer: Its optimiser, for the rule and the settings; the rule's state is shared too.
        batch: Examples an update.
    """

    def __init__(self, net: nn.Module, optimizer: optim.WeightOptimizer, batch: int = 1) -> None:
        reason = why_not(net, optimizer)
        if reason:
            raise ValueError(f"the engine cannot run this network: {reason}")
        shape = read_perceptron(net)
        assert isinstance(shape, Perceptron)
        self.net, self.optimizer, self.shape, self.batch = net, optimizer, shape, batch

    def learn(self, x: np.ndarray, y: np.ndarray) -> None:
        """Learn a chunk in order. Raises as `PosteriorEngine.learn` does."""
        weight, state = self._shared()
        dtype = weight.dtype.type
        x, y = checked(x, y, self.shape, Categorical(), dtype, self.batch)
        constants, idle = compiled_constants(self.optimizer, dtype)
        layout = self.shape.network(self.batch, 1, 0.0)
        work = self.shape.work(self.batch, 1, 0, dtype)
        spare = np.zeros((max(len(state), 1), self.shape.sizes[0]), dtype)
        before = weight.copy(), state.copy()
        with explained(constants):
            learning_loop("plain", type(constants), None)(weight, state, spare, layout, x, y, constants, idle, work)
        if not np.isfinite(weight.sum()):
            weight[:], state[:] = before
            raise StepRefused(
                f"learning these {len(x)} examples would leave some weights not finite, so the chunk was refused and "
                "nothing changed: lower the learning rate"
            )

    def boundary(self, x: np.ndarray, y: np.ndarray) -> None:
        """A task ended: consolidate, if the rule does."""
        self.optimizer.boundary(lambda: self._fishers(x, y))

    def _fishers(self, x: np.ndarray, y: np.ndarray) -> list[torch.Tensor]:
        """For each parameter of the optimiser, the mean over examples of the squared gradient of one."""
        weight, _ = self._shared()
        dtype = weight.dtype.type
        x, y = checked(x, y, self.shape, Categorical(), dtype, 1)
        total = np.zeros_like(weight)
        fisher_loop()(weight, self.shape.network(1, 1, 0.0), x, y, total, self.shape.work(1, 1, 0, dtype))
        parameters = dict(self.net.named_parameters())
        ordered = [parameters[name] for name in self.shape.parameters]
        pieces = torch.from_numpy(total / len(x)).split([p.numel() for p in ordered])
        fishers = {id(p): piece.view_as(p) for p, piece in zip(ordered, pieces, strict=True)}
        return [fishers[id(p)] for p in self.optimizer.param_groups[0]["params"]]

    def _shared(self) -> tuple[np.ndarray, np.ndarray]:
        parameters = dict(self.net.named_parameters())
        ordered = [parameters[name] for name in self.shape.parameters]
        weight = share_flat(ordered)
        fields = self.optimizer.file.State._fields
        states = [self.optimizer.rule_state(p) for p in ordered]
        if not fields:
            return weight, np.zeros((1, 1), weight.dtype)
        flat = torch.from_numpy(np.empty((len(fields), weight.size), weight.dtype))
        for parameter, state in zip(ordered, states, strict=True):
            self.optimizer.state[parameter] = state._asdict()
        for index, field in enumerate(fields):
            at = 0
            for parameter in ordered:
                view = flat[index, at : at + parameter.numel()].view_as(parameter)
                view.copy_(self.optimizer.state[parameter][field])
                self.optimizer.state[parameter][field] = view
                at += parameter.numel()
        return weight, flat.numpy()


def learn_together(learners: list[Any], chunks: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """Let several learners each learn a chunk of their own at the same time, on as many threads.

    Compiled loops hold no lock, so two seeds on two cores take as long as one.
    """
    with ThreadPoolExecutor(len(learners)) as pool:
        for part in [pool.submit(learner.learn, x, y) for learner, (x, y) in zip(learners, chunks, strict=True)]:
            part.result()
