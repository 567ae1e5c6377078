"""Files that are complete or absent."""

import hashlib

import numpy as np
import pytest

from mesu.disk import digest_of, replacing


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
