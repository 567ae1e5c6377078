"""Learning a chunk of a stream in compiled code: the engines that `mesu.learners` drive."""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numba.core.errors import NumbaError
from torch import nn

from mesu import optim
from mesu.engine import linear, predict
from mesu.engine.compiled import typed
from mesu.engine.layout import Perceptron, read_perceptron, share_flat
from mesu.engine.loops import fisher_loop, learning_loop, predicting_loop
from mesu.engine.supports import checked, checked_inputs, why_not
from mesu.health import next_look
from mesu.optim import StepRefused
from mesu.optim import health as sigmas
from mesu.posterior import health as batches
from mesu.posterior.bayesian import AT_MEAN, Bayesian, Pair
from mesu.posterior.draws import drawn_std
from mesu.posterior.likelihood import Categorical, GaussianNoise
from mesu.rules.checks import whole
from mesu.rules.parts import curvature_constants, idle_constants

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
        net, shape = self.net, self.shape
        pairs = self._pairs()
        mean, std = share_flat([pair.mean for pair in pairs]), share_flat([pair.std for pair in pairs])
        dtype = mean.dtype.type
        x, y = checked(x, y, shape, net.likelihood, dtype, self.batch)
        normals = self.normals(mean.size)
        given = np.zeros((0, 0), dtype) if noise is None else np.ascontiguousarray(noise, dtype)
        if len(given) and given.shape != (len(x) // self.batch, normals):
            raise ValueError(f"noise must have shape {(len(x) // self.batch, normals)}, got {given.shape}")
        likelihood: Any = net.likelihood
        precision = likelihood.noise_std**-2 if isinstance(likelihood, GaussianNoise) else 0.0
        work = self._scratch(normals, dtype)
        layout = shape.network(self.batch, self.samples, precision)
        constants, idle = compiled_constants(self.optimizer, dtype)
        # the first update, which moves nothing, multiplies these by 0: 0 * NaN is NaN
        for buffer in (work.q, work.d, work.x2):
            buffer[:] = 0
        before = mean.copy(), std.copy()
        sized = self._fit_inputs(x)
        starts = np.array([(pair.start or 1.0) ** -2 for pair in pairs], dtype)
        counter = net.noise
        known = curvature_constants(constants)
        learn = learning_loop(net.estimator, type(constants), None if known is None else type(known))
        try:
            with explained(constants):
                negative = learn(
                    mean, std, layout, starts, x, y, given, counter.seed, counter.step, constants, idle, work
                )
        except BaseException:  # a rule that cannot be compiled: the inputs have told nothing
            mean[:], std[:] = before
            if sized is not None:
                net.set_extra_state(sized)
            raise
        if negative != 0 or not (np.isfinite(mean.sum()) and std.min() > 0 and std.max() < np.inf):
            mean[:], std[:] = before
            if sized is not None:
                net.set_extra_state(sized)
            raise StepRefused(
                f"learning these {len(x)} examples would leave some weights not finite or their sigma not positive, so the "
                f"chunk was refused and nothing changed: scale the inputs down (the largest is {np.abs(x).max():.3g}), or "
                f"{self.optimizer.remedy}"
            )
        if noise is None and normals:
            counter.step += len(x) // self.batch
        self._updates += len(x) // self.batch
        if self._updates >= self._look:
            self._look = next_look(self._updates)
            sigmas.look_at_sigmas(self.optimizer, self._updates)
            batches.look_at_chunk(net, self._updates, x, y)

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
            if self.net.estimator in AT_MEAN:
                self._work = {key: linear.scratch(self.shape.sizes, self.batch, dtype)}
            else:
                self._work = {key: self.shape.work(self.batch, self.samples, normals, dtype)}
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


def compiled_constants(optimizer: Any, dtype: type) -> tuple[Any, Any]:
    """The constants of an optimiser's rule for compiled code, and those that move nothing; None if the rule has none."""
    constants = optimizer.constants(optimizer.param_groups[0])
    idle = idle_constants(constants)
    return typed(constants, dtype), None if idle is None else typed(idle, dtype)


@contextmanager
def explained(constants: Any) -> Iterator[None]:
    """Say which rule it is that cannot be compiled."""
    try:
        yield
    except NumbaError as error:
        raise ValueError(
            f"the rule {type(constants).__module__} cannot be compiled: write its step with operators and "
            "mesu.rules.primitives only (mesu.testing.check_rule shows where), or learn with engine=False"
        ) from error


def learn_together(learners: list[Any], chunks: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """Let several learners each learn a chunk of their own at the same time, on as many threads.

    Compiled loops hold no lock, so two seeds on two cores take as long as one.
    """
    with ThreadPoolExecutor(len(learners)) as pool:
        for part in [pool.submit(learner.learn, x, y) for learner, (x, y) in zip(learners, chunks, strict=True)]:
            part.result()
