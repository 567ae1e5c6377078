"""The data sets that there are: complete, consistent, and checked."""

import pytest

from mesu.lab.data.catalogue import data_sets
from mesu.lab.data.download import Download


def test_catalogue_is_complete_and_consistent():
    assert list(data_sets) == [
        *("digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "animals-resnet18", "animals-effnetlite0"),
        *("elec2", "weather", "covertype", "sea"),
    ]
    for name, known in data_sets.items():
        assert known.name == name
        assert known.checkable
        for array in known.contents.values():
            assert array.sha256 is None or len(bytes.fromhex(array.sha256)) == 32
        for source in known.sources:
            assert source.place
            for file in [*getattr(source, "files", ())] if isinstance(source, Download) else []:
                assert len(bytes.fromhex(file.sha256)) == 32
    assert data_sets["fashion-mnist"].file == "fashion_mnist.npz"
    with pytest.raises(ValueError, match="there is no data set 'imagenet': choose from digits, mnist"):
        data_sets["imagenet"]
