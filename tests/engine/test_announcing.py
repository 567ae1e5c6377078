"""That the engine is being compiled is said, or told to the command that waits for a file."""

from types import SimpleNamespace

from mesu.engine.loops import COMPILING, _Announcer

LOOP = object()


def announcer():
    """One that looks out for `LOOP`."""
    announcer = _Announcer()
    announcer.loops.append(LOOP)
    return announcer


def begun(dispatcher):
    """What numba says when a compilation begins."""
    return SimpleNamespace(data={"dispatcher": dispatcher})


def test_a_loop_of_the_engine_is_announced(monkeypatch, capfd):
    monkeypatch.delenv(COMPILING, raising=False)
    announcer().on_start(begun(LOOP))
    assert "mesu: compiling" in capfd.readouterr().err


def test_two_loops_are_announced_once(monkeypatch, capfd):
    monkeypatch.delenv(COMPILING, raising=False)
    one = announcer()
    one.on_start(begun(LOOP))
    one.on_start(begun(LOOP))
    assert capfd.readouterr().err.count("compiling") == 1


def test_code_of_others_is_not(monkeypatch, capfd):
    monkeypatch.delenv(COMPILING, raising=False)
    announcer().on_start(begun(object()))
    assert capfd.readouterr() == ("", "")


def test_a_command_with_workers_gets_a_file_instead_of_a_line(monkeypatch, capfd, tmp_path):
    monkeypatch.setenv(COMPILING, str(tmp_path / "compiling"))
    announcer().on_start(begun(object()))
    assert not (tmp_path / "compiling").exists()
    announcer().on_start(begun(LOOP))
    assert (tmp_path / "compiling").exists()
    assert capfd.readouterr() == ("", "")


def test_a_command_that_has_ended_is_no_error(monkeypatch, tmp_path):
    monkeypatch.setenv(COMPILING, str(tmp_path / "gone" / "compiling"))
    announcer().on_start(begun(LOOP))
    assert list(tmp_path.iterdir()) == []
