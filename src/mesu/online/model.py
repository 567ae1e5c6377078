"""A network that lives on a stream: it grows with it, is asked from any thread, and never loses what it learned.

All that it is at one moment is a `Moment`, which is never written to: predictions are made from one, a refused chunk goes back
to one, and one is what a file holds. A learner, woken from it in the compiled engine, learns a chunk and leaves the next.

What happens to a row does not depend on how the stream is cut into chunks. If its class is new, the head gets an output. It
takes part in the running means that standardise it. It is predicted, which tells what is usual on this stream and how noisy
targets are; the weights for this are those at the last of some fixed row numbers, so that many rows go at once. Only then is it
learned.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from mesu.engine import predict as answers
from mesu.engine.layout import share_flat
from mesu.engine.predict import Answer, Weights
from mesu.learners import BayesianLearner
from mesu.online.scaling import BROKEN, FURTHEST, KNOWN, Scale, follow, of_whole, standardised, unknown, widened
from mesu.optim import MESU
from mesu.posterior.bayesian import Bayesian
from mesu.rules import checks

WINDOW = 1024  # rows back that "usual" reaches: enough for a quantile of one in a hundred, and soon past the first rows
BLOCK = 256  # rows between two looks at the weights for such predictions
LARGEST = 1e12  # input that is not standardised: beyond, single precision does not hold the variances
FINEST = 1e-3  # least noise of a target, in units of its spread: a stream without noise must not stop the weights
DOUBT = 16  # rows of pure noise that are assumed before the first: one lucky prediction is no reason to trust targets blindly
MAX_STEP = 1.0  # sigmas: keeps a single wild row from throwing the weights about
DOUBLE = 2e6  # updates: a longer memory forgets less in one than single precision can hold


@dataclass(frozen=True)
class Settings:
    """What a network on a stream is made with."""

    hidden: tuple[int, ...]  # units of each hidden layer
    memory: float  # examples
    prior_std: float
    samples: int  # of each training step
    predict_samples: int
    standardise: bool  # inputs; targets always are
    regression: bool
    seed: int
    gaps: bool = False  # inputs may be missing, as NaN: they count as their column's mean, or as 0 if not standardised
    init_scale: float = 1.0  # of the first sigmas

    def __post_init__(self) -> None:
        checks.memory_window(self.memory)
        checks.precision(self.prior_std)
        checks.positive("init_scale", self.init_scale)
        for width in self.hidden:
            _whole("hidden", width, 1)
        _whole("samples", self.samples, 1)
        _whole("predict_samples", self.predict_samples, 2)

    @property
    def dtype(self) -> type:
        """Precision of the weights."""
        return np.float64 if DOUBLE < self.memory < float("inf") else np.float32

    def must_be(self, given: "Settings", remedy: str) -> None:
        """Refuse, by name, settings other than these, with which a model began."""
        for field in fields(self):
            began, now = getattr(self, field.name), getattr(given, field.name)
            if now != began:
                raise ValueError(
                    f"{field.name} is {now!r} now, but this model began with {began!r}: {remedy}, or set it back"
                )


@dataclass(frozen=True)
class Moment:
    """Everything that a network on a stream is at one moment. Nothing in it is ever written to."""

    settings: Settings
    weights: Weights
    judge: Weights  # the weights some rows ago, by which rows are predicted before they are learned
    inputs: Scale
    targets: Scale
    frame: tuple[float, float]  # mean and spread of the targets in whose units the network answers
    labels: tuple  # of the outputs, in the order in which they came; empty for regression
    rows: int  # examples learned
    updates: int  # of the weights: more than rows, where a set was gone over several times
    usual: np.ndarray  # epistemic uncertainty of the last rows, each before it was learned
    misses: np.ndarray  # squared errors of the same predictions, in units of the frame
    noise_std: float  # of the targets, in the same units: by how much predictions have lately missed

    def drawing(self, predict_samples: int) -> "Moment":
        """The same, with predictions averaged over this many draws."""
        if predict_samples == self.settings.predict_samples:
            return self
        return replace(self, settings=replace(self.settings, predict_samples=predict_samples))

    def inputs_for(self, x: np.ndarray) -> np.ndarray:
        """Rows as the network takes them.

        Raises:
            ValueError: for another width, and values that are not finite or too large.
        """
        x = fitting(x, self.weights.sizes[0], self.settings.gaps)
        if self.settings.standardise:
            return standardised(self.inputs, x).astype(self.settings.dtype)
        x = np.nan_to_num(x) if self.settings.gaps else x
        if np.abs(x).max(initial=0.0) > LARGEST:
            where = tuple(int(i) for i in np.argwhere(np.abs(x) > LARGEST)[0])
            raise ValueError(f"inputs must be smaller, got {x[where]:.3g} at index {where}: use standardise=True")
        return x.astype(self.settings.dtype)

    def answer(self, x: np.ndarray) -> Answer:
        """What is predicted for rows; the columns of probabilities are in the order of `labels`."""
        answer = self._by(self.weights, self.inputs_for(x))
        if not self.settings.regression:
            return answer
        centre, spread = self.frame
        return Answer(centre + spread * answer.value, *(spread**2 * variance for variance in answer[1:]))

    def strangeness(self, x: np.ndarray) -> np.ndarray:
        """Epistemic uncertainty of rows, in the units of `usual`."""
        return self._by(self.weights, self.inputs_for(x)).epistemic

    def _by(self, weights: Weights, z: np.ndarray) -> Answer:
        if self.settings.regression:
            answer = answers.regress(weights, z, self.settings.predict_samples, self.noise_std**2)
        else:
            answer = answers.classify(weights, z, self.settings.predict_samples)
        if not np.isfinite(answer.epistemic).all():
            raise ValueError(
                f"inputs must be smaller, got one of size {np.abs(z).max():.3g} for the network, whose answer is not a finite "
                "number: scale the columns down"
            )
        return answer

    def judged(self, z: np.ndarray, y: np.ndarray) -> "Moment":
        """After predicting rows that are about to be learned."""
        answer = self._by(self.judge, z)
        usual = np.concatenate([self.usual, answer.epistemic])[-WINDOW:]
        if not self.settings.regression:
            return replace(self, usual=usual)
        misses = np.concatenate([self.misses, (y[:, 0] - answer.value) ** 2])[-WINDOW:]
        return replace(self, usual=usual, misses=misses)

    def judged_by(self, weights: Weights) -> "Moment":
        """With other weights to judge the next rows by, and stock taken of the noise."""
        if not self.settings.regression or not len(self.usual):
            return replace(self, judge=weights)
        # no less than the weights leave open: a target trusted more than the network itself makes it leap
        noise_var = max(float(self.misses.mean()), float(self.usual.mean()), FINEST**2)
        return replace(self, judge=weights, noise_std=noise_var**0.5)


class Stream:
    """A growing perceptron under MESU, from its first row on. One thread learns at a time; any number ask.

    Args:
        settings: What it is made with.
        inputs: Columns of the first rows.
        moment: Go on from here instead of from the start.
    """

    def __init__(self, settings: Settings, inputs: int, moment: Moment | None = None) -> None:
        self._lock = threading.Lock()
        self.moment = moment or begin(settings, inputs)
        self._take(wake(self.moment))

    def learn(self, x: np.ndarray, y: np.ndarray, labels: Iterable = ()) -> None:
        """Learn rows in order: all of them, or none if one is refused.

        Args:
            x: Inputs ``[T, d]``.
            y: Labels ``[T]`` or real targets ``[T]``.
            labels: Classes that will come, if they are known; others are taken as they appear.

        Raises:
            ValueError: naming what is wrong with the rows; nothing has changed then.
        """
        with self._changing() as now:
            x, y = self._checked(now, x, y)
            now = self._with_labels(now, labels)
            if now.settings.regression:
                numbers, fresh = y, []
            else:
                numbers, fresh = _numbered(now.labels, y)
            # rows before which the head gets an output
            edges = [0, *(at for at, _ in fresh if at > 0), len(x)]
            names = dict(fresh)
            for start, end in pairwise(edges):
                if start in names:
                    now = self._with_labels(now, [names[start]])
                now = self._learn(now, x[start:end], numbers[start:end], fixed=False)
            self._leave(replace(now, rows=now.rows + len(x)))

    def study(self, x: np.ndarray, y: np.ndarray, passes: int, order: np.random.RandomState) -> None:
        """Learn a first set that is there as a whole: standardised as a whole, gone over `passes` times in random order.

        Each pass counts as new evidence, which a small set needs; the memory stays one of examples, of `passes` visits each.
        """
        with self._changing() as now:
            x, y = self._checked(now, x, y)
            numbers, memory = y, now.settings.memory
            if now.settings.standardise:
                now = replace(now, inputs=of_whole(x, memory))
            if now.settings.regression:
                targets = of_whole(y[:, None], memory)
                now = replace(now, targets=targets, frame=_frame(targets))
            else:
                now = self._with_labels(now, np.unique(y).tolist())
                numbers, _ = _numbered(now.labels, y)
            self._learner.optimizer.param_groups[0]["memory"] = memory * passes
            for _ in range(passes):
                shuffled = order.permutation(len(x))
                now = self._learn(now, x[shuffled], numbers[shuffled], fixed=True)
            self._learner.optimizer.param_groups[0]["memory"] = memory
            self._leave(replace(now, rows=now.rows + len(x)))

    def draw(self, predict_samples: int) -> None:
        """Average predictions over this many draws from now on."""
        with self._lock:
            self.moment = self.moment.drawing(predict_samples)

    def widen(self, inputs: int) -> None:
        """Take rows with more columns from now on, the new ones after those that are known."""
        with self._changing() as now:
            if inputs < now.weights.sizes[0]:
                raise ValueError(f"a network with {now.weights.sizes[0]} inputs cannot be narrowed to {inputs}")
            if inputs > now.weights.sizes[0]:
                now = self._grown(now, inputs, now.weights.sizes[-1])
                self._leave(replace(now, inputs=widened(now.inputs, inputs)))

    @contextmanager
    def _changing(self) -> Iterator[Moment]:
        """The moment to go on from; the learner goes back to it if something goes wrong on the way."""
        with self._lock:
            before = self.moment
            try:
                yield before
            except BaseException:
                self.moment = before
                self._take(wake(before))
                raise

    def _take(self, learner: BayesianLearner) -> None:
        self._learner, self._live = learner, _shared(learner.net)

    def _leave(self, now: Moment) -> None:
        self.moment = replace(now, weights=_copied(self._live))

    def _checked(self, now: Moment, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x, y = fitting(x, now.weights.sizes[0], now.settings.gaps), np.asarray(y)
        if len(x) == 0 or y.shape != (len(x),):
            raise ValueError(
                f"got {len(x)} inputs and targets of shape {y.shape}: there must be one for each, and some"
            )
        if now.settings.regression and not np.isfinite(y).all():
            raise ValueError(f"targets must be finite, got {y[~np.isfinite(y)][0]}: drop or fill those rows first")
        return x, y

    def _learn(self, now: Moment, x: np.ndarray, y: np.ndarray, fixed: bool) -> Moment:
        """Learn rows whose classes are all known; `fixed` leaves the running means as they are."""
        at, memory, regression = 0, now.settings.memory, now.settings.regression
        while at < len(x):
            piece = slice(at, min(len(x), at + _border_after(now.updates) - now.updates))
            target = y[piece]
            if _is_border(now.updates):
                now = now if fixed or not regression else self._reframed(now, target[:1])
                now = self._looked(now)
            if fixed or not now.settings.standardise:
                z = now.inputs_for(x[piece])
            else:
                scale, z = follow(now.inputs, x[piece], memory)
                now, z = replace(now, inputs=scale), z.astype(now.settings.dtype)
            if regression:
                now = now if fixed else replace(now, targets=follow(now.targets, target[:, None], memory)[0])
                target = np.clip((target[:, None] - now.frame[0]) / now.frame[1], -FURTHEST, FURTHEST)
            now = now.judged(z, target)
            self._learner.learn(z, target)
            now = replace(now, updates=now.updates + len(z))
            at += len(z)
        return now

    def _with_labels(self, now: Moment, labels: Iterable) -> Moment:
        """With an output for each of these classes."""
        labels = tuple(dict.fromkeys((*now.labels, *labels)))
        _refuse_mixed(labels)
        if len(labels) > len(now.labels):
            # a network starts with one output, which the first class takes
            if len(labels) > 1:
                now = self._grown(now, now.weights.sizes[0], len(labels))
            now = replace(now, labels=labels)
        return now

    def _grown(self, now: Moment, inputs: int, outputs: int) -> Moment:
        """With more inputs or outputs: their weights as at a start, all others as they are."""
        fresh = begin(now.settings, inputs, outputs)
        learner = wake(replace(fresh, updates=now.updates, noise_std=now.noise_std))
        with torch.no_grad():
            for old, new in zip(self._learner.net.pairs(), learner.net.pairs(), strict=True):
                known = tuple(slice(length) for length in old.mean.shape)
                new.mean[known], new.std[known] = old.mean, old.std
        self._take(learner)
        return self._looked(now)

    def _reframed(self, now: Moment, first: np.ndarray) -> Moment:
        """In the units that targets have by now, the next one included; what the network answers stays the same."""
        (centre, spread), frame = now.frame, _frame(follow(now.targets, first[:, None], now.settings.memory)[0])
        ratio = spread / frame[1]
        # there is nothing to keep yet, or what there is are answers in the units of a broken target
        if now.updates < KNOWN or (now.updates == KNOWN and ratio > BROKEN / KNOWN):
            return replace(now, frame=frame)
        *_, weight, bias = self._learner.net.pairs()
        with torch.no_grad():
            # sigmas stay: like the prior's, they are in units of the spread
            weight.mean.mul_(ratio)
            bias.mean.mul_(ratio).add_((centre - frame[0]) / frame[1])
        return replace(now, frame=frame, misses=now.misses * ratio**2)

    def _looked(self, now: Moment) -> Moment:
        now = now.judged_by(_copied(self._live))
        if now.settings.regression:
            self._learner.net.likelihood.noise_std = now.noise_std  # type: ignore[union-attr]
        return now

    def __getstate__(self) -> dict[str, Any]:
        return {"moment": self.moment}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        moment = owned(kept["moment"])
        self.__init__(moment.settings, moment.weights.sizes[0], moment)


def begin(settings: Settings, inputs: int, outputs: int = 1) -> Moment:
    """A network that has seen nothing: the start is a function of the settings and the sizes."""
    sizes = (inputs, *settings.hidden, outputs)
    draw = np.random.default_rng([settings.seed, *sizes])
    net = _posterior(settings, sizes)
    with torch.no_grad():
        for layer in _layers(net):
            for parameter in (layer.weight, layer.bias):
                start = draw.uniform(-1, 1, parameter.shape) / layer.in_features**0.5  # as torch's own start
                parameter.copy_(torch.from_numpy(start))
    weights = _shared(net)
    return Moment(
        settings=settings,
        weights=weights,
        judge=weights,
        inputs=unknown(inputs),
        targets=unknown(1),
        frame=(0.0, 1.0),
        labels=(),
        rows=0,
        updates=0,
        usual=np.empty(0),
        misses=np.ones(DOUBT if settings.regression else 0),
        noise_std=1.0,
    )


def owned(moment: Moment) -> Moment:
    """The same moment in arrays of its own: those of a file may be there for reading only."""

    def copied(part: Any) -> Any:
        if isinstance(part, np.ndarray):
            return np.array(part)
        return type(part)(*map(copied, part)) if isinstance(part, Weights | Scale) else part

    return replace(moment, **{field.name: copied(getattr(moment, field.name)) for field in fields(moment)})


def wake(moment: Moment) -> BayesianLearner:
    """The learner that goes on from a moment, bit for bit."""
    settings = moment.settings
    net = _posterior(settings, moment.weights.sizes, moment.noise_std)
    mean, std, _ = _shared(net)
    mean[:], std[:] = moment.weights.mean, moment.weights.std
    net.noise.step = moment.updates
    optimizer = MESU(net, memory=settings.memory, prior_std=settings.prior_std, max_step=MAX_STEP)
    return BayesianLearner(net, optimizer, samples=settings.samples)


def _posterior(settings: Settings, sizes: tuple[int, ...], noise_std: float = 1.0) -> Bayesian:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        # no weights yet: torch's own would come from, and change, its global generator
        layers += [nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu"), nn.ReLU()]
    likelihood = "gaussian" if settings.regression else "categorical"
    net = Bayesian(
        nn.Sequential(*layers[:-1]),
        likelihood=likelihood,
        noise_std=noise_std,
        init_scale=settings.init_scale,
        seed=settings.seed,
    )
    return net.double() if settings.dtype is np.float64 else net


def _layers(net: Bayesian) -> list[nn.Linear]:
    return [module for module in net.modules() if isinstance(module, nn.Linear)]


def _shared(net: Bayesian) -> Weights:
    """The weights of a network as flat arrays, which change when it learns."""
    pairs, layers = list(net.pairs()), _layers(net)
    sizes = (layers[0].in_features, *(layer.out_features for layer in layers))
    return Weights(share_flat([pair.mean for pair in pairs]), share_flat([pair.std for pair in pairs]), sizes)


def _copied(weights: Weights) -> Weights:
    return Weights(weights.mean.copy(), weights.std.copy(), weights.sizes)


def fitting(x: np.ndarray, inputs: int, gaps: bool = False) -> np.ndarray:
    """Rows in double precision, if they have this many columns and are finite; with `gaps` they may be NaN."""
    x = np.asarray(x, np.float64)
    if x.ndim != 2 or x.shape[1] != inputs:
        raise ValueError(f"an input of shape {x.shape} does not fit: the network takes {inputs} columns")
    refused = np.isinf(x) if gaps else ~np.isfinite(x)
    if refused.any():
        where = tuple(int(i) for i in np.argwhere(refused)[0])
        raise ValueError(f"inputs must be finite, got {x[where]} at index {where}: drop or fill those rows first")
    return x


def _border_after(updates: int) -> int:
    """The next fixed row number: 1, 2, 4, ... and then every 256."""
    return 1 << updates.bit_length() if updates < BLOCK else (updates // BLOCK + 1) * BLOCK


def _is_border(updates: int) -> bool:
    return updates == 0 or _border_after(updates - 1) == updates


def _frame(targets: Scale) -> tuple[float, float]:
    return float(targets.mean[0]), float(targets.spread[0])


def _numbered(labels: tuple, y: np.ndarray) -> tuple[np.ndarray, list[tuple[int, Any]]]:
    """Each row's class as the number of its output, and (row, label) of those that are new, in order of appearance."""
    number = {label: i for i, label in enumerate(labels)}
    numbers = [number.setdefault(label, len(number)) for label in y.tolist()]
    fresh = [(numbers.index(i), label) for label, i in list(number.items())[len(labels) :]]
    return np.array(numbers, np.int64), fresh


def _refuse_mixed(labels: tuple) -> None:
    words = [label for label in labels if isinstance(label, str)]
    others = [label for label in labels if not isinstance(label, str)]
    if words and others:
        raise ValueError(
            f"labels must be all words or all numbers, got {words[0]!r} and {others[0]!r}: make them one kind first"
        )


def _whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number, {least} or more, got {value!r}")
