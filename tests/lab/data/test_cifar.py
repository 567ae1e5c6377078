"""CIFAR: its pictures and batch files, and the real sets where this machine has them."""

import hashlib
import io
import json

import numpy as np
import pytest
from PIL import Image
from tests.lab.data.made_up import COLOUR, HUNDRED, cifar_batch, cifar_module, equal, hundred_files

from mesu.lab.data.published import Array, Published, digests


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


def test_batches_give_the_arrays():
    parts = zip(np.split(COLOUR["x_train"], 5), np.split(COLOUR["y_train"], 5), strict=True)
    files = {f"cifar-10-batches-py/data_batch_{i}": cifar_batch(x, y) for i, (x, y) in enumerate(parts, start=1)}
    files["cifar-10-batches-py/test_batch"] = cifar_batch(COLOUR["x_test"], COLOUR["y_test"])
    assert equal(cifar_module.from_batches(files), COLOUR)
    assert equal(cifar_module.from_hundred(dict(hundred_files())), HUNDRED)


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


def shuffled(arrays, seed=0):
    """The same images and labels in another order."""
    rng = np.random.default_rng(seed)
    train, test = (rng.permutation(len(arrays[f"y_{part}"])) for part in ("train", "test"))
    return {name: array[train if name.endswith("train") else test] for name, array in arrays.items()}


def in_any_order(arrays):
    """What `Published.in_any_order` says of a set."""
    return {
        part: hashlib.sha256(b"".join(sorted(digests(arrays[f"x_{part}"], arrays[f"y_{part}"])))).hexdigest()
        for part in ("train", "test")
    }


def test_a_set_that_is_known_in_any_order_is_accepted_in_any_and_used_in_one():
    contents = {name: Array(array.shape, array.dtype.name, None) for name, array in HUNDRED.items()}
    known = Published("hundred", "Hundred", "", contents, in_any_order=in_any_order(HUNDRED))
    assert known.checkable
    for seed in (0, 1):
        other = shuffled(HUNDRED, seed)
        assert known.complaints(other) == []
        assert equal(cifar_module.in_order(other), cifar_module.in_order(HUNDRED))
    swapped = dict(HUNDRED, y_train=np.roll(HUNDRED["y_train"], 1))  # the same images and labels, put together wrongly
    assert known.complaints(swapped) == [
        "arrays x_train and y_train hold other images or labels than they should (by SHA-256, in any order)"
    ]
    brighter = dict(HUNDRED, x_test=HUNDRED["x_test"] ^ 1)
    assert "x_test" in known.complaints(brighter)[0]
    assert known.complaints({}) == [f"array {name} is missing" for name in contents]
