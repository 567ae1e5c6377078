"""What a monitor gives its sinks, with functions for sinks, and with TensorBoard and MLflow where they are installed."""

import copy
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import mesu
from mesu.monitor import NOT_A_NAME

X, Y = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3


def small(**settings):
    torch.manual_seed(0)
    return mesu.Bayesian(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), seed=0, **settings)


def watched(net, opt, updates, **settings):
    """What a monitor tells of a loop over batches of 4, and the costs of the loop."""
    told, costs = [], []
    monitor = mesu.Monitor(net, opt, lambda numbers, step: told.append((step, dict(numbers))), **settings)
    for i in range(updates):
        rows = slice(4 * (i % 3), 4 * (i % 3) + 4)
        cost = net.nll(X[rows], Y[rows])
        cost.backward()
        opt.step()
        opt.zero_grad()
        monitor(cost, rows=4)
        costs.append(float(cost.detach()))
    return told, costs


def test_the_cost_of_a_row_is_averaged_over_the_updates_since_the_last_time():
    net = small()
    told, costs = watched(net, mesu.MESU(net, memory=1000), 7, every=3)
    assert [step for step, _ in told] == [3, 6]
    assert told[0][1]["cost"] == pytest.approx(sum(costs[:3]) / 12)
    assert told[1][1]["cost"] == pytest.approx(sum(costs[3:6]) / 12)


def test_sigma_and_memory_are_those_of_the_memory_report():
    net = small()
    opt = mesu.MESU(net, memory=50)
    (step, numbers), _ = watched(net, opt, 40, every=40)[0][0], None
    report = mesu.memory_report(net, opt, updates=step)
    assert numbers["memory/window"] == report.window
    for layer in (*report.layers, report.all):
        assert numbers[f"sigma/{layer.name}/median"] == layer.median
        assert (numbers[f"sigma/{layer.name}/low"], numbers[f"sigma/{layer.name}/high"]) == (layer.low, layer.high)
        shares = [numbers[f"memory/{layer.name}/{kind}"] for kind in ("free", "consolidated", "at prior")]
        assert shares == [layer.free, layer.consolidated, layer.at_prior]
    assert {name.split("/")[1] for name in numbers if name.startswith("sigma")} == {"0", "2", "all"}


def test_a_rule_that_never_forgets_has_sigmas_only():
    net = small(narrowing=1)
    ((_, numbers),) = watched(net, mesu.FOOVB(net, max_step=1.0), 2, every=2)[0]
    assert not [name for name in numbers if name.startswith("memory")]
    stds = np.concatenate([pair.std.detach().numpy().ravel() for pair in net.pairs("0")])
    assert numbers["sigma/0/median"] == pytest.approx(np.median(stds))


@pytest.mark.parametrize("max_step", [0.05, 1e-4, None])
def test_the_share_of_steps_cut_is_what_was_cut(max_step):
    net = small(narrowing=1)
    opt = mesu.MESU(net, memory=1000, max_step=max_step)
    told = []
    monitor = mesu.Monitor(net, opt, lambda numbers, step: told.append(numbers), every=2)
    for _ in range(2):
        before = copy.deepcopy(list(net.pairs()))
        net.nll(X, Y).backward()
        gradients = [pair.mean.grad.clone() for pair in net.pairs()]
        opt.step()
        opt.zero_grad()
        monitor()
    assert "cost" not in told[0]
    if max_step is None:
        assert "steps cut" not in told[0]
        return
    cut = moving = 0
    for old, new, gradient in zip(before, net.pairs(), gradients, strict=True):
        far = ((new.mean - old.mean).abs() / old.std / max_step).detach()[gradient != 0]
        cut, moving = cut + int((far > 0.999).sum()), moving + far.numel()
    assert told[0]["steps cut"] == pytest.approx(cut / moving)
    assert (told[0]["steps cut"] == 1) == (max_step == 1e-4)
    assert told[0]["steps cut"] > 0


def test_watching_changes_nothing_that_is_learned():
    nets = [small(), small()]
    opts = [mesu.MESU(net, memory=1000) for net in nets]
    watched(nets[0], opts[0], 6, every=2)
    for i in range(6):
        rows = slice(4 * (i % 3), 4 * (i % 3) + 4)
        nets[1].nll(X[rows], Y[rows]).backward()
        opts[1].step()
        opts[1].zero_grad()
    one, other = (net.state_dict() for net in nets)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_learner_that_is_compiled_stays_so_and_is_watched_chunk_by_chunk():
    net = small()
    opt = mesu.MESU(net, memory=1000)
    learner = mesu.BayesianLearner(net, opt)
    told = []
    monitor = mesu.Monitor(net, opt, lambda numbers, step: told.append((step, numbers)), every=10, updates=12)
    for _ in range(2):
        learner.learn(X.numpy(), Y.numpy())
        monitor(updates=12)
    assert learner.engine is not None
    assert [step for step, _ in told] == [24, 36]
    assert told[0][1]["memory/window"] < told[1][1]["memory/window"]
    assert "steps cut" not in told[0][1]


def test_wrappers_are_looked_through_and_others_refused():
    net = small()
    opt = mesu.MESU(net, memory=1000)

    class Accelerated:
        optimizer = opt

    monitor = mesu.Monitor(torch.optim.swa_utils.AveragedModel(net), Accelerated())
    assert monitor.optimizer is opt
    with pytest.raises(TypeError, match="Linear, which has no sigmas"):
        mesu.Monitor(nn.Linear(2, 2), opt)
    with pytest.raises(TypeError, match=r"posterior optimiser such as mesu\.MESU, got SGD"):
        mesu.Monitor(net, torch.optim.SGD(net.parameters(), 0.1))
    with pytest.raises(TypeError, match=r"a sink must be a function sink\(numbers, step\), got str"):
        mesu.Monitor(net, opt, "tensorboard")
    with pytest.raises(ValueError, match="every must be a whole number, 1 or more, got 0"):
        mesu.Monitor(net, opt, every=0)


def test_without_the_packages_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    monkeypatch.setitem(__import__("sys").modules, "mlflow", None)
    with pytest.raises(ImportError, match=r"pip install 'mesu\[tensorboard\]'"):
        mesu.TensorBoard(tmp_path / "logs")
    with pytest.raises(ImportError, match=r"pip install 'mesu\[mlflow\]'"):
        mesu.MLflow()
    assert not (tmp_path / "logs").exists()


def test_names_that_mlflow_refuses_are_changed():
    assert NOT_A_NAME.sub("_", "memory/(the module)/at prior") == "memory/_the module_/at prior"


@pytest.mark.filterwarnings("ignore")  # of TensorBoard's own affairs
@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_reads_what_was_logged(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    net = small()
    sink = mesu.TensorBoard(tmp_path / "run")
    opt, told = mesu.MESU(net, memory=1000), []
    monitor = mesu.Monitor(net, opt, sink, lambda numbers, step: told.append((step, numbers)), every=2)
    for _ in range(4):
        cost = net.nll(X, Y)
        cost.backward()
        opt.step()
        opt.zero_grad()
        monitor(cost, rows=12)
    events = EventAccumulator(str(tmp_path / "run"))
    events.Reload()  # before it is closed: what was logged is there
    sink.close()
    assert set(events.Tags()["scalars"]) == set(told[0][1])
    for name in told[0][1]:
        read = [(event.step, event.value) for event in events.Scalars(name)]
        assert read == [(step, pytest.approx(numbers[name], rel=1e-6)) for step, numbers in told]


@pytest.mark.filterwarnings("ignore")  # of MLflow's own affairs
@pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="mlflow is not installed")
def test_mlflow_reads_what_was_logged(tmp_path, monkeypatch):
    import mlflow

    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{Path(tmp_path, 'runs.db')}")
    client = mlflow.MlflowClient()
    sink = mesu.MLflow("digits", name="first")
    sink({"sigma/(the module)/median": 0.5, "cost": 2.0}, 10)
    sink({"cost": 1.0}, 20)
    assert client.get_run(sink.run_id).info.status == "RUNNING"
    sink.close()
    run = client.get_run(sink.run_id)
    assert (run.info.status, run.info.run_name) == ("FINISHED", "first")
    assert client.get_experiment(run.info.experiment_id).name == "digits"
    assert [(m.step, m.value) for m in client.get_metric_history(sink.run_id, "cost")] == [(10, 2.0), (20, 1.0)]
    assert run.data.metrics["sigma/_the module_/median"] == 0.5
    many = mesu.MLflow("digits", run_id=sink.run_id)
    many({f"number {i}": float(i) for i in range(1001)}, 30)
    assert client.get_run(sink.run_id).data.metrics["number 1000"] == 1000
    with mlflow.start_run() as active:
        joined = mesu.MLflow()
        joined({"cost": 3.0}, 1)
        joined.close()
        assert joined.run_id == active.info.run_id
        assert client.get_run(joined.run_id).info.status == "RUNNING"
