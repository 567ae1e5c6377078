"""A compiled loop with all that it needs except the rows: made once, run for every chunk.

To prepare views of the weights, scratch space, constants and the machine code itself takes twenty times as long as a small
network needs to learn a row. A plan is good as long as the settings stay and the weights keep their memory.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
from numba.core.errors import NumbaError

from mesu.engine import linear
from mesu.engine.compiled import on_disk, typed
from mesu.engine.layout import Perceptron, share_flat
from mesu.engine.loops import learning_loop
from mesu.posterior.bayesian import AT_MEAN, Bayesian, Pair
from mesu.posterior.likelihood import GaussianNoise
from mesu.rules.parts import curvature_constants, idle_constants


class Plan:
    """What moves the weights of one network under one rule.

    Args:
        net: The posterior; its parameters are shared, not copied.
        pairs: Its pairs, in the order in which the engine lays them out.
        optimizer: Its optimiser, for the rule and the settings as they are now.
        shape: The network's.
        samples: Monte Carlo samples of each update.
        batch: Examples an update.
        work: Scratch space, as `scratch` makes it.
    """

    def __init__(
        self, net: Bayesian, pairs: list[Pair], optimizer: Any, shape: Perceptron, samples: int, batch: int, work: Any
    ) -> None:
        self.mean = share_flat([pair.mean for pair in pairs])
        self.std = share_flat([pair.std for pair in pairs])
        self.noise = net.noise
        dtype = self.mean.dtype.type
        likelihood: Any = net.likelihood
        numbers = isinstance(likelihood, GaussianNoise)
        constants, idle = compiled_constants(optimizer, dtype)
        known = curvature_constants(constants)
        starts = np.array([(pair.start or 1.0) ** -2 for pair in pairs], dtype)
        layout = shape.network(batch, samples, likelihood.noise_std**-2 if numbers else 0.0)
        self._first = self.mean, self.std, layout, starts
        self._last = constants, idle, work
        self.undrawn = np.zeros((0, 0), dtype)  # noise that is drawn and not given
        x = np.zeros((1, shape.sizes[0]), dtype)
        y = np.zeros((1, shape.sizes[-1]), dtype) if numbers else np.zeros(1, np.int64)
        # the first update, which moves nothing, multiplies these by 0: 0 * NaN is NaN
        self._cleared = [] if net.estimator in AT_MEAN else [work.q, work.d, work.x2]
        loop = learning_loop(net.estimator, type(constants), None if known is None else type(known))
        with explained(constants):
            self._code = machine_code(
                loop, *self._first, x, y, self.undrawn, self.noise.seed, self.noise.step, *self._last
            )

    def run(self, x: np.ndarray, y: np.ndarray, given: np.ndarray | None = None) -> bool:
        """Learn rows in order. Gives whether the weights can be used; if not, the caller must restore them from a copy.

        Args:
            x: Inputs ``[T, d]``, finite, in the precision of the weights and row after row in memory.
            y: Class numbers ``[T]`` in 64 bits, or targets ``[T, outputs]`` in the precision of the weights.
            given: Normals to use instead of the network's own, a row for each update.
        """
        for buffer in self._cleared:
            buffer[:] = 0
        noise = self.undrawn if given is None else given
        negative = self._code(*self._first, x, y, noise, self.noise.seed, self.noise.step, *self._last)
        return negative == 0 and sound(self.mean, self.std)

    def counting(self, constants: Any, idle: Any, precision: float) -> "Plan":
        """The same plan with other constants of the rule, and another precision of the targets."""
        twin = copy.copy(self)
        mean, std, layout, starts = self._first
        twin._first = mean, std, layout._replace(precision=precision), starts
        twin._last = constants, idle, self._last[-1]
        return twin

    @property
    def precision(self) -> float:
        """Of the targets: 1 / noise_std^2; 0 for classes."""
        return self._first[2].precision


def scratch(estimator: str, shape: Perceptron, samples: int, batch: int, normals: int, dtype: type) -> Any:
    """Scratch space of the loop of an estimator."""
    if estimator in AT_MEAN:
        return linear.scratch(shape.sizes, batch, dtype)
    return shape.work(batch, samples, normals, dtype)


def compiled_constants(optimizer: Any, dtype: type, group: dict | None = None) -> tuple[Any, Any]:
    """The constants of an optimiser's rule for compiled code, and those that move nothing; None if the rule has none.

    They are those of a `group` of settings, by default the optimiser's first.
    """
    constants = optimizer.constants(optimizer.param_groups[0] if group is None else group)
    idle = idle_constants(constants)
    return typed(constants, dtype), None if idle is None else typed(idle, dtype)


def machine_code(loop: Any, *arguments: Any) -> Any:
    """The machine code of a loop for arguments of the types that these have.

    A call of the loop finds out the types of all its arguments first, which for dozens of arrays takes longer than to learn a
    row. The machine code takes them for granted.
    """
    return loop.compile(tuple(map(numba.typeof, arguments)))


@on_disk(flags={"error_model": "numpy", "nogil": True})
def sound(mean, std):
    """Whether all means are finite and all sigmas positive and finite."""
    good = True
    for i in range(mean.size):
        good &= (abs(mean[i]) < np.inf) & (std[i] > 0) & (std[i] < np.inf)
    return good


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
