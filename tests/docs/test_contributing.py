"""A rule added to the package runs in torch and in the compiled engine, and alike."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SIGN = '''"""Sign descent: w' = w - lr sign(g)."""

from typing import NamedTuple

from mesu.rules import checks


class Constants(NamedTuple):
    """What one step needs besides the weight and its gradient."""

    lr: float  # step size


class State(NamedTuple):
    """Nothing is carried from one step to the next."""


def constants(lr: float) -> Constants:
    """Check the step size."""
    return Constants(lr=checks.non_negative("lr", lr))


def initial(w):
    """Nothing to remember."""
    return State()


def step(w, g, state, c):
    """One step against the sign of the gradient."""
    return w - c.lr * ((g > 0) * 1.0 - (g < 0) * 1.0), state
'''
MOMENTUM = '''"""Heavy ball: v' = beta v + g, w' = w - lr v'."""

from typing import Any, NamedTuple


class Constants(NamedTuple):
    lr: float
    beta: float


class State(NamedTuple):
    velocity: Any


def constants(lr, beta):
    return Constants(lr, beta)


def initial(w):
    return State(0.0 * w)


def step(w, g, state, c):
    velocity = c.beta * state.velocity + g
    return w - c.lr * velocity, State(velocity)
'''
DESCENT = '''class Sign(WeightOptimizer):
    """Sign descent."""

    file = rules.sign

    def __init__(self, params: Iterable, lr: float) -> None:
        super().__init__(params, lr=lr)
'''
BALL = '''
class Momentum(WeightOptimizer):
    """Heavy ball: one number of state."""

    file = rules.momentum

    def __init__(self, params, lr, beta):
        super().__init__(params, lr=lr, beta=beta)
'''
BOTH_WAYS = """
import copy, warnings
import numpy as np, torch
from torch import nn
import mesu
from mesu.optim import weights as optim

warnings.simplefilter("error")  # a fall-back to torch among them
torch.manual_seed(0)
start = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()
rng = np.random.default_rng(0)
x, y = rng.normal(size=(200, 6)), rng.integers(0, 3, 200)
for make in (lambda p: optim.Sign(p, 0.01), lambda p: optim.Momentum(p, 0.01, 0.9)):
    nets = [copy.deepcopy(start) for _ in range(2)]
    for net, engine in zip(nets, (True, False)):
        mesu.WeightLearner(net, make(list(net.parameters())), engine=engine).learn(x, y)
    for fast, slow, old in zip(*(net.parameters() for net in (*nets, start))):
        assert torch.allclose(fast, slow, rtol=0, atol=1e-7), (fast - slow).abs().max()
        assert (fast - old).abs().max() > 0.01
print("alike")
"""


def test_a_rule_added_to_the_package_runs_compiled_and_in_torch_alike(tmp_path):
    shutil.copytree(ROOT / "src" / "mesu", tmp_path / "mesu", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "mesu" / "rules" / "sign.py").write_text(SIGN)
    (tmp_path / "mesu" / "rules" / "momentum.py").write_text(MOMENTUM)
    register = tmp_path / "mesu" / "rules" / "__init__.py"
    register.write_text(register.read_text().replace("    sgd,\n", "    momentum,\n    sgd,\n    sign,\n", 1))
    with (tmp_path / "mesu" / "optim" / "weights.py").open("a") as file:
        file.write(f"\n\n{DESCENT}{BALL}")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", BOTH_WAYS]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout == "alike\n", done.stderr
