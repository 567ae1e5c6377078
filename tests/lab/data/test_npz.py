"""A data set's file is written whole or not at all."""

import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from tests.lab.data.made_up import ARRAYS, Made, equal, posix, tiny

from mesu.lab.data import npz
from mesu.lab.data.finding import load, where


def test_interrupted_fetch_and_write_leave_nothing(cache, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        load(tiny(Made(KeyboardInterrupt())))
    assert list(cache.iterdir()) == []

    def interrupted(file, **arrays):
        file.write(b"PK half a file")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(tiny(Made(ARRAYS)))
    assert list(cache.iterdir()) == []


@posix
def test_killed_write_leaves_no_file_of_that_name_and_the_rest_is_swept(cache):
    cache.mkdir()
    path = cache / "tiny_set.npz"
    program = f"""
        import os, signal, pathlib
        import numpy as np
        from mesu.lab.data import npz

        def killed(file, **arrays):
            file.write(b"PK half a file")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)

        np.savez = killed
        npz.write(pathlib.Path({str(path)!r}), {{"a": np.zeros(3)}})
    """
    process = subprocess.run([sys.executable, "-c", textwrap.dedent(program)])
    assert process.returncode == -signal.SIGKILL
    (left,) = cache.iterdir()
    assert left.name.startswith(".tiny_set.npz.")
    known = tiny(Made(ARRAYS))
    assert where(known) is None
    assert equal(load(known))
    assert list(cache.iterdir()) == [path]


def test_writing_replaces_a_file_in_one_move(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    npz.write(path, ARRAYS)
    old = path.read_bytes()

    def fail(file, **arrays):
        file.write(b"half")
        assert path.read_bytes() == old
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        npz.write(path, ARRAYS)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]
