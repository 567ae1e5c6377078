"""The command line as a new user meets it: help, wrong words, Ctrl-C. Every refusal names the value and the remedy."""

import subprocess
import sys

import pytest

import mesu.__main__ as command
from mesu.lab.cli import main as cli
from mesu.lab.experiments import about, experiments


def refused(capfd, *arguments):
    """What a command says that ends with a sentence and code 2."""
    with pytest.raises(SystemExit) as stop:
        cli.main(list(arguments))
    assert stop.value.code == 2
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    assert out == ""
    return err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reprot"], "error: there is no command 'reprot': did you mean report? All of them: run, resume, report"),
        (["walk"], "error: there is no command 'walk': choose from run, resume, report, list, data, bench"),
        (["run", "permuted-digit"], "error: there is no experiment 'permuted-digit': did you mean permuted-digits?"),
        (["run", "cats"], "error: there is no experiment 'cats': choose from permuted-digits, permuted-mnist"),
        (["data", "fetch"], "error: there is no command mesu data 'fetch': choose from list, get, verify"),
        (["report"], "error: name one or more runs, for example: mesu report runs/"),
        (["report", "a", "b", "--markdown", "c"], "error: --markdown is for one run, and without --out: got 2 runs"),
        (["run", "permuted-digits", "--settings-file", "notes.txt"], "name that file in the run's folder"),
    ],
)
def test_a_wrong_word_is_named_with_those_there_are(arguments, words, capfd):
    assert words in refused(capfd, *arguments)


@pytest.mark.parametrize("arguments", [[], ["run"], ["data"]])
def test_a_missing_word_is_asked_for(arguments, capfd):
    assert "Expected one of" in refused(capfd, *arguments)


def test_help_says_what_each_experiment_shows(capfd):
    with pytest.raises(SystemExit) as stop:
        cli.main(["run", "--help"])
    assert stop.value.code == 0
    said = " ".join(capfd.readouterr().out.replace("│", " ").split())
    for name in experiments:
        assert f"{name} {about(name)}".replace("`", "") in said.replace("`", "")


def test_an_error_of_the_system_is_a_sentence(tmp_path, capfd):
    missing = tmp_path / "note.md"
    page = ["--markdown", str(tmp_path / "page"), "--note", str(missing)]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "settings.json").write_text('{"experiment": "permuted-digits", "settings": {}}')
    assert refused(capfd, "report", str(tmp_path / "run"), *page) == f"error: {missing}: No such file or directory\n"


def test_ctrl_c_ends_with_a_word_and_the_usual_code(monkeypatch, capfd):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "list_experiments", interrupted)
    with pytest.raises(SystemExit) as stop:
        cli.main(["list"])
    assert stop.value.code == 130
    assert capfd.readouterr() == ("", "stopped\n")


def test_ctrl_c_while_it_is_still_importing_is_no_traceback(monkeypatch):
    class Interrupted:
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "mesu.lab.cli.main", Interrupted())
    with pytest.raises(SystemExit) as stop:
        command.main()
    assert stop.value.code == 130


def test_a_reader_that_goes_away_is_no_traceback():
    words = [sys.executable, "-c", "from mesu.__main__ import main; main()", "list"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()
