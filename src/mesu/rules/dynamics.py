"""How sigma moves while the data stay as they are (Proposition 5), and how to choose rates by it.

With H the curvature of the cost of one update and gamma = lr_std / 2, eq. 9 in continuous time is a Bernoulli equation,

    sigma' = gamma/N sigma - gamma/N (N H + 1/sp^2) sigma^3                                                    eq. 15

    sigma(t)^2 = sigma_0^2 / ( e^(-2 t/t_c) + sigma_0^2 (N H + 1/sp^2) (1 - e^(-2 t/t_c)) ),    t_c = N / gamma

and sigma comes to rest where 1/sigma^2 = N H + 1/sp^2. The timescale t_c depends on neither sigma_0 nor H. The precision
1/sigma^2 comes a factor e nearer to its rest in half of it, N / lr_std updates.
"""

from math import inf

import numpy as np

from mesu.rules import checks


def timescale(memory: float, lr_std: float = 1.0) -> float:
    """The paper's t_c = N / gamma, in updates: how long sigma takes to come to rest, whatever its start.

    Args:
        memory: N, in updates.
        lr_std: Rate of sigma; gamma is half of it.

    Example:
        >>> mesu.rules.dynamics.timescale(500_000, lr_std=132)
        7575.757575757576
    """
    memory, lr_std = checks.memory_window(memory), checks.non_negative("lr_std", lr_std)
    return inf if lr_std == 0 else 2.0 * memory / lr_std


def lr_std_for(memory: float, updates: float, timescales: float = 2.0) -> float:
    """The rate of sigma with which so many timescales pass in so many updates: of a first task, say.

    The paper chooses the rates of its CIFAR and Animals experiments so that two pass in the first task.

    Args:
        memory: N, in updates.
        updates: Updates in which sigma shall come to rest.
        timescales: How many timescales shall pass in them.

    Example:
        >>> round(mesu.rules.dynamics.lr_std_for(500_000, updates=15_000), 1)
        133.3
    """
    memory = checks.memory_window(memory)
    if memory == inf:
        raise ValueError("memory must be finite, got inf: without forgetting sigma never comes to rest")
    return 2.0 * memory * checks.positive("timescales", timescales) / checks.positive("updates", updates)


def resting_std(curvature, memory: float, prior_std: float = 1.0) -> np.ndarray:
    """The sigma at which a weight comes to rest, for the curvature of the cost of one update.

    Example:
        >>> float(mesu.rules.dynamics.resting_std(0.0, memory=1_000, prior_std=0.5))
        0.5
    """
    return (memory * np.asarray(curvature, float) + checks.precision(prior_std)) ** -0.5


def sigma_after(t, first_std, curvature, memory: float, prior_std: float = 1.0, lr_std: float = 1.0) -> np.ndarray:
    """Sigma after `t` updates, by the closed form of Proposition 5; numbers or arrays.

    Args:
        t: Updates.
        first_std: Sigma at the start.
        curvature: H, the second derivative of the cost of one update.
        memory: N, in updates; infinite for no forgetting.
        prior_std: The prior's sigma.
        lr_std: Rate of sigma.

    Example:
        >>> rest = mesu.rules.dynamics.resting_std(0.01, memory=1_000)
        >>> after = mesu.rules.dynamics.sigma_after(20_000, 0.1, 0.01, memory=1_000)
        >>> bool(abs(after / rest - 1) < 1e-6)
        True
    """
    t, var, curvature = np.asarray(t, float), np.asarray(first_std, float) ** 2, np.asarray(curvature, float)
    gamma = lr_std / 2
    if memory == inf:
        return np.sqrt(var / (1 + 2 * gamma * t * var * curvature))
    # divided by e^(2 t/t_c), so that long times do not overflow
    faded = np.exp(-2 * gamma * t / memory)
    limit = memory * var * (curvature + 1 / (memory * prior_std**2))
    return np.sqrt(var / (faded + limit * (1 - faded)))
