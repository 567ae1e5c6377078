"""`python -m benchmarks.learning`: what it runs, and that its table says what was measured."""

import sys

import pytest
import torch
from benchmarks.learning import __main__ as command
from benchmarks.learning import learners, table, work


def row(name, learner, setting, seed, **measured):
    return (
        {"work": name, "learner": learner, "setting": setting, "seed": seed}
        | dict.fromkeys(table.MEASURED, 0.5)
        | measured
    )


def test_the_table_has_the_means_over_the_seeds_and_the_best_of_the_settings():
    name = work.WORK[0].name
    rows = [
        row(name, "adam", s, seed, accuracy=a, cpu_seconds=2)
        for s, a in ((1e-3, 0.8), (3e-4, 0.7), (3e-3, 0.9))
        for seed in (0, 1)
    ]
    rows += [
        row(name, "mesu", 10_000, seed, accuracy=a, log_loss=a / 2, cpu_seconds=5) for seed, a in enumerate((0.6, 0.7))
    ]
    adam, mesu = table.markdown(rows).splitlines()[2:]
    assert adam == f"| {name} | adam | 50.0 | 80.0 | 0.500 | 0.500 | 0.500 / - | 1.0 | 2 | 90.0 (0.003) |"
    assert mesu == f"| {name} | mesu | 50.0 | 65.0 | 0.325 | 0.500 | 0.500 / 0.500 | 2.5 | 2 | - |"


def test_defaults_run_first_and_everything_once():
    plan = [(w.name, *rest) for w, *rest in command.planned(quick=False, seeds=2)]
    assert len(plan) == len(set(plan)) == 2 * len(work.WORK) * sum(len(s) for s in learners.SETTINGS.values())
    defaults = [each for each in plan if each[2] == learners.SETTINGS[each[1]][0]]
    assert plan[: len(defaults)] == defaults
    assert [(w.name, *rest) for w, *rest in command.planned(quick=True, seeds=2)] == [e for e in defaults if e[3] == 0]


@pytest.mark.parametrize("learner", ["adam", "mesu", "dropout"])
def test_every_network_takes_an_update_and_predicts_a_class_for_every_label(learner, monkeypatch):
    monkeypatch.setattr(learners, "DRAWS", 2)
    shapes = {"digits": (64,), "text": (work.LENGTH,), "cifar10": (3, 32, 32)}
    for each in work.WORK:
        torch.manual_seed(0)
        shape = shapes.get(each.own, (1, 28, 28))
        x = torch.randint(48, (4, *shape)) if each.own == "text" else torch.rand(4, *shape)
        y = torch.zeros(4, *(shape if each.own == "text" else ()), dtype=torch.int64)
        one = learners.Learner(learner, learners.SETTINGS[learner][0], each.build(), 0, 4)
        before = [p.clone() for p in one.net.parameters()]
        one.learn(x, y)
        assert any(not torch.equal(a, b) for a, b in zip(before, one.net.parameters(), strict=True)), each.name
        prediction = one.predict(x)
        assert prediction.labels.shape == y.shape, each.name
        assert torch.allclose(prediction.probs.sum(1), torch.ones(y.shape)), each.name
        # draws differ from each other, one network has nothing epistemic
        assert (float(prediction.epistemic.max()) > 1e-6) == (learner != "adam"), each.name


def test_a_learner_that_is_not_installed_is_left_out_with_a_reason(monkeypatch):
    monkeypatch.setattr(learners.importlib.util, "find_spec", lambda name: None)
    assert "pip install" in learners.missing("ivon")
    assert learners.missing("adam") is None


def test_what_is_in_the_table_is_not_run_again(tmp_path, monkeypatch, capsys):
    asked = []

    def learned(each, learner, setting, seed):
        asked.append((each.name, learner))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return row(each.name, learner, setting, seed, auroc=float("nan"))

    monkeypatch.setattr(command, "learned", learned)
    out, figure = tmp_path / "learning.csv", tmp_path / "figure.png"
    monkeypatch.setattr(sys, "argv", ["learning", "--quick", "--out", str(out), "--figure", str(figure)])
    with pytest.raises(KeyboardInterrupt):
        command.main()
    command.main()
    runs = [(w.name, learner) for w, learner, *_ in command.planned(True, 1) if not learners.missing(learner)]
    assert asked == [*runs[:3], *runs[2:]]
    assert figure.stat().st_size > 0
    assert "| mesu |" in capsys.readouterr().out
