"""`python -m benchmarks.streams`: what it writes, and what it refuses."""

import csv

import pytest

pytest.importorskip("river")

from benchmarks.streams.__main__ import main


def test_the_command_writes_results_and_figures_and_goes_on_where_it_was(tmp_path, capsys):
    cut = ["--streams", "phishing", "--models", "mesu,linear", "--rows", "200", "--seeds", "1", "--out", str(tmp_path)]
    main(cut)
    first = capsys.readouterr().out
    with (tmp_path / "results.csv").open() as file:
        lines = {line["model"]: line for line in csv.DictReader(file)}
    assert set(lines) == {"mesu", "linear"}
    for line in lines.values():
        right = sum(map(float, line["blocks"].split()))
        assert float(line["score"]) == pytest.approx(right / 200)
        assert 0.6 < float(line["score"]) < 1.0  # 0.5 is a guess
    assert (tmp_path / "phishing.png").stat().st_size < 150_000
    assert "| MESU | " in first
    assert "phishing   mesu" in first
    main(cut)
    again = capsys.readouterr().out
    assert "phishing   mesu" not in again  # nothing was left to do
    assert "| MESU | " in again


def test_a_quick_look_may_not_replace_what_is_published(capsys):
    with pytest.raises(SystemExit) as refused:
        main(["--rows", "200"])
    assert refused.value.code == 2
    assert "--rows would put short runs in the place of whole ones" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "kind"), [("--streams", "stream"), ("--models", "model")])
def test_unknown_names_are_refused_with_a_sentence(option, kind, capsys):
    with pytest.raises(SystemExit) as refused:
        main([option, "nonsense"])
    assert refused.value.code == 2
    assert f"there is no {kind} 'nonsense': choose from" in capsys.readouterr().err
