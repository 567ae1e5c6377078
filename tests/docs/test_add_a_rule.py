"""The guide to a rule of one's own, word by word: from outside of the package, in torch and compiled alike, and cached."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-rule.md"
SOURCE = Path(__file__).parents[2] / "src"
HELPER = '''"""A function of a module of its own, with a number of another one."""

import numbers_of_mine
from mesu.rules.primitives import between


def sign(x):
    return between(1e30 * x, -numbers_of_mine.SIZE, numbers_of_mine.SIZE)
'''
BOTH_WAYS = """
import copy, json, warnings
import numpy as np, torch
from torch import nn
import mesu
import drift, drift_optimiser, sign, sign_optimiser
from mesu.engine.loops import learning_loop

warnings.simplefilter("error")  # a fall-back to torch among them
torch.manual_seed(0)
start = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()
rng = np.random.default_rng(0)
x, y = rng.normal(size=(200, 6)), rng.integers(0, 3, 200)

nets = [copy.deepcopy(start) for _ in range(2)]
for net, engine in zip(nets, (None, False)):
    mesu.WeightLearner(net, sign_optimiser.Sign(net.parameters(), lr=0.01), engine=engine).learn(x, y)
for fast, slow, old in zip(*(net.parameters() for net in (*nets, start))):
    assert torch.allclose(fast, slow, rtol=0, atol=1e-7), (fast - slow).abs().max()
    assert (fast - old).abs().max() > 0.01
moved = float(sum((a - b).abs().sum().item() for a, b in zip(nets[0].parameters(), start.parameters())))

if POSTERIORS:
    for estimator in ("local", "weights"):
        net = mesu.Bayesian(start, estimator=estimator, init_std=0.1, seed=0)
        fast, slow = copy.deepcopy(net), copy.deepcopy(net)
        engine = mesu.engine.PosteriorEngine(fast, drift_optimiser.Drift(fast, drift=1e-4), samples=2)
        noise = rng.normal(size=(len(x), engine.normals(sum(pair.mean.numel() for pair in net.pairs()))))
        engine.learn(x, y, noise=noise)
        optimizer = drift_optimiser.Drift(slow, drift=1e-4)
        for row, label, e in zip(torch.from_numpy(x).split(1), torch.from_numpy(y).split(1), torch.from_numpy(noise)):
            slow.noise, slow.vectorize = Fed(e, estimator), False
            slow.nll(row, label, samples=2).backward()
            optimizer.step()
            optimizer.zero_grad()
        for a, b, old in zip(fast.parameters(), slow.parameters(), net.parameters()):
            assert (a - b).abs().max() < 1e-9
            assert (a - old).abs().max() > 1e-3

loops = [learning_loop("plain", sign.Constants, None)]
if POSTERIORS:
    loops += [learning_loop(kind, drift.Constants, None) for kind in ("local", "weights")]
compiled = sum(sum(loop.stats.cache_misses.values()) for loop in loops)
loaded = sum(sum(loop.stats.cache_hits.values()) for loop in loops)
print(json.dumps({"compiled": compiled, "loaded": loaded, "moved": moved}))
"""
FED = """
import torch
from mesu.posterior.noise import Noise


class Fed(Noise):
    # the engine's noise of an update, in the order in which torch asks for it
    state = None

    def __init__(self, e, estimator):
        # "local": all samples of a layer, then the next layer; torch asks for a sample's layers, then the next sample's
        layers = [part.view(2, 1, units) for part, units in zip(e.split([16, 6]), (8, 3))] if estimator == "local" else []
        self.draws = [layer[s] for s in range(2) for layer in layers] or list(e.split(len(e) // 2))

    def normal(self, shape, like=None):
        return self.draws.pop(0).view(shape).to(like.dtype)
"""


def blocks() -> list[str]:
    """The Python of the page: two rules, each with its optimiser, and the check."""
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path):
    sign, sign_optimiser, drift, drift_optimiser, check = blocks()
    files = {
        "sign": sign,
        "sign_optimiser": sign_optimiser,
        "drift": drift,
        "drift_optimiser": drift_optimiser,
        "check": check,
        "fed": FED,
        "numbers_of_mine": "SIZE = 1.0\n",
        "helper": HELPER,
    }
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def run(folder, script):
    """What a new process prints, with the rules importable and a cache of compiled code of its own."""
    path = os.pathsep.join((str(folder), str(SOURCE)))
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def learn(folder, posteriors):
    return json.loads(run(folder, f"from fed import Fed\nPOSTERIORS = {posteriors}\n{BOTH_WAYS}"))


def test_a_rule_from_outside_runs_both_ways_and_a_second_process_loads_its_code(folder):
    first = learn(folder, posteriors=True)
    assert (first["compiled"], first["loaded"]) == (3, 0)
    assert learn(folder, posteriors=True) == {"compiled": 0, "loaded": 3, "moved": first["moved"]}
    # a process that has no module of that name must be able to read what is on disk for other rules
    files = [file for file in (folder / "cache").iterdir() if re.search(rb"\b(sign|drift)\b", file.read_bytes())]
    assert len(files) == 3
    assert all(re.search("_(sign|drift)_", file.name) for file in files)

    # the same arithmetic with a helper of another module, then another number in a third module: compiled again each time
    (folder / "sign.py").write_text(re.sub(r"def sign\(x\):\n.*?\n\n\n", "", blocks()[0], flags=re.DOTALL))
    (folder / "sign.py").write_text(
        (folder / "sign.py").read_text().replace("import checks", "import checks\nfrom helper import sign", 1)
    )
    moved = learn(folder, posteriors=False)
    assert (moved["compiled"], moved["loaded"], moved["moved"]) == (1, 0, first["moved"])
    (folder / "numbers_of_mine.py").write_text("SIZE = 2.0\n")
    changed = learn(folder, posteriors=False)
    assert (changed["compiled"], changed["loaded"]) == (1, 0)
    assert changed["moved"] > 1.2 * first["moved"]


def test_the_check_of_the_page_passes(folder):
    run(folder, "import check")
