"""Learning a chunk of a stream in compiled code: which rule, which noise, what is refused."""

import hashlib
import itertools
import os
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numba.core import event
from torch import nn

from mesu import optim, rules
from mesu.engine import deterministic as plain
from mesu.engine import kernels as rows
from mesu.engine import local
from mesu.engine import predict_rows as predicting
from mesu.engine import weight_draws as sampled
from mesu.engine.layout import Perceptron, read_perceptron, share_flat
from mesu.optim import StepRefused
from mesu.posterior.bayesian import Bayesian
from mesu.posterior.likelihood import Categorical, GaussianNoise

COMPILING = "MESU_COMPILING"  # environment variable: a file to make instead of printing that something is compiled
ROWS_WORTH_A_THREAD = 64  # fewer rows than this are predicted sooner than a thread starts


class EngineFallback(UserWarning):
    """A network that the engine cannot run learns on the (slower) torch path."""


# One type of constants for each rule: compiled code is chosen by type.
class _Paper(rules.mesu.Constants):
    pass


class _Exact(rules.mesu.Constants):
    pass


class _Plain(rules.mesu.Constants):
    pass


rows.RULE_OF.update({_Paper: rules.mesu.paper, _Exact: rules.mesu.exact, _Plain: rules.mesu.exact_plain})


def _weight_types() -> dict[type, type]:
    """A type for every optimiser with a weight rule, by a name of this module: compiled code is kept on disk by it."""
    kinds = [
        kind for kind in vars(optim).values() if isinstance(kind, type) and issubclass(kind, optim.WeightOptimizer)
    ]
    types: dict[type, type] = {}
    for kind in kinds:
        if kind is not optim.WeightOptimizer:
            name = f"_Weight{kind.__name__}"
            globals()[name] = types[kind] = type(name, (kind.file.Constants,), {"__module__": __name__})
            plain.FILE_OF[types[kind]] = kind.file
    return types


WEIGHT_TYPES = _weight_types()


@cache
def _loops() -> dict[str, Any]:
    """The compiled loops, each tied to the sources of the engine and the rules, and to which optimiser has which rule."""
    folder = Path(__file__).parent
    sources = sorted([*folder.glob("*.py"), *(folder.parent / "rules").glob("*.py")])
    kinds = sorted(f"{kind.__name__}: {kind.file.__name__}" for kind in WEIGHT_TYPES)
    told = b"".join(path.read_bytes() for path in sources) + "\n".join(kinds).encode()
    fingerprint = hashlib.sha256(told).hexdigest()
    learn, fisher = plain.build(fingerprint)
    loops = {
        "local": local.build(fingerprint),
        "weights": sampled.build(fingerprint),
        "plain": learn,
        "fisher": fisher,
        "predict": predicting.build(fingerprint),
    }
    event.register("numba:compile", _Announcer(list(loops.values())))
    return loops


class _Announcer(event.Listener):
    """Says that one of these loops is being compiled, which takes a while; a loop found in the cache on disk is silent.

    Where the environment variable `MESU_COMPILING` names a file, that file is made instead: a command with several worker
    processes prints the message once, however many of them compile.
    """

    def __init__(self, loops: list[Any]) -> None:
        self.loops = loops

    def on_start(self, event: event.Event) -> None:
        """A compilation begins; numba tells of everybody's, not only of ours."""
        what: Any = event.data
        if not any(what["dispatcher"] is loop for loop in self.loops):
            return
        if told := os.environ.get(COMPILING):
            with suppress(OSError):  # a worker may outlive the command that waits for the file
                Path(told).touch()
            return
        print(
            "mesu: compiling the engine for this machine, once for each rule (about 15 s) ...",
            file=sys.stderr,
            flush=True,
        )

    def on_end(self, event: event.Event) -> None:
        """It has ended."""


def _typed(kind: type, constants: Any, dtype: type) -> Any:
    return kind(*(value if value is None else dtype(value) for value in constants))


def paper_constants(constants: rules.mesu.Constants, dtype: type) -> Any:
    """Constants that stand for the paper's rule in compiled code."""
    return _typed(_Paper, constants, dtype)


class PosteriorEngine:
    """Compiled learning for a `Bayesian` perceptron under `MESU` or `FOOVB`.

    Args:
        net: The posterior; its parameters are shared, not copied.
        optimizer: Its optimiser, for the rule and the settings.
        samples: Monte Carlo samples of each update.
        batch: Examples an update.
    """

    def __init__(self, net: Bayesian, optimizer: optim.PosteriorOptimizer, samples: int, batch: int = 1) -> None:
        reason = why_not(net, optimizer)
        if reason:
            raise ValueError(f"the engine cannot run this network: {reason}")
        shape = read_perceptron(net.module)
        assert isinstance(shape, Perceptron)
        self.net, self.optimizer, self.shape = net, optimizer, shape
        self.samples, self.batch = samples, batch
        self._work: dict[Any, Any] = {}

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
        named = {pair.name: pair for pair in net.pairs()}
        mean = share_flat([named[name].mean for name in shape.parameters])
        std = share_flat([named[name].std for name in shape.parameters])
        dtype = mean.dtype.type
        x, y = checked(x, y, shape, net.likelihood, dtype, self.batch)
        normals = self.normals(mean.size)
        given = np.zeros((0, 0), dtype) if noise is None else np.ascontiguousarray(noise, dtype)
        if len(given) and given.shape != (len(x) // self.batch, normals):
            raise ValueError(f"noise must have shape {(len(x) // self.batch, normals)}, got {given.shape}")
        precision = net.likelihood.noise_std**-2 if isinstance(net.likelihood, GaussianNoise) else 0.0
        key = self.batch, self.samples, normals, dtype
        if key not in self._work:
            self._work = {key: shape.work(*key)}
        layout = shape.network(self.batch, self.samples, precision)
        constants = self._constants(dtype)
        wide = None if constants.max_std is None else dtype(np.inf)
        idle = constants._replace(lr_mean=dtype(0), lr_std=dtype(0), max_std=wide)
        work = self._work[key]
        for left in (
            work.q,
            work.d,
            work.x2,
        ):  # the loop begins with an idle update from these: nothing times NaN is NaN
            left[:] = 0
        before = mean.copy(), std.copy()
        counter = net.noise
        negative = _loops()[net.estimator](
            mean, std, layout, x, y, given, counter.seed, counter.step, constants, idle, work
        )
        if negative != 0 or not (np.isfinite(mean.sum()) and std.min() > 0 and std.max() < np.inf):
            mean[:], std[:] = before
            raise StepRefused(
                f"learning these {len(x)} examples would leave some weights not finite or their sigma not positive, so the "
                f"chunk was refused and nothing changed: scale the inputs down (the largest is {np.abs(x).max():.3g}), or "
                f"{self.optimizer.remedy}"
            )
        if noise is None:
            counter.step += len(x) // self.batch

    def draw(self, x: np.ndarray, samples: int, seed: int = 0) -> np.ndarray:
        """Outputs ``[samples, B, outputs]`` of the network, drawn in local form; threads as torch has.

        Nothing of the network changes. The result is a function of weights, rows and seed: threads do not show in it.
        """
        net, shape = self.net, self.shape
        if not isinstance(samples, int) or samples < 1:
            raise ValueError(f"samples must be a whole number, 1 or more, got {samples!r}")
        named = {pair.name: pair for pair in net.pairs()}
        mean = share_flat([named[name].mean for name in shape.parameters])
        std = share_flat([named[name].std for name in shape.parameters])
        x = checked_inputs(x, shape, mean.dtype.type)
        if len(x) == 0:
            raise ValueError(f"there is nothing to predict: got an input of shape {x.shape}")
        layout = shape.network(1, samples, 0.0)
        out = np.empty((samples, len(x), shape.sizes[-1]), mean.dtype)
        threads = max(1, min(torch.get_num_threads(), len(x) // ROWS_WORTH_A_THREAD))
        edges = np.linspace(0, len(x), threads + 1).astype(int)
        spaces = [predicting.scratch(shape.sizes, samples, mean.dtype) for _ in range(threads)]
        _loops()["predict"](
            mean, std, layout, x[:1], seed, 0, out[:, :1], spaces[0]
        )  # compiled, if need be, by one thread
        with ThreadPoolExecutor(threads) as pool:
            parts = [
                pool.submit(_loops()["predict"], mean, std, layout, x[a:b], seed, int(a), out[:, a:b], space)
                for (a, b), space in zip(itertools.pairwise(edges), spaces, strict=True)
            ]
            for part in parts:
                part.result()
        return out

    def normals(self, weights: int) -> int:
        """Normals drawn for one update of that many weights."""
        if self.net.estimator == "weights":
            return self.samples * weights
        return self.samples * self.batch * sum(self.shape.sizes[1:])

    def _constants(self, dtype: type) -> Any:
        group = self.optimizer.param_groups[0]
        if isinstance(self.optimizer, optim.FOOVB):
            names = ("lr_mean", "lr_std", "max_step")
            return _typed(_Plain, rules.foovb.constants(**{n: group[n] for n in names}), dtype)
        names = ("memory", "prior_mean", "prior_std", "lr_mean", "lr_std", "max_step", "max_std")
        kind = {"exact": _Exact, "paper": _Paper}[group["update"]]
        return _typed(kind, rules.mesu.constants(**{n: group[n] for n in names}), dtype)


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
        constants = _typed(
            WEIGHT_TYPES[type(self.optimizer)], self.optimizer.constants(self.optimizer.param_groups[0]), dtype
        )
        idle = constants._replace(lr=dtype(0))
        layout = self.shape.network(self.batch, 1, 0.0)
        work = self.shape.work(self.batch, 1, 0, dtype)
        spare = np.zeros((max(len(state), 1), self.shape.sizes[0]), dtype)
        before = weight.copy(), state.copy()
        _loops()["plain"](weight, state, spare, layout, x, y, constants, idle, work)
        if not np.isfinite(weight.sum()):
            weight[:], state[:] = before
            raise StepRefused(
                f"learning these {len(x)} examples would leave some weights not finite, so the chunk was refused and "
                "nothing changed: lower the learning rate"
            )

    def boundary(self, x: np.ndarray, y: np.ndarray) -> None:
        """A task ended: consolidate, if the rule does."""
        if isinstance(self.optimizer, optim.EWC):
            weight, _ = self._shared()
            dtype = weight.dtype.type
            x, y = checked(x, y, self.shape, Categorical(), dtype, 1)
            total = np.zeros_like(weight)
            _loops()["fisher"](weight, self.shape.network(1, 1, 0.0), x, y, total, self.shape.work(1, 1, 0, dtype))
            parameters = dict(self.net.named_parameters())
            pieces = torch.from_numpy(total / len(x)).split([parameters[n].numel() for n in self.shape.parameters])
            fishers = {n: f.view_as(parameters[n]) for n, f in zip(self.shape.parameters, pieces, strict=True)}
            by_parameter = {id(parameters[n]): fishers[n] for n in fishers}
            self.optimizer.consolidate([by_parameter[id(p)] for p in self.optimizer.param_groups[0]["params"]])
        elif isinstance(self.optimizer, optim.SI):
            self.optimizer.consolidate()

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


def why_not(net: nn.Module, optimizer: Any) -> str | None:
    """Why the engine cannot run this network under this optimiser; None if it can."""
    module = net.module if isinstance(net, Bayesian) else net
    shape = read_perceptron(module)
    if isinstance(shape, str):
        return shape
    if len(optimizer.param_groups) != 1:
        return "its parameters are in several groups with settings of their own (max_std='start' makes them: give a number)"
    if isinstance(net, Bayesian):
        if type(optimizer) not in (optim.MESU, optim.FOOVB):
            return f"there is no compiled rule for {type(optimizer).__name__}"
        if sorted(pair.name for pair in net.pairs()) != sorted(shape.parameters):
            return "some of its parameters are deterministic"
    elif type(optimizer) not in WEIGHT_TYPES:
        return f"there is no compiled rule for {type(optimizer).__name__}"
    elif optimizer.inner is not None:
        return f"{type(optimizer.inner).__name__} moves its weights"
    elif len(optimizer.file.State._fields) > plain.MOST_STATE:
        return f"its rule remembers more than {plain.MOST_STATE} numbers of a weight"
    parameters = list(module.parameters())
    if {id(p) for p in optimizer.param_groups[0]["params"]} != {id(p) for p in parameters}:
        return "the optimiser does not move all of its parameters"
    if not all(p.requires_grad for p in parameters):
        return "some of its parameters are frozen"
    if any(p.device.type != "cpu" for p in parameters):
        return f"it is on {parameters[0].device}, and the engine is for the CPU"
    if any(p.dtype not in (torch.float32, torch.float64) for p in parameters) or len({p.dtype for p in parameters}) > 1:
        return f"its parameters are {parameters[0].dtype}, and the engine knows float32 and float64"
    return None


def warn_fallback(net: nn.Module, reason: str) -> None:
    """Say once that a network learns on the torch path, and why."""
    warnings.warn(
        f"the compiled engine cannot run this {type(net).__name__}, so it learns on the torch path: {reason}",
        EngineFallback,
        stacklevel=3,
    )


def checked_inputs(x, shape: Perceptron, dtype: type) -> np.ndarray:
    """Inputs as an array for compiled code, or a `ValueError` that names what is wrong."""
    x = np.asarray(x)
    x = x.reshape(len(x), -1) if x.ndim > 2 else x
    if x.ndim != 2 or x.shape[1] != shape.sizes[0]:
        raise ValueError(f"an input of shape {x.shape} does not fit: the first layer takes {shape.sizes[0]} features")
    x = np.ascontiguousarray(x, dtype)
    if not np.isfinite(x).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
        raise ValueError(f"inputs must be finite, got {x[where]} at index {where}: drop or fill those rows first")
    return x


def checked(x, y, shape: Perceptron, likelihood: Any, dtype: type, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """The chunk as arrays for compiled code, or a `ValueError` that names what is wrong, before anything is learned."""
    x, y = checked_inputs(x, shape, dtype), np.asarray(y)
    if len(x) == 0 or len(x) != len(y):
        raise ValueError(f"got {len(x)} inputs and {len(y)} targets: there must be as many, and some")
    if len(x) % batch:
        raise ValueError(
            f"{len(x)} examples cannot be cut into batches of {batch}: leave out the last {len(x) % batch}, or keep them for "
            "the next chunk"
        )
    outputs = shape.sizes[-1]
    if isinstance(likelihood, GaussianNoise):
        y = np.ascontiguousarray(y, dtype)
        if y.shape != (len(x), outputs):
            raise ValueError(f"targets of shape {y.shape} do not match the network's outputs {(len(x), outputs)}")
        if not np.isfinite(y).all():
            raise ValueError("targets must be finite: drop or fill the rows that are not")
        return x, y
    likelihood.check(torch.from_numpy(np.ascontiguousarray(y)))
    if y.ndim != 1:
        raise ValueError(f"class labels must be one a row, got an array of shape {y.shape}")
    if y.max() >= outputs:
        raise ValueError(
            f"label {int(y.max())} is outside the head, which has {outputs} classes (0 to {outputs - 1}): "
            "give the last layer more outputs"
        )
    return x, np.ascontiguousarray(y, np.int64)
