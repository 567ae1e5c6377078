"""Where a data set is looked for and in which order, what is refused, what the cache keeps."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pooch
import pytest
from tests.lab.data.made_up import ARRAYS, Made, described, equal, some_arrays, tiny

from mesu.lab.data import npz
from mesu.lab.data.finding import cache_folder, find, load
from mesu.lab.data.published import DamagedData, Unavailable


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
