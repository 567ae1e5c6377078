"""Machine code is the same in every process, and its files may be anywhere, nowhere, or damaged."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

import mesu
from mesu.engine import machine_code
from mesu.engine.compiled import on_disk

SOURCE = Path(mesu.__file__).parents[1]
LEARN = """
import hashlib, json
import numpy as np, torch
torch.set_num_threads(1)
import mesu
rng = np.random.default_rng(0)
X, y = rng.normal(size=(300, 6)), rng.integers(0, 3, 300)
model = mesu.MESUClassifier(hidden=(20,), estimator="linear", random_state=0).partial_fit(X, y)
weights = model._online.snapshot.weights
parts = weights.mean, weights.std, model.predict_proba(X)
print(json.dumps(hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()))
"""


def process(script, **environment):
    """What a new process prints, as JSON."""
    known = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run([sys.executable, "-c", script], env=known, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_process_that_compiles_gets_the_weights_of_one_that_loads(tmp_path):
    """With an empty cache, with a warm one, and with one of which a part is missing."""
    first = process(LEARN, NUMBA_CACHE_DIR=str(tmp_path))
    assert process(LEARN, NUMBA_CACHE_DIR=str(tmp_path)) == first
    (loop,) = tmp_path.glob("*linear.learn*")
    loop.unlink()
    assert process(LEARN, NUMBA_CACHE_DIR=str(tmp_path)) == first
    assert loop.exists()


# -- a small loop, and its files ---------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The only folder that machine code is looked for in."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(machine_code, "folders", lambda: [folder])
    return folder


def small(label="small"):
    """A loop as a new process would have it: it has compiled nothing yet."""

    def total(x):
        result = 0.0
        for i in range(len(x)):
            result += x[i]
        return result

    return on_disk(label)(total)


def used(loop):
    """Whether the loop gave the right sum, and how often it was compiled and loaded."""
    right = loop(np.arange(5.0)) == 10.0
    return right, sum(loop.stats.cache_misses.values()), sum(loop.stats.cache_hits.values())


def test_a_second_process_loads_a_loop(cache):
    assert used(small()) == (True, 1, 0)
    assert used(small()) == (True, 0, 1)
    assert used(small("other")) == (True, 1, 0)


def test_each_kind_of_arguments_is_a_file(cache):
    loop = small()
    assert loop(np.arange(5.0)) == loop(np.arange(5)) == 10.0
    assert len(list(cache.iterdir())) == 2
    again = small()
    assert again(np.arange(5)) == again(np.arange(5.0)) == 10.0
    assert sum(again.stats.cache_hits.values()) == 2


def test_a_damaged_file_is_made_again(cache):
    used(small())
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 4]) + whole[middle + 1 :]
    for damaged in (b"", whole[:10], whole[:middle], whole[:-1], flipped, b"x" + whole, os.urandom(1000)):
        path.write_bytes(damaged)
        assert used(small()) == (True, 1, 0)
        assert used(small()) == (True, 0, 1)


def test_no_cut_and_no_flipped_bit_is_read(tmp_path):
    path = tmp_path / "code"
    machine_code.write(path, b"machine code")
    whole = path.read_bytes()
    assert machine_code.read(path) == b"machine code"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert machine_code.read(path) is None
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        assert machine_code.read(path) is None


def test_whole_files_that_are_of_no_use_are_made_again(cache):
    used(small())
    (path,) = cache.iterdir()
    for kept in (b"not a pickle", b"cno_such_module\nname\n."):
        machine_code.write(path, kept)
        assert used(small()) == (True, 1, 0)


def test_the_next_folder_serves_where_the_first_does_not(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    places = [tmp_path / "file" / "below", tmp_path / "second"]
    monkeypatch.setattr(machine_code, "folders", lambda: places)
    assert used(small()) == (True, 1, 0)
    assert len(list(places[1].iterdir())) == 1
    assert used(small()) == (True, 0, 1)


def test_where_there_is_no_folder_the_code_stays_in_memory(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(machine_code, "folders", lambda: [tmp_path / "file" / "below"])
    loop = small()
    assert used(loop) == (True, 1, 0)
    assert used(loop) == (True, 1, 0)
    assert used(small()) == (True, 1, 0)


@pytest.mark.skipif(os.name != "posix", reason="POSIX only")
def test_a_disk_that_is_full_on_the_way_leaves_nothing_behind(tmp_path):
    script = """
import json, resource
import numpy as np
from mesu.online.scaling import follow, unknown
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
print(json.dumps(follow(unknown(1), np.arange(4.0)[:, None], 100.0)[0].mean.tolist()))
"""
    nowhere = {"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null/cache"}
    assert process(script, NUMBA_CACHE_DIR=str(tmp_path / "cache"), **nowhere) == [1.5]
    assert list((tmp_path / "cache").iterdir()) == []


def test_importing_and_learning_where_nothing_can_be_written(tmp_path):
    """A file where each cache folder would be: not even root could make one."""
    shutil.copytree(SOURCE / "mesu", tmp_path / "mesu", ignore=shutil.ignore_patterns("__pycache__", "lab"))
    for folder in [tmp_path / "mesu", *(path for path in (tmp_path / "mesu").iterdir() if path.is_dir())]:
        (folder / "__pycache__").touch()
    script = """
import json
import numpy as np
import mesu
from mesu.online.scaling import follow, unknown
print(json.dumps([mesu.__file__, follow(unknown(1), np.arange(4.0)[:, None], 100.0)[0].mean.tolist()]))
"""
    places = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"), "/dev/null/none")
    assert process(script, PYTHONPATH=str(tmp_path), **places) == [str(tmp_path / "mesu" / "__init__.py"), [1.5]]


def test_the_file_changes_with_all_that_the_code_is_made_of(cache, monkeypatch):
    kept = machine_code.OnDisk("loop", lambda: "source")
    codegen = numba.core.registry.cpu_target.target_context.codegen()
    types = (numba.float64, numba.float32)
    files = {kept._file(types, codegen), kept._file(types[::-1], codegen)}
    files.add(machine_code.OnDisk("loop", lambda: "other source")._file(types, codegen))
    files.add(machine_code.OnDisk("other", lambda: "source")._file(types, codegen))
    for name, value in (("__version__", "0"), ("__name__", "numba")):
        monkeypatch.setattr(numba, name, value)
        files.add(kept._file(types, codegen))
    monkeypatch.setattr(machine_code, "engine_sources", lambda: hashlib.sha256(b"changed").hexdigest())
    files.add(kept._file(types, codegen))
    assert len(files) == 6
