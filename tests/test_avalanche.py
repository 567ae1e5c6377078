"""The plugin for Avalanche: in its own `Naive` where it can be imported, and against its interfaces anywhere.

Where it cannot (its torchvision is compiled for one build of torch), `Strategy` below calls a plugin in the order in which
Avalanche 0.6 does, and its optimiser grows as Avalanche makes it grow.
"""

import importlib
import sys
import types

import pytest
import torch
from torch import nn

import mesu


class Plugin:
    """Stands for `avalanche.core.SupervisedPlugin`."""


class DynamicModule(nn.Module):
    """Stands for `avalanche.models.DynamicModule`."""


@pytest.fixture
def faked(monkeypatch):
    """`mesu.avalanche` with the interfaces alone."""
    core, models = types.ModuleType("avalanche.core"), types.ModuleType("avalanche.models")
    core.SupervisedPlugin, models.DynamicModule = Plugin, DynamicModule  # type: ignore[attr-defined]
    for name, module in (
        ("avalanche", types.ModuleType("avalanche")),
        ("avalanche.core", core),
        ("avalanche.models", models),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "mesu.avalanche", raising=False)
    yield importlib.import_module("mesu.avalanche")
    sys.modules.pop("mesu.avalanche", None)
    vars(mesu).pop("avalanche", None)


class Strategy:
    """The loop of a supervised template: `avalanche.training.templates`, update type SGD."""

    def __init__(self, model, optimizer, plugins):
        self.model, self.optimizer, self.plugins = model, optimizer, plugins

    def tell(self, when):
        for plugin in self.plugins:
            getattr(plugin, when, lambda strategy: None)(self)

    def train(self, batches):
        self.tell("before_training")
        known = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        for p in self.model.parameters():  # models.dynamic_optimizers.update_optimizer
            if id(p) not in known:
                self.optimizer.param_groups[0]["params"].append(p)
                self.optimizer.state[p] = {}
        self.tell("before_training_exp")
        for self.mb_x, self.mb_y in batches:
            self.optimizer.zero_grad()
            self.mb_output = self.model(self.mb_x)
            self.tell("after_forward")
            self.loss = nn.functional.cross_entropy(self.mb_output, self.mb_y)
            self.tell("before_backward")
            self.loss.backward()
            self.optimizer.step()

    def eval(self, batches):
        right = 0
        with torch.no_grad():
            for self.mb_x, self.mb_y in batches:
                self.mb_output = self.model(self.mb_x)
                self.tell("after_eval_forward")
                right += int((self.mb_output.argmax(1) == self.mb_y).sum())
        return right / sum(len(y) for _, y in batches)


def rows():
    x = torch.randn(256, 6, generator=torch.Generator().manual_seed(0))
    y = x[:, :3].argmax(1)
    return x, y, list(zip(x.split(16), y.split(16), strict=True))


def posterior(module=None, **settings):
    torch.manual_seed(0)
    return mesu.Bayesian(module or nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)), seed=0, **settings)


def test_a_strategy_steps_as_a_loop_of_ones_own(faked):
    x, y, batches = rows()
    net, alone = posterior(init_std=0.1, estimator="weights"), posterior(init_std=0.1, estimator="weights")
    strategy = Strategy(net, mesu.MESU(net, memory=1000), [faked.Posterior(samples=20)])
    opt = mesu.MESU(alone, memory=1000)
    strategy.train(batches)
    for rows_, theirs in batches:
        alone(rows_)  # the strategy's forward pass, which draws too
        alone.nll(rows_, theirs).backward()
        opt.step()
        opt.zero_grad()
    for one, other in zip(net.parameters(), alone.parameters(), strict=True):
        assert torch.equal(one, other)
    noise = net.noise.state
    strategy.eval([(x, y)])
    assert torch.allclose(strategy.mb_output.exp(), mesu.predict(net, x, samples=20).probs, atol=1e-6)
    assert (strategy.plugins[0].prediction.epistemic > 0).all()
    assert noise.numel() == net.noise.state.numel()


def test_it_learns_and_a_term_of_another_plugin_is_kept(faked):
    class Heavy:
        """Adds a term to the loss that pulls the last biases towards 3."""

        def before_backward(self, strategy):
            out = strategy.model.at_mean(strategy.mb_x)[None]
            assert torch.allclose(strategy.loss, strategy.model.likelihood.nll(out, strategy.mb_y))  # a sum, not a mean
            strategy.loss = strategy.loss + 1e4 * (strategy.model.module[2].bias - 3).square().sum()

    _, _, batches = rows()
    net = posterior()
    strategy = Strategy(net, mesu.MESU(net, memory=1000), [faked.Posterior(samples=0), Heavy()])
    for _ in range(5):
        strategy.train(batches)
    assert strategy.eval(batches) > 0.85
    assert (net.module[2].bias > 1).all()


def test_frozen_parameters_stay_out_of_the_optimiser(faked):
    module = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    module[0].requires_grad_(False)
    net = posterior(module)
    opt = mesu.MESU(net, memory=1000)
    Strategy(net, opt, [faked.Posterior()]).train(rows()[2])
    assert len(opt.param_groups[0]["params"]) == 4
    assert torch.equal(net.module[0].weight, module[0].weight)
    assert not torch.equal(net.module[2].weight, module[2].weight)


def test_regression_gives_metrics_its_mean(faked):
    x, _, _ = rows()
    net = posterior(nn.Linear(6, 1), likelihood="gaussian")
    strategy = Strategy(net, mesu.MESU(net, memory=1000), [faked.Posterior(samples=0)])
    strategy.eval([(x, x[:, :1].long())])
    assert torch.allclose(strategy.mb_output, net.at_mean(x), atol=1e-5)


def test_what_cannot_be_trained_is_refused(faked):
    batches = rows()[2]

    class Grows(DynamicModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(16, 3)

        def forward(self, x):
            return self.layer(x)

    plain = nn.Linear(6, 3)
    with pytest.raises(TypeError, match=r"pass model=mesu\.Bayesian\(model\)"):
        Strategy(plain, torch.optim.SGD(plain.parameters(), 0.1), [faked.Posterior()]).train(batches)
    net = posterior(nn.Sequential(nn.Linear(6, 16), Grows()))
    with pytest.raises(ValueError, match="'1' is a Grows, which grows with the experiences"):
        Strategy(net, mesu.MESU(net, memory=1000), [faked.Posterior()]).train(batches)
    net = posterior(deterministic=["0.bias"])
    with pytest.raises(ValueError, match=r"'0\.bias' is moved by nothing"):
        Strategy(net, mesu.MESU(net, memory=1000), [faked.Posterior()]).train(batches)
    with pytest.raises(ValueError, match="samples must be a whole number"):
        faked.Posterior(samples=-1)


def test_without_avalanche_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "avalanche", None)
    monkeypatch.setitem(sys.modules, "avalanche.core", None)
    monkeypatch.delitem(sys.modules, "mesu.avalanche", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'mesu\[avalanche\]'"):
        importlib.import_module("mesu.avalanche")


@pytest.mark.filterwarnings("ignore")  # of Avalanche's own affairs
def test_naive_of_avalanche_learns_two_experiences():
    try:
        from avalanche.benchmarks import tensors_benchmark
        from avalanche.evaluation.metrics import accuracy_metrics
        from avalanche.training.plugins import EvaluationPlugin
        from avalanche.training.supervised import Naive
    except ImportError as error:
        pytest.skip(f"Avalanche is not installed: pip install 'mesu[avalanche]' ({error})")
    except RuntimeError as error:
        pytest.skip(f"Avalanche's torchvision does not fit this torch: {error}")
    from mesu.avalanche import Posterior

    x, y, _ = rows()
    shifted = x + torch.tensor([0.0, 0, 0, 3, 3, 3])
    tasks = [(x, y), (shifted, y)]
    stream = tensors_benchmark(train_tensors=tasks, test_tensors=tasks, task_labels=[0, 0])
    net = posterior()
    plugin = Posterior(samples=20)
    metrics = EvaluationPlugin(accuracy_metrics(experience=True), loggers=[])
    strategy = Naive(
        model=net,
        optimizer=mesu.MESU(net, memory=1000),
        train_mb_size=16,
        train_epochs=5,
        eval_mb_size=64,
        plugins=[plugin],
        evaluator=metrics,
    )
    for experience in stream.train_stream:
        strategy.train(experience)
    found = strategy.eval(stream.test_stream)
    accuracies = [value for name, value in found.items() if name.startswith("Top1_Acc_Exp")]
    assert len(accuracies) == 2
    assert min(accuracies) > 0.85
    assert plugin.prediction.epistemic.mean() > 0
