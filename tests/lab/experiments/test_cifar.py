"""The convolutional experiments: the network, its heads, its learners, and a run that is put down in the middle of a task."""

import json
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mesu
from mesu.lab.cli import main as cli
from mesu.lab.data import Dataset
from mesu.lab.drawing.panels import overview
from mesu.lab.entry import Entry
from mesu.lab.experiments.cifar import experiment as experiment
from mesu.lab.experiments.cifar.conv_net import ConvNet
from mesu.lab.experiments.cifar.experiment import CIFAR, LEARNERS, SplitCIFAR10
from mesu.lab.experiments.cifar.experiment import learner as learner_of
from mesu.lab.experiments.cifar.figures import _way
from mesu.lab.report.figures import panels
from mesu.lab.runs.run import Run
from mesu.lab.table import Row, as_table, summarise

TINY = {"width": 2, "batch": 10, "samples": 2, "test_samples": 2, "epochs": 2}


def pictures(classes, count, seed=0):
    """Noise whose brightness says its class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, count)
    x = (rng.random((count, 3, 32, 32)) * 0.2 + y[:, None, None, None] / classes).astype(np.float32)
    return Dataset("made up", x, y, x[: count // 2], y[: count // 2], classes)


@pytest.fixture
def made_up(monkeypatch):
    monkeypatch.setattr(experiment, "cifar10", lambda: pictures(10, 400))
    monkeypatch.setattr(experiment, "cifar100", lambda: pictures(100, 700, seed=1))


def test_the_network_is_the_paper_s():
    net = ConvNet(heads=11, classes=10)
    sizes = [p.numel() for p in net.body.parameters() if p.dim() > 1]
    assert sizes == [3 * 32 * 9, 32 * 32 * 9, 32 * 64 * 9, 64 * 64 * 9, 2304 * 512]
    assert sum(p.numel() for p in net.heads.parameters()) == 11 * (512 * 10 + 10)
    assert [m.p for m in net.modules() if isinstance(m, nn.Dropout)] == [0.25, 0.25, 0.5]
    assert net(torch.zeros(3, 3, 32, 32), head=10).shape == (3, 10)


def test_every_image_sees_its_own_draws():
    image = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    twice = image.expand(2, -1, -1, -1)
    for estimator in ("weights", "local"):
        net = mesu.Bayesian(ConvNet(1, 3, width=2), estimator=estimator, init="cifar", seed=0).eval()
        out = net(twice, samples=8, head=0)
        assert out.shape == (8, 2, 3)
        assert len({tuple(row) for row in out[:, 0].detach().round(decimals=6).tolist()}) == 8
        same = torch.allclose(out[:, 0], out[:, 1])
        assert same == (estimator == "weights")  # drawn weights serve all images, drawn outputs are each image's own


def test_local_convolutions_have_the_moments_of_drawn_weights():
    layer = nn.Conv2d(2, 3, 3, padding="same")
    net = mesu.Bayesian(layer, init_std=0.3, seed=0)
    x = torch.rand(1, 2, 5, 5, generator=torch.Generator().manual_seed(1))
    moments = {}
    for estimator in ("weights", "local"):
        out = net.sample(x, samples=4_000, estimator=estimator).detach()
        moments[estimator] = out.mean(0), out.std(0)
    assert torch.allclose(moments["weights"][0], moments["local"][0], atol=0.06)
    assert torch.allclose(moments["weights"][1], moments["local"][1], rtol=0.08)


@pytest.mark.parametrize("learner", LEARNERS)
def test_only_the_head_that_is_asked_learns(learner, made_up):
    model = learner_of(SplitCIFAR10(**TINY), learner, heads=3, seed=0)
    before = {name: value.clone() for name, value in model.net.state_dict().items()}
    data = pictures(2, 40)
    for _ in range(2):  # EWC and SI pull at what they have consolidated
        model.learn(data.x_train, data.y_train, head=1)
        model.boundary(data.x_train, data.y_train, head=1)
    after = model.net.state_dict()
    for name, value in before.items():
        if "heads.0" in name or "heads.2" in name:
            assert torch.equal(value, after[name]), name
        elif name.endswith(("weight", "weight_std")):
            assert not torch.equal(value, after[name]), name


@pytest.mark.parametrize(("splits", "updates"), [(1, 30_000), (2, 29_400), (4, 29_280), (8, 29_280), (16, 24_000)])
def test_the_paper_s_numbers_of_updates(splits, updates, monkeypatch):
    def sized(classes):
        y = np.repeat(np.arange(classes), 50_000 // classes)
        return Dataset("sized", np.zeros((50_000, 1), np.float32), y, np.zeros((1, 1), np.float32), y[:1], classes)

    monkeypatch.setattr(experiment, "cifar10", lambda: sized(10))
    monkeypatch.setattr(experiment, "cifar100", lambda: sized(100))
    settings = CIFAR()
    assert settings.epochs * sum(len(task.y_train) // settings.batch for task in settings.sliced(splits)) == updates


def test_the_first_task_may_have_more_images_than_the_rest(made_up):
    settings = SplitCIFAR10(images=20, first_images=40, epochs=1, batch=10, width=2, splits=(1,), learners=("adam",))
    assert [len(task.y_train) for task in settings.sliced(1)] == [40, 20, 20, 20, 20]
    assert [len(task.y_train) for task in settings.sliced(2)] == 2 * [20, 10, 10, 10, 10]
    trial: Any = settings.trial(Entry("adam", "splits", 1), 0)
    updates = [row.step for stage in range(settings.stages) for row in trial.stage(stage)]
    assert sorted(set(updates)) == [4, 6, 8, 10, 12]


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_trial_goes_on_in_the_middle_of_a_task_bit_for_bit(learner, made_up):
    settings = SplitCIFAR10(**TINY, splits=(2,), learners=(learner,), estimator="local")
    entry = Entry(learner, "splits", 2)
    whole = settings.trial(entry, 0)
    rows = [list(whole.stage(index)) for index in range(4)]
    first = settings.trial(entry, 0)
    for index in range(3):
        list(first.stage(index))
    second = settings.trial(entry, 0)
    second.restore(first.tensors())
    assert list(second.stage(3)) == rows[3]
    for name, value in whole.tensors().items():
        assert torch.equal(value, second.tensors()[name]), name


@pytest.mark.parametrize("kind", [SplitCIFAR10, CIFAR])
def test_a_run_tests_every_task_at_its_end(kind, made_up):
    learners = ("adam", "mesu") if kind is SplitCIFAR10 else ("adam",)
    settings = kind(**TINY, splits=(1, 3), learners=learners, estimator="local")
    settings.check()
    rows = []
    for entry in settings.entries:
        trial = settings.trial(entry, 0)
        rows += [row for index in range(settings.stages) for row in trial.stage(index)]
    table, tasks = as_table(rows), len(settings.stream())
    assert settings.tasks == tasks
    for entry in settings.entries:
        own = table.filter(learner=entry.label)
        ends = own.filter(measure="task_accuracy", after_task=own["after_task"].max())
        assert ends["on_task"].to_list() == list(range(tasks))
        assert summarise(table)[entry.label]["mean_accuracy"]["mean"] == pytest.approx(ends["value"].mean())
        # every image twice, less what does not fill a batch
        pieces = settings.sliced(int(entry.value))
        assert own["step"].max() == 2 * sum(len(task.y_train) // 10 for task in pieces)
    adam = summarise(table)["adam@1"]["mean_accuracy"]
    assert adam["mean"] > 0.55 if kind is SplitCIFAR10 else adam["mean"] > 0.1
    assert adam["paper"] == (0.56 if kind is CIFAR else None)
    overview(panels(table))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"splits": (1, 1)}, "splits must be one or more, all different, got '1,1'"),
        ({"epochs": 0}, "epochs must be 1 or more, got 0"),
        ({"images": 0}, "^images must be 1 or more, got 0"),
        ({"first_images": -5}, "first_images must be 1 or more, got -5"),
        ({"learners": ("mesa",)}, "there is no learner 'mesa'"),
        ({"splits": (30,)}, r"a slice has \d images, which is less than a batch of 10"),
    ],
)
def test_settings_that_cannot_run_are_refused(settings, said, made_up):
    with pytest.raises(ValueError, match=said):
        SplitCIFAR10(**{**TINY, **settings}).check()


@pytest.mark.parametrize("settings", [{"splits": (1, 0)}, {"learners": ("mesa",)}, {"device": "gpu"}])
def test_a_wrong_argument_is_told_before_data_is_fetched(settings, monkeypatch):
    monkeypatch.setattr("mesu.lab.experiments.cifar.experiment.cifar10", lambda: pytest.fail("data was asked for"))
    with pytest.raises(ValueError, match=r"splits must be 1 or more, got 0|there is no"):
        SplitCIFAR10(**{**TINY, **settings}).check()


# the hundredth GPU, tensors without numbers, and two that need packages of their own: no machine of ours has them
@pytest.mark.parametrize("device", ["cuda:99", "meta", "hpu", "vulkan"])
def test_a_device_that_this_machine_lacks_is_refused_in_a_line(device, made_up):
    with pytest.raises(ValueError, match=rf"^device '{device}' cannot be used here \(.+\): .*--device cpu") as refused:
        SplitCIFAR10(**TINY, device=device).check()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("device", ["gpu", "CPU", "cuda:x", ""])
def test_an_unknown_device_is_refused(device, made_up):
    with pytest.raises(ValueError, match=rf"^there is no device '{device}': choose cpu, cuda"):
        SplitCIFAR10(**TINY, device=device).check()


def test_an_absent_device_is_an_error_of_the_command(made_up, tmp_path, monkeypatch, capfd):
    if torch.cuda.is_available():
        pytest.skip("it is here")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        cli.main(["run", "split-cifar10", "--scale", "smoke", "--device", "cuda"])
    assert stop.value.code == 2
    said = capfd.readouterr().err
    assert said.startswith("error: device 'cuda' cannot be used here")
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_way_of_slices_is_the_mean_of_a_turn_of_all_tasks_and_of_whole_tasks_each_of_them():
    def row(splits, seed, piece, on_task, value):
        return Row("split-cifar10", f"adam@{splits}", seed, 10 * (piece + 1), piece, on_task, "task_accuracy", value)

    slices = [row(2, seed, piece, piece % 2, 0.1 * piece + 0.2 * seed) for seed in (0, 1) for piece in range(4)]
    others = [row(2, 0, 3, 0, 0.9), row(1, 0, 1, 0, 0.9)]  # old tasks, asked again at the end
    whole = [row(1, 0, 0, 0, 0.5), row(1, 0, 1, 1, 0.7)]
    table = as_table([*slices, *others, *whole])
    for label, steps, values in (("adam@2", [20, 40], [0.15, 0.35]), ("adam@1", [10, 20], [0.5, 0.7])):
        where, way = _way(table, label)
        assert where.tolist() == steps
        np.testing.assert_allclose(way, values)


def test_a_run_from_before_sigma_had_a_bound_goes_on_without_one(tmp_path, made_up):
    run = Run.create(SplitCIFAR10(**TINY), tmp_path)
    path = run.folder / "settings.json"
    saved = json.loads(path.read_text())
    assert Run.open(run.folder).settings.max_std == 1
    del saved["settings"]["max_std"]
    path.write_text(json.dumps(saved))
    assert Run.open(run.folder).settings.max_std is None


def test_the_pages_have_the_settings_that_are_said():
    root = Path(__file__).parents[3]
    pages, trial = root / "docs" / "results", runpy.run_path(str(root / "benchmarks" / "conv_trial.py"))
    small = replace(SplitCIFAR10(**SplitCIFAR10.scales["small"]), seeds=3)
    assert Run.open(pages / "split-cifar10").settings == small
    equal = replace(SplitCIFAR10(**trial["EQUAL_TASKS"]), seeds=3)
    assert Run.open(pages / "split-cifar10-equal-tasks").settings == equal
    of_all = replace(equal, **trial["ALL_IMAGES"], epochs=16, seeds=2)
    assert Run.open(pages / "split-cifar10-all-images").settings == of_all


@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
@pytest.mark.parametrize("splits", ["1", "1,16", "2,4,8"])
def test_splits_are_given_with_commas_at_every_scale(scale, splits, capfd):
    with pytest.raises(SystemExit):
        cli.main(["run", "split-cifar10", "--scale", scale, "--splits", splits, "--learners", "nobody"])
    assert "there is no learner 'nobody'" in capfd.readouterr().err


def after_two_tasks(name, **settings):
    """The weights of a learner without dropout that has learned a head, ended its task, and learned another."""
    model = learner_of(SplitCIFAR10(**TINY, **settings), name, heads=2, seed=0)
    model.net.eval()
    for head, data in enumerate((pictures(2, 20), pictures(2, 20, seed=1))):
        model.learn(data.x_train, data.y_train, head=head)
        model.boundary(data.x_train, data.y_train, head=head)
    return model


@pytest.mark.parametrize("name", ["adam", "ewc", "ewc-online"])
def test_adam_and_ewc_descend_the_mean_of_the_losses_as_published(name):
    model = after_two_tasks(name)
    data = pictures(2, 10)
    x, y = torch.from_numpy(data.x_train), torch.from_numpy(data.y_train)
    expected = nn.functional.cross_entropy(model.net(x, head=0), y)
    assert model.cost(x, y, head=0).item() == pytest.approx(expected.item())


def test_si_makes_the_same_steps_of_the_mean_of_the_losses_as_of_their_sum(monkeypatch):
    summed = after_two_tasks("si", si_strength=1.0)
    before = experiment.choices
    monkeypatch.setattr(experiment, "choices", lambda s: {"si": before(s)["si"]._replace(mean=True)})
    meaned = after_two_tasks("si", si_strength=1.0)
    assert meaned.mean
    assert not summed.mean
    for one, other in zip(summed.net.parameters(), meaned.net.parameters(), strict=True):
        # most weights to a thousandth; Adam's epsilon is felt where slopes are tiny
        close = torch.isclose(one, other, rtol=0.01, atol=1e-5)
        assert close.float().mean() > 0.98
