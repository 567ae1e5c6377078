"""Files that are complete or absent."""

import hashlib
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

import mesu
from mesu import disk
from mesu.disk import digest_of, remove_leftovers, replacing

posix = pytest.mark.skipif(os.name != "posix", reason="POSIX only")
KILLED = """
    import os, pathlib, signal, sys
    from mesu.disk import replacing
    with replacing(pathlib.Path(sys.argv[1])) as aside:
        aside.write_bytes(b"half")
        if sys.argv[2] == "wait":
            print("writing", flush=True)
            sys.stdin.read()
        os.kill(os.getpid(), signal.SIGKILL)
"""


def writer(path, how, **options):
    """A process that is killed while it writes: at once, or when its input ends."""
    environment = {**os.environ, "PYTHONPATH": str(Path(mesu.__file__).parents[1])}
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(path), how]
    return subprocess.Popen(command, env=environment, text=True, **options)


def test_an_error_about_a_file_aside_names_the_file_asked_for(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(PermissionError) as caught, replacing(path) as aside:
        raise PermissionError(13, "Permission denied", str(aside))
    assert str(caught.value) == f"[Errno 13] Permission denied: {str(path)!r}"


def test_what_replaces_a_file_is_there_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(path) as aside:
        aside.write_text(f"ne{1 // 0}")
    assert path.read_text() == "old"
    with replacing(path) as aside:
        aside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_digest_tells_names_types_shapes_and_values_apart():
    one = {"a": np.zeros(4, np.float32)}
    others = [
        {"b": np.zeros(4, np.float32)},
        {"a": np.zeros(2, np.float64)},
        {"a": np.zeros((2, 2), np.float32)},
        {"a": np.ones(4, np.float32)},
    ]
    assert len({digest_of("text", tensors) for tensors in (one, *others)}) == 5
    assert digest_of("text", one) != digest_of("other", one)
    assert digest_of("text") == digest_of(b"text") == hashlib.sha256(b"text").hexdigest()


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail():
        with replacing(path) as aside:
            aside.write_text("half")
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@posix
def test_two_processes_with_the_same_number_do_not_write_to_one_file(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as in two containers
    path = tmp_path / "model"
    with replacing(path) as one, replacing(path) as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert path.read_text() == "one"
    assert list(tmp_path.iterdir()) == [path]


def test_readers_see_whole_files_only_while_threads_write(tmp_path):
    path, whole = tmp_path / "model", {bytes([i]) * 50_000 for i in range(4)}
    path.write_bytes(min(whole))

    def write(content):
        for _ in range(25):
            with replacing(path, flush=False) as aside:
                aside.write_bytes(content)

    threads = [threading.Thread(target=write, args=(content,)) for content in whole]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert path.read_bytes() in whole
    assert list(tmp_path.iterdir()) == [path]


@posix
def test_a_planted_link_is_not_written_through(tmp_path, monkeypatch):
    path, precious = tmp_path / "model", tmp_path / "precious"
    precious.write_text("precious")
    names = iter(["00" * 8, "11" * 8])
    monkeypatch.setattr(disk.secrets, "token_hex", lambda _: next(names))
    (tmp_path / f".model.{'00' * 8}.aside").symlink_to(precious)
    with pytest.raises(FileExistsError), replacing(path) as aside:
        aside.write_text("new")
    assert precious.read_text() == "precious"
    remove_leftovers(tmp_path)
    assert precious.read_text() == "precious"


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o755])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "model"
    path.write_text("old")
    path.chmod(mode)
    with replacing(path) as aside:
        assert stat.S_IMODE(aside.stat().st_mode) & ~mode & 0o077 == 0  # nor may others read it before it is complete
        aside.write_text("new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", mode)


@posix
def test_a_new_file_has_the_mode_that_the_process_gives(tmp_path):
    (tmp_path / "other").touch()
    with replacing(tmp_path / "model") as aside:
        aside.write_text("new")
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "other").stat().st_mode


@posix
def test_a_path_that_is_a_link_stays_one(tmp_path):
    (tmp_path / "there").mkdir()
    target, link, dangling = tmp_path / "there" / "model", tmp_path / "link", tmp_path / "dangling"
    target.write_text("old")
    link.symlink_to(Path("there") / "model")
    dangling.symlink_to(Path("there") / "new")
    for path in (link, dangling):
        with replacing(path) as aside:
            assert aside.parent == target.parent
            aside.write_text(path.name)
        assert path.is_symlink()
    assert target.read_text() == "link"
    assert (tmp_path / "there" / "new").read_text() == "dangling"


@posix
def test_a_pipe_is_not_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError, match="a device, a pipe"), replacing(tmp_path / "pipe"):
        pass


@posix
def test_what_a_killed_writer_left_goes_and_what_a_living_one_writes_stays(tmp_path):
    path = tmp_path / "model"
    with writer(path, "wait", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as living:
        living.stdout.readline()
        (written,) = tmp_path.iterdir()
        assert writer(path, "at once").wait() == -signal.SIGKILL
        (left,) = set(tmp_path.iterdir()) - {written}
        with replacing(tmp_path / "model.other") as aside:
            aside.write_text("another file")
        assert left.exists()
        with replacing(path) as aside:
            aside.write_text("new")
        assert not left.exists()
        assert written.exists()
        living.stdin.close()
    remove_leftovers(tmp_path)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["model", "model.other"]


@posix
def test_the_file_and_then_its_folder_are_flushed(tmp_path, monkeypatch):
    path, flushed, flush = tmp_path / "model", [], os.fsync

    def note(handle):
        flush(handle)
        flushed.append((os.fstat(handle).st_ino, path.exists()))

    monkeypatch.setattr(os, "fsync", note)
    with replacing(path) as aside:
        aside.write_text("new")
    assert flushed == [(path.stat().st_ino, False), (tmp_path.stat().st_ino, True)]
    with replacing(path, flush=False) as aside:
        aside.write_text("newer")
    assert len(flushed) == 2


def test_a_name_as_long_as_the_file_system_takes(tmp_path):
    path = tmp_path / ("\N{GREEK SMALL LETTER MU}" * 120)
    with replacing(path) as aside:
        aside.write_text("new")
    assert path.read_text() == "new"
