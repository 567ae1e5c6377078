"""Logging of a run: the numbers are those of its table, a resumed run goes on, and the table stays the same."""

import importlib.util
from dataclasses import replace

import pytest
from tests.lab.runs.tiny import TINY

from mesu.lab.runs import logs
from mesu.lab.runs.run import Run

FEW = replace(TINY, learners=("mesu", "sgd"), tasks=2)


class Kept:
    """A sink that keeps its numbers, by the place that it was made for."""

    told: dict = {}  # noqa: RUF012

    def __init__(self, *place):
        self.told.setdefault(place, [])
        self.numbers, self.run_id = self.told[place], "run-1"

    check = staticmethod(lambda *args: None)

    def __call__(self, numbers, step):
        self.numbers.append((step, dict(numbers)))

    def close(self):
        self.numbers.append("closed")


@pytest.fixture
def kept(monkeypatch):
    monkeypatch.setattr(Kept, "told", {})
    monkeypatch.setattr(logs, "TensorBoard", Kept)
    monkeypatch.setattr(logs, "MLflow", Kept)
    return Kept.told


def test_the_rows_of_the_table_are_logged_and_the_table_is_the_same(kept, tmp_path):
    run = Run.create(FEW, tmp_path)
    table = run.execute(1, log=("tensorboard", "mlflow"))
    assert table.equals(Run.create(FEW, tmp_path / "other").execute(1))
    own = kept[(run.folder / "tensorboard" / "mesu-0",)]
    assert kept["permuted-digits", f"{run.folder.name} mesu-0", None] == own
    assert own[-1] == "closed"
    logged = {(step, name): value for step, numbers in own[:-1] for name, value in numbers.items()}
    rows = [row for row in table.iter_rows(named=True) if row["learner"] == "mesu"]
    for row in rows:
        task = "" if row["on_task"] is None else f"/task {row['on_task']}"
        assert logged.pop((row["step"], row["measure"] + task)) == row["value"]
    assert {name.split("/")[0] for _, name in logged} == {"sigma", "memory"}
    assert len({step for step, _ in logged}) == FEW.tasks
    assert (run.folder / "mlflow" / "mesu-0").read_text() == "run-1\n"
    others = {name for numbers in kept[(run.folder / "tensorboard" / "sgd-0",)][:-1] for name in numbers[1]}
    assert not [name for name in others if name.startswith("sigma")]


def test_what_a_run_did_before_it_was_logged_is_logged_when_it_is_resumed(kept, tmp_path, monkeypatch):
    whole = Run.create(FEW, tmp_path / "whole")
    whole.execute(1, log=("tensorboard",))
    run, kind = Run.create(FEW, tmp_path), type(FEW.trial(FEW.entries[0], 0))
    stage = kind.stage

    def once(self, index):
        if index:
            raise RuntimeError("stopped")
        return stage(self, index)

    with monkeypatch.context() as patched:
        patched.setattr(kind, "stage", once)
        with pytest.raises(RuntimeError, match="stopped"):
            run.execute(1)
    run.execute(1, log=("tensorboard",))
    place, wanted = (run.folder / "tensorboard" / "mesu-0",), (whole.folder / "tensorboard" / "mesu-0",)

    def measured(numbers):
        flat = {(step, name): value for step, some in numbers[:-1] for name, value in some.items()}
        return {key: value for key, value in flat.items() if not key[1].startswith(("sigma/", "memory/"))}

    assert measured(Kept.told[place]) == measured(Kept.told[wanted])


@pytest.mark.parametrize(
    ("log", "message"), [(("wandb",), "log must be tensorboard or mlflow"), (("mlflow",), "pip install")]
)
def test_a_sink_that_is_not_there_is_refused_before_anything_is_trained(log, message, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mlflow", None)
    run = Run.create(FEW, tmp_path)
    with pytest.raises(ValueError, match=message):
        run.execute(1, log=log)
    assert not list(run.folder.glob("checkpoints/*"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("tensorboard", "mlflow"))), reason="tensorboard or mlflow is not installed"
)
def test_two_workers_log_to_both(tmp_path, monkeypatch):
    import mlflow
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/runs.db")
    run = Run.create(FEW, tmp_path / "runs")
    table = run.execute(2, log=("tensorboard", "mlflow"))
    client = mlflow.MlflowClient()
    for learner in FEW.learners:
        events = EventAccumulator(str(run.folder / "tensorboard" / f"{learner}-0"))
        events.Reload()
        ended = client.get_run((run.folder / "mlflow" / f"{learner}-0").read_text().strip())
        assert ended.info.status == "FINISHED"
        rows = table.filter(learner=learner, measure="accuracy", on_task=0)
        wanted = list(zip(rows["step"], rows["value"], strict=True))
        read = [(event.step, event.value) for event in events.Scalars("accuracy/task 0")]
        assert read == [(step, pytest.approx(value, rel=1e-6)) for step, value in wanted]
        history = client.get_metric_history(ended.info.run_id, "accuracy/task 0")
        assert [(metric.step, metric.value) for metric in history] == wanted
