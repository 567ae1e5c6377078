"""Files of features that a user made: what is read, what is refused, where they are looked for."""

import numpy as np
import pytest

from mesu.lab import data
from mesu.lab.data import npz
from mesu.lab.data.animals import CODES, SPECIES
from mesu.lab.data.published import DamagedData

SMALL_PICTURES = np.zeros((20, 64, 64, 3), np.uint8)


@pytest.fixture
def arrays():
    """What such a file holds: 80 photographs to learn, 20 to test and 2 whales, as three features."""
    rng = np.random.default_rng(0)
    return {
        **{f"{part}_x": rng.random((n, 3)).astype(np.float16) for part, n in (("train", 80), ("test", 20), ("ood", 2))},
        **{"train_y": np.repeat(CODES, 4), "test_y": np.array(CODES)},
        **{"species_code": np.array(CODES), "species_name": np.array(SPECIES)},
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: {"ood_x": None}, "array ood_x is missing"),
        (lambda a: {"test_x": a["test_x"][:, :2]}, "array test_x has shape 20 x 2 where photographs x 3 is right"),
        (lambda a: {"train_x": a["train_x"][:, 0]}, "array train_x has shape 80 where photographs x features is right"),
        (lambda a: {"train_x": np.float16(1)}, "array train_x has shape a single number where photographs x features"),
        (lambda a: {"ood_x": a["ood_x"][:0]}, "array ood_x has shape 0 x 3 where photographs x 3 is right"),
        (lambda a: {"test_x": a["test_x"].astype(np.int16)}, "array test_x has dtype int16 where float16 is right"),
        (
            lambda a: {"test_x": np.where(np.arange(20)[:, None] == [4, 9, 4], np.float16(np.nan), a["test_x"])},
            "array test_x has 2 rows that are not finite, the first of them row 4",
        ),
        (lambda a: {"train_x": a["train_x"] + np.float16(np.inf)}, "array train_x has 80 rows that are not finite"),
        (lambda a: {"train_y": a["train_y"][:-1]}, "array train_y has shape 79 where 80 is right, one for each"),
        (lambda a: {"test_y": np.full(20, "99")}, "array test_y has '99', which is not the code of a species"),
        (lambda a: {"test_y": np.full(20, "11")}, "array test_y has no Cheetah, Chicken"),
        (lambda a: {"species_name": a["species_name"][::-1]}, "array species_name is not Red panda, Cheetah"),
        (lambda a: {"species_code": np.arange(20)}, "array species_code is not 11, 12, 13"),
        (lambda a: {"test_pictures": SMALL_PICTURES[:20]}, "array ood_pictures is missing"),
        (lambda a: {"ood_pictures": SMALL_PICTURES[:2]}, "array test_pictures is missing"),
        (
            lambda a: {"test_pictures": SMALL_PICTURES[:20], "ood_pictures": SMALL_PICTURES[:3]},
            "array ood_pictures has shape 3 x 64 x 64 x 3 where 2 x 64 x 64 x 3 is right",
        ),
        (
            lambda a: {"test_pictures": SMALL_PICTURES[:20] / 255, "ood_pictures": SMALL_PICTURES[:2]},
            "array test_pictures has dtype float64 where uint8 is right",
        ),
    ],
)
def test_file_with_something_else_in_it_is_an_error_that_names_file_and_array(arrays, tmp_path, change, words):
    path = tmp_path / "other.npz"
    changed = {name: array for name, array in (arrays | change(arrays)).items() if array is not None}
    npz.write(path, changed)
    with pytest.raises(DamagedData, match=f"{path} does not hold features of animals: .*{words}"):
        data.animals(path)


def test_pictures_are_read_where_there_are_some(arrays, tmp_path):
    path = tmp_path / "other.npz"
    npz.write(path, arrays)
    assert data.animals(path).test_pictures is data.animals(path).ood_pictures is None
    npz.write(path, arrays | {"test_pictures": SMALL_PICTURES, "ood_pictures": SMALL_PICTURES[:2] + np.uint8(9)})
    animals = data.animals(path)
    assert animals.test_pictures.shape == (20, 64, 64, 3)
    assert (animals.ood_pictures == 9).all()
    np.savez(path, **arrays, test_pictures=np.array([{}], dtype=object), ood_pictures=SMALL_PICTURES[:2])
    with pytest.raises(DamagedData, match="is damaged or not a file of arrays"):
        data.animals(path)


def test_damaged_file_is_an_error(arrays, tmp_path):
    path = tmp_path / "other.npz"
    npz.write(path, arrays)
    whole = path.read_bytes()
    for content in (b"", b"PK", whole[: len(whole) // 2], b"<html>not found</html>"):
        path.write_bytes(content)
        with pytest.raises(DamagedData, match=f"{path} is damaged or not a file of arrays"):
            data.animals(path)
    np.savez(path, train_x=np.array([{}], dtype=object))
    with pytest.raises(DamagedData, match="is damaged or not a file of arrays"):
        data.animals(path)


def test_name_is_looked_for_here_in_the_data_folder_and_in_the_cache(arrays, tmp_path, cache, monkeypatch):
    name = "animals_mine_effnetlite0.npz"
    for i, folder in enumerate((tmp_path / "data", tmp_path / "here")):
        folder.mkdir()
        npz.write(folder / name, arrays | {"ood_x": np.full((1, 3), i + 1, np.float16)})
    cache.mkdir()
    npz.write(cache / name, arrays)
    monkeypatch.chdir(tmp_path)
    assert len(data.animals(name).ood_x) == 2
    monkeypatch.setenv("MESU_DATA", str(tmp_path / "data"))
    assert data.animals(name).ood_x[0, 0] == 1
    monkeypatch.chdir(tmp_path / "here")
    assert data.animals(name).ood_x[0, 0] == 2
    with pytest.raises(
        FileNotFoundError, match=f"no file b.npz nor {tmp_path}/data/b.npz nor {cache}/b.npz: mesu data get"
    ):
        data.animals("b.npz")
    with pytest.raises(
        FileNotFoundError, match=f"no file nowhere/{name}: mesu data get animals --images FOLDER makes one"
    ):
        data.animals(f"nowhere/{name}")
    with pytest.raises(ValueError, match=r"features must be one of resnet18, effnetlite0, got 'mine'; or a file \.npz"):
        data.animals("mine")
