"""The pickles of CIFAR are read without running anything."""

import os
import pickle
import pickletools

import numpy as np
import pytest
from tests.lab.data.made_up import COLOUR, cifar_batch, python2_pickle

from mesu.lab.data.cifar_batch import read_batch


def test_the_made_up_pickle_is_a_real_one():
    content = cifar_batch(COLOUR["x_test"], COLOUR["y_test"])
    opcodes = {opcode.name for opcode, _, _ in pickletools.genops(content)}
    assert {"GLOBAL", "REDUCE", "BUILD", "SHORT_BINSTRING", "BINSTRING"} <= opcodes
    # numpy itself reads it as the array that it is
    content = content.replace(b"numpy.core.multiarray", b"numpy._core.multiarray")
    loaded = pickle.loads(content, encoding="bytes")
    assert np.array_equal(loaded[b"data"][3].reshape(3, 32, 32).transpose(1, 2, 0), COLOUR["x_test"][3])


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
