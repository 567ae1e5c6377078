"""Archives that are not trusted: what is read out of them, and what is refused."""

import gzip
import os
import tarfile

import pytest
from tests.lab.data.made_up import make_tar, make_zip

from mesu.lab.data.archives import gunzip, read_tar, read_zip

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
