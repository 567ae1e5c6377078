"""How fast the engine is, compared with this library's torch path and with the lowest possible time, called the floor.

One process on one core, CPU time, median over interleaved rounds: other load on the machine slows all rows alike. The floor is
the elementwise update alone: the paper's rule over all means and standard deviations with a constant gradient, without forward
pass, backward pass or noise.
"""

import itertools
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from mesu import optim, rules
from mesu.engine import PosteriorEngine, WeightEngine
from mesu.engine.compiled import FLAGS, typed
from mesu.engine.kernels import apply_rule
from mesu.posterior.bayesian import Bayesian
from mesu.rules import Gaussian

SIZES = (784, 50, 10)  # the paper's Permuted MNIST network, no biases
SAMPLES = 10
ROUNDS = 7
ESTIMATORS = ("linear", "local", "weights")  # those of the engine
POSTERIORS: dict[str, Callable[[Any], Any]] = {
    "mesu-paper": lambda net: optim.MESU(net, memory=300_000, update="paper"),
    "mesu-exact": lambda net: optim.MESU(net, memory=300_000),
    "foo-vb": lambda net: optim.FOOVB(net),
}
WEIGHTS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: optim.SGD(p, 0.002),
    "ewc-online": lambda p: optim.EWCOnline(p, 0.002, 2.0, 0.2),
    "ewc-stream": lambda p: optim.EWCStream(p, 0.002, 5.0, 0.2),
    "si": lambda p: optim.SI(p, 0.002, 1e-4),
}


@numba.njit(**FLAGS)
def _floor(repeats, mean, std, g_mean, g_std, c):
    for _ in range(repeats):
        for j in range(mean.size):
            new = apply_rule(Gaussian(mean[j], std[j]), Gaussian(g_mean, g_std), c)
            mean[j] = new.mean
            std[j] = new.std


def perceptron(sizes: tuple[int, ...] = SIZES) -> nn.Sequential:
    """A network without biases."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs, bias=False), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _posterior(rule: str, estimator: str, sizes: tuple[int, ...] = SIZES, **options) -> tuple[Bayesian, Any]:
    net = Bayesian(perceptron(sizes), estimator=estimator, init="mnist", seed=0, **options)
    return net, POSTERIORS[rule](net)


def _data(rows: int, inputs: int = SIZES[0]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, inputs)).astype(np.float32), rng.integers(0, SIZES[-1], rows)


def _engine(rule: str, estimator: str | None, steps: int, sizes: tuple[int, ...] = SIZES) -> Callable[[], int]:
    """A function that makes `steps` updates in the engine and returns their number."""
    x, y = _data(steps, sizes[0])
    if estimator is None:
        net = perceptron(sizes)
        engine: Any = WeightEngine(net, WEIGHTS[rule](list(net.parameters())))
    else:
        engine = PosteriorEngine(*_posterior(rule, estimator, sizes), samples=SAMPLES)

    def run() -> int:
        engine.learn(x, y)
        return steps

    return run


def _torch(rule: str, estimator: str | None, steps: int) -> Callable[[], int]:
    """A function that makes `steps` updates on the torch path and returns their number."""
    x, y = _data(steps)
    rows = list(zip(torch.from_numpy(x).split(1), torch.from_numpy(y).split(1), strict=True))
    if estimator is None:
        net = perceptron()
        optimizer = WEIGHTS[rule](list(net.parameters()))
        loss: Callable = lambda a, b: F.cross_entropy(net(a), b)  # noqa: E731
    else:
        posterior, optimizer = _posterior(rule, estimator, vectorize=True)
        loss = lambda a, b: posterior.nll(a, b, samples=SAMPLES)  # noqa: E731

    def run() -> int:
        for a, b in rows:
            loss(a, b).backward()
            optimizer.step()
            optimizer.zero_grad()
        return steps

    return run


def _floor_pass(repeats: int) -> Callable[[], int]:
    """A function that makes the bare elementwise update `repeats` times and returns their number."""
    weights = sum(a * b for a, b in itertools.pairwise(SIZES))
    mean, std = np.full(weights, 0.1, np.float32), np.full(weights, 0.05, np.float32)
    constants = typed(rules.mesu_paper.constants(300_000), np.float32)
    tiny = np.float32(1e-6)

    def run() -> int:
        _floor(repeats, mean, std, tiny, tiny, constants)
        return repeats

    return run


def _ivon(steps: int) -> Callable[[], int] | None:
    """A function that makes `steps` updates of IVON in torch; None if ivon-opt is not installed."""
    try:
        import ivon  # type: ignore[import-not-found]
    except ImportError:
        return None
    net = perceptron()
    optimizer = ivon.IVON(net.parameters(), lr=0.1, ess=60_000)
    x, y = _data(steps)
    rows = list(zip(torch.from_numpy(x).split(1), torch.from_numpy(y).split(1), strict=True))

    def run() -> int:
        for a, b in rows:
            for _ in range(SAMPLES):
                with optimizer.sampled_params(train=True):
                    optimizer.zero_grad()
                    F.cross_entropy(net(a), b).backward()
            optimizer.step()
        return steps

    return run


def _medians(
    contenders: dict[str, Callable[[], int]], rounds: int, progress: Callable[[str], None]
) -> dict[str, float]:
    """Median CPU seconds of one update of each contender; all take turns in every round."""
    for name, run in contenders.items():
        progress(f"warming up {name}")
        run()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for round_ in range(rounds):
        progress(f"round {round_ + 1} of {rounds}")
        for name, run in contenders.items():
            began = time.process_time()
            updates = run()
            seconds[name].append((time.process_time() - began) / updates)
    return {name: statistics.median(values) for name, values in seconds.items()}


def measure(quick: bool = False, progress: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Time every rule and estimator on one core, then two seeds on two cores.

    Args:
        quick: Few updates and rounds: shows that the benchmark runs, but its numbers are too noisy to quote.
        progress: Called with a short text before each step.

    Returns:
        ``floor_us``; ``rows``, one for each rule and estimator, with ``engine_us``, ``engine_steps_per_s``,
        ``torch_steps_per_s``, and their ratios to the torch path (weights drawn, samples vectorised) and to the floor;
        ``two_seeds``, the throughput of two seeds on two cores divided by that of one seed.
    """
    scale = 0.02 if quick else 1.0
    rounds = 2 if quick else ROUNDS
    threads, cores = torch.get_num_threads(), _cores()
    torch.set_num_threads(1)
    _pin({min(cores)})
    try:
        medians = _medians(_contenders(scale), rounds, progress)
    finally:
        _pin(cores)
        torch.set_num_threads(threads)
    result = {
        "network": "-".join(map(str, SIZES)),
        "samples": SAMPLES,
        "floor_us": medians["floor"] * 1e6,
        "rows": [_row(rule, estimator, medians) for rule, estimator in _cases()],
        "torch_local_steps_per_s": 1 / medians["mesu-exact torch local"],
        "ivon_steps_per_s": 1 / medians["ivon torch"] if "ivon torch" in medians else None,
    }
    if len(cores) > 1:
        progress("two seeds on two cores")
        result["two_seeds"] = _two_seeds(int(20_000 * scale), rounds)
    return result


def _cases() -> list[tuple[str, str | None]]:
    """Every rule with every estimator that the engine has for it; None for rules of plain networks."""
    return [
        *((rule, estimator) for rule in POSTERIORS for estimator in ESTIMATORS),
        *((rule, None) for rule in WEIGHTS),
    ]


def _contenders(scale: float) -> dict[str, Callable[[], int]]:
    """What is timed, by name: each takes between a tenth of a second and a second at scale 1."""

    def few(steps: int) -> int:
        return max(2, int(steps * scale))

    contenders = {"floor": _floor_pass(int(20_000 * scale))}
    for rule in POSTERIORS:
        contenders[f"{rule} linear"] = _engine(rule, "linear", int(20_000 * scale))
        contenders[f"{rule} local"] = _engine(rule, "local", int(10_000 * scale))
        contenders[f"{rule} weights"] = _engine(rule, "weights", int(1_000 * scale))
        contenders[f"{rule} torch"] = _torch(rule, "weights", few(100))
    contenders["mesu-exact torch local"] = _torch("mesu-exact", "local", few(100))
    for rule in WEIGHTS:
        contenders[f"{rule} engine"] = _engine(rule, None, int(20_000 * scale))
        contenders[f"{rule} torch"] = _torch(rule, None, few(500))
    ivon = _ivon(few(20))
    if ivon is not None:
        contenders["ivon torch"] = ivon
    return contenders


def _row(rule: str, estimator: str | None, medians: dict[str, float]) -> dict[str, Any]:
    """One row of the table from the median seconds of an update."""
    engine, slow = medians[f"{rule} {estimator or 'engine'}"], medians[f"{rule} torch"]
    return {
        "rule": rule,
        "estimator": estimator,
        "engine_us": engine * 1e6,
        "engine_steps_per_s": 1 / engine,
        "torch_steps_per_s": 1 / slow,
        "times_torch": slow / engine,
        "times_floor": engine / medians["floor"],
    }


def _two_seeds(steps: int, rounds: int) -> float:
    """Updates per second of two seeds in parallel, divided by those of one seed alone; wall time, since cores are compared."""
    first, second = _engine("mesu-paper", "local", steps), _engine("mesu-paper", "local", steps)
    ratios = []
    with ThreadPoolExecutor(2) as pool:
        for _ in range(rounds):
            began = time.perf_counter()
            first()
            alone = time.perf_counter() - began
            began = time.perf_counter()
            for part in [pool.submit(first), pool.submit(second)]:
                part.result()
            ratios.append(2 * alone / (time.perf_counter() - began))
    return statistics.median(ratios)


def _cores() -> set[int]:
    return set(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _pin(cores: set[int]) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
