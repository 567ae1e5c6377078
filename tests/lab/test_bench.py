"""`mesu bench`: the table is worked out from the medians, and the command prints it."""

import json

import pytest
import torch

from mesu.lab import bench
from mesu.lab.cli import main as cli

KINDS = (("linear", 5e-6), ("local", 1e-5), ("weights", 1e-4))
MEDIANS = {
    "floor": 2e-6,
    "mesu-exact torch local": 5e-4,
    **{f"{rule} {kind}": s for rule in bench.POSTERIORS for kind, s in KINDS},
    **{f"{rule} engine": 4e-6 for rule in bench.WEIGHTS},
    **{f"{rule} torch": 1e-3 for rule in (*bench.POSTERIORS, *bench.WEIGHTS)},
}


@pytest.fixture
def measured(monkeypatch):
    """What `measure` gives when every contender takes the time that `MEDIANS` says."""
    monkeypatch.setattr(bench, "_contenders", lambda scale: {})
    monkeypatch.setattr(bench, "_medians", lambda contenders, rounds, progress: MEDIANS)
    monkeypatch.setattr(bench, "_two_seeds", lambda steps, rounds: 1.9)
    return bench.measure()


def test_rows_are_worked_out_from_the_medians(measured):
    assert measured["floor_us"] == pytest.approx(2)
    assert measured["torch_local_steps_per_s"] == pytest.approx(2000)
    assert measured["ivon_steps_per_s"] is None
    rows = {(row["rule"], row["estimator"]): row for row in measured["rows"]}
    assert len(rows) == len(measured["rows"]) == 3 * len(bench.POSTERIORS) + len(bench.WEIGHTS)
    assert rows["foo-vb", "local"] == {
        "rule": "foo-vb",
        "estimator": "local",
        "engine_us": pytest.approx(10),
        "engine_steps_per_s": pytest.approx(100_000),
        "torch_steps_per_s": pytest.approx(1000),
        "times_torch": pytest.approx(100),
        "times_floor": pytest.approx(5),
    }
    assert rows["foo-vb", "linear"]["times_floor"] == pytest.approx(2.5)
    assert rows["foo-vb", "weights"]["times_floor"] == pytest.approx(50)
    assert rows["si", None]["times_floor"] == pytest.approx(2)


def test_everything_that_the_table_needs_is_timed():
    assert set(MEDIANS) == set(bench._contenders(0.0002)) - {"ivon torch"}


def test_threads_and_cores_are_as_before_even_after_an_error(monkeypatch):
    def fails(contenders, rounds, progress):
        assert torch.get_num_threads() == 1
        raise RuntimeError("stopped")

    monkeypatch.setattr(bench, "_contenders", lambda scale: {})
    monkeypatch.setattr(bench, "_medians", fails)
    threads, cores = torch.get_num_threads(), bench._cores()
    torch.set_num_threads(2)
    try:
        with pytest.raises(RuntimeError, match="stopped"):
            bench.measure()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert bench._cores() == cores


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_prints_a_table_or_one_object(as_json, measured, monkeypatch, capsys):
    monkeypatch.setattr(bench, "measure", lambda quick, progress: measured | {"two_seeds": 1.9})
    monkeypatch.setenv("COLUMNS", "100")
    cli.main(["bench", "--json"] if as_json else ["bench"])
    out = capsys.readouterr().out
    if as_json:
        assert json.loads(out) == measured | {"two_seeds": 1.9}
        return
    (line,) = [line for line in out.splitlines() if "foo-vb" in line and "local" in line]
    assert [cell.strip() for cell in line.strip("│").split("│")] == [
        "foo-vb",
        "local",
        "10.0",
        "100,000",
        "1,000",
        "100",
        "5.00",
    ]
    assert "floor, the bare update: 2.00 us" in out
    assert "two seeds on two cores: 1.90 times the throughput of one seed" in out
