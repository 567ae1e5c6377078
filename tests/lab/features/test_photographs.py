"""A user's own photographs: what a network sees of them, which folders are read, what the file of features holds."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from tests.lab.features.made_up import made_up_weights, save, shade, species_folder

from mesu.lab import data
from mesu.lab.data.animals import ANIMALS, CODES, SPECIES
from mesu.lab.data.finding import load
from mesu.lab.features import photographs
from mesu.lab.features.efficientnet import EfficientNetLite0
from mesu.lab.features.photographs import (
    NETWORKS,
    find_photographs,
    make_features,
    prepare,
    read_photograph,
    small,
)
from mesu.lab.features.pretrained import fit
from mesu.lab.features.resnet import ResNet18


def test_preparation_of_one_colour_is_the_value_by_hand(tmp_path):
    path = save(tmp_path / "a.png", np.full((300, 500, 3), (124, 0, 255)))
    picture = read_photograph(path)
    assert picture.shape == (224, 224, 3)
    seen = prepare([picture], NETWORKS["resnet18"])
    assert seen.shape == (1, 3, 224, 224)
    for channel, value in enumerate([(124 / 255 - 0.485) / 0.229, (0 - 0.456) / 0.224, (1 - 0.406) / 0.225]):
        assert torch.allclose(seen[0, channel], torch.tensor(value), atol=1e-6)
    seen = prepare([picture], NETWORKS["effnetlite0"])
    assert seen[0, :, 7, 9].tolist() == [(124 - 127) / 128, -127 / 128, 1.0]


def test_the_middle_is_cut_out(tmp_path):
    rows, columns = np.mgrid[:256, :300]
    path = save(tmp_path / "a.png", np.stack([rows, columns % 256, columns // 256], axis=2))
    picture = read_photograph(path)  # not resized: its shorter side has 256
    assert picture[0, 0].tolist() == [16, 38, 0]  # (256 - 224) / 2 and (300 - 224) / 2
    assert picture[-1, -1].tolist() == [239, (38 + 223) % 256, 1]
    turned = save(tmp_path / "b.png", np.stack([rows, columns % 256, columns // 256], axis=2).transpose(1, 0, 2))
    assert np.array_equal(read_photograph(turned), picture.transpose(1, 0, 2))


def test_the_shorter_side_is_resized_with_a_triangle_of_weights(tmp_path):
    # pairs of equal columns 0 0 1 1 2 2 ...: weights 1 3 3 1 around each pair give 0 1 2 ... again
    columns = np.broadcast_to(np.arange(512)[None, :, None] // 2, (512, 512, 3))
    picture = read_photograph(save(tmp_path / "a.png", columns))
    assert np.array_equal(picture[100, :, 1], np.arange(16, 240))
    # a single white column of two: 3/8 of it in the column that holds it, 1/8 in its neighbour
    line = np.zeros((512, 600, 3))
    line[:, 300] = 240
    picture = read_photograph(save(tmp_path / "b.png", line))
    assert picture[5, :, 0].nonzero()[0].tolist() == [149 - 38, 150 - 38]
    assert picture[5, 149 - 38 : 151 - 38, 0].tolist() == [30, 90]


def test_small_pictures_are_the_same_smaller(tmp_path):
    rows, columns = np.mgrid[:224, :224]
    shown = small(np.stack([rows, columns, np.full_like(rows, 7)], axis=2).astype(np.uint8))
    assert (shown.shape, shown.dtype) == ((64, 64, 3), np.uint8)
    middles = (np.arange(64) + 0.5) * 3.5 - 0.5  # of the pixels that each takes the place of
    inside = slice(4, -4)  # nearer the edge the weights are one-sided
    assert np.abs(shown[inside, :, 0] - middles[inside, None]).max() < 1
    assert np.abs(shown[:, inside, 1] - middles[inside]).max() < 1
    assert (shown[:, :, 2] == 7).all()


def test_every_kind_of_picture_becomes_red_green_and_blue(tmp_path):
    grey = save(tmp_path / "grey.png", np.full((9, 9), 77))
    assert (read_photograph(grey) == 77).all()
    clear = save(tmp_path / "clear.png", np.full((9, 9, 4), (10, 20, 30, 0)))
    assert read_photograph(clear)[3, 3].tolist() == [10, 20, 30]
    Image.new("P", (9, 9)).save(tmp_path / "palette.gif")
    assert read_photograph(tmp_path / "palette.gif").shape == (224, 224, 3)


def test_pictures_that_cannot_be_prepared_are_refused(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="it is 1 x 51 pixels, too narrow"):
        read_photograph(save(tmp_path / "a.png", np.zeros((51, 1, 3))))
    assert read_photograph(save(tmp_path / "b.png", np.zeros((50, 1, 3)))).shape == (224, 224, 3)
    (tmp_path / "c.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n")
    with pytest.raises(OSError, match="cannot identify image file"):
        read_photograph(tmp_path / "c.jpg")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 49)
    with pytest.raises(Image.DecompressionBombWarning):
        read_photograph(tmp_path / "b.png")


def test_species_and_codes_are_those_of_the_published_features():
    for name, values in (("species_code", CODES), ("species_name", SPECIES)):
        array = np.array(values)
        assert ANIMALS["resnet18"].contents[name].complaint(array) is None


def test_every_fourth_photograph_in_the_order_of_names_is_for_testing(images):
    found = find_photographs(images)
    lions = {
        part: [each.path.name for each in found if each.code == "22" and each.part == part]
        for part in ("train", "test")
    }
    assert lions == {"train": ["01.png", "02.png", "03.png", "05.png"], "test": ["04.png"]}
    assert [each.part for each in found] == ["train"] * 80 + ["test"] * 20 + ["ood"] * 2
    assert [each.code for each in found[80:]] == [*CODES, "", ""]
    assert find_photographs(images) == found


def test_folders_train_and_test_divide_the_photographs(tmp_path, images):
    # as "Animals Detection Images Dataset" has them: boxes beside the pictures, many other species
    divided = tmp_path / "divided"
    for species, name in enumerate(SPECIES):
        species_folder(divided / "train" / name, species, [0, 1], ".jpg")
        species_folder(divided / "Test" / name, species, [7], ".JPG")
        (divided / "train" / name / "Label").mkdir()
        (divided / "train" / name / "Label" / "00.txt").write_text("Lion 1 2 3 4")
    species_folder(divided / "train" / "Whale", 20, [1])
    species_folder(divided / "Test" / "WHALE", 20, [2])
    species_folder(divided / "whale", 20, [3])
    found = find_photographs(divided)
    names = [each.path.relative_to(divided).as_posix() for each in found]
    assert names[:3] == ["train/Red panda/00.jpg", "train/Red panda/01.jpg", "train/Cheetah/00.jpg"]
    assert names[40:42] == ["Test/Red panda/07.JPG", "Test/Cheetah/07.JPG"]
    assert sorted(names[60:]) == ["Test/WHALE/02.png", "train/Whale/01.png", "whale/03.png"]
    assert [each.part for each in found] == ["train"] * 40 + ["test"] * 20 + ["ood"] * 3


def test_names_of_folders_may_be_written_in_several_ways(images):
    for name, other in (("Red panda", "red_panda"), ("Polar bear", "21Polar bear"), ("Owl", "OWL"), ("Whale", "whale")):
        (images / name).rename(images / other)
    (images / "Lion" / ".hidden.png").write_bytes(b"")
    (images / ".git").mkdir()
    assert len(find_photographs(images)) == 102


def test_other_species_are_named_and_left_out(images, capsys):
    species_folder(images / "Butterfly", 1, range(3))
    species_folder(images / "Ant", 1, range(3))
    assert len(find_photographs(images)) == 102
    assert capsys.readouterr().err == "warning: left out, since not among the twenty species: Ant, Butterfly\n"


def empty(folder):
    for path in folder.iterdir():
        path.unlink()


def test_missing_species_are_an_error_that_names_them(images):
    empty(images / "Lynx")
    (images / "Lynx").rmdir()
    empty(images / "Swan")
    with pytest.raises(ValueError, match=r"images has no photographs of Lynx, Swan\. Each species needs some"):
        find_photographs(images)
    species_folder(images / "Lynx", 1, range(4))
    species_folder(images / "Swan", 1, range(3))  # the fourth would be for testing
    with pytest.raises(ValueError, match=r"images has no photographs of Swan for testing\. "):
        find_photographs(images)
    empty(images / "Whale")
    with pytest.raises(ValueError, match=r"images has no photographs of Whale; nor of Swan for testing\. "):
        find_photographs(images)


def test_folders_that_cannot_be_meant_are_an_error(tmp_path, images):
    with pytest.raises(FileNotFoundError, match=f"there is no folder {tmp_path / 'nowhere'}: --images names one"):
        find_photographs(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        find_photographs(images / "Lion" / "01.png")
    (tmp_path / "empty" / "Lion").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"empty holds no photographs of animals: .* named Red panda .*end with \.jpg"):
        find_photographs(tmp_path / "empty")
    (images / "train").mkdir()
    with pytest.raises(ValueError, match="images has a folder train but no test: add it"):
        find_photographs(images)
    (images / "test").mkdir()
    with pytest.raises(
        ValueError, match="images has Brown bear beside train and test: move its photographs into those"
    ):
        find_photographs(images)


def test_features_come_back_through_animals(images, cache):
    made = make_features(images, batch=7)
    assert made.path == cache / "animals_mine_effnetlite0.npz"
    assert [path.name for path in cache.iterdir()] == [made.path.name]
    assert (made.counts, made.skipped) == ({"train": 80, "test": 20, "ood": 2}, ())
    with np.load(made.path, allow_pickle=False) as file:
        assert {name: file[name].dtype.str for name in file.files} == {
            **{f"{part}_x": "<f2" for part in ("train", "test", "ood")},
            **{f"{part}_y": "<U2" for part in ("train", "test")},
            **{"species_code": "<U2", "species_name": "<U10"},
            **{"train_file": "<U17", "test_file": "<U17", "ood_file": "<U12"},
            **{"test_pictures": "|u1", "ood_pictures": "|u1"},
        }
        assert file["train_file"][[0, -1]].tolist() == ["Red panda/01.png", "Mule/05.png"]
    for features in (made.path, str(made.path), made.path.name):
        animals = data.animals(features)
        assert animals.species == SPECIES
        assert animals.train_x.dtype == np.float32
        assert animals.train_y.tolist() == [species for species in range(20) for _ in range(4)]
        assert animals.train_x.tolist() == [list(shade(s, i)) for s in range(20) for i in (1, 2, 3, 5)]
        assert animals.test_x.tolist() == [list(shade(s, 4)) for s in range(20)]
        assert animals.test_y.tolist() == list(range(20))
        assert animals.ood_x.tolist() == [list(shade(20, i)) for i in range(2)]
        for pictures, features in ((animals.test_pictures, animals.test_x), (animals.ood_pictures, animals.ood_x)):
            assert pictures.shape == (len(features), 64, 64, 3)
            assert (pictures == features[:, None, None]).all()  # which are the picture's colour


def test_features_made_again_are_read_again(images):
    path = make_features(images).path
    before = data.animals(path)
    save(images / "Mule" / "05.png", np.zeros((3, 4, 3)))
    make_features(images)
    assert before.train_x[-1].tolist() == [190, 5, 200]
    assert data.animals(path).train_x[-1].tolist() == [0, 0, 0]


@pytest.mark.parametrize("build", [ResNet18, EfficientNetLite0])
def test_batch_does_not_change_the_features(tmp_path, monkeypatch, build):
    rng = np.random.default_rng(0)
    found = [
        photographs.Photograph(save(tmp_path / f"{i}.png", rng.integers(0, 256, (20 + i, 30, 3))), "train", "11")
        for i in range(3)
    ]
    network = build().eval()
    fit(network, made_up_weights(network), "it", "here")
    alone, together = (photographs.features_of(found, NETWORKS["resnet18"], network, batch) for batch in (1, 3))
    assert alone[0] == together[0] == found
    assert alone[1].dtype == np.float16
    # half a float16's last place apart, where rounding falls either way
    assert np.allclose(alone[1].astype(float), together[1].astype(float), rtol=2**-10, atol=1e-4)
    assert np.std(alone[1].astype(float), axis=0).max() > 0.1  # they do differ by picture


def test_photographs_that_cannot_be_read_are_named_and_left_out(images, cache, capsys):
    whole = save(images / "Lion" / "whole.jpg", np.random.default_rng(0).integers(0, 256, (90, 90, 3))).read_bytes()
    (images / "Lion" / "whole.jpg").unlink()
    (images / "Lion" / "02.png").unlink()
    (images / "Lion" / "02.jpg").write_bytes(whole[: len(whole) // 2])
    (images / "Owl" / "01.png").write_bytes(b"not a picture")
    made = make_features(images, batch=3)
    assert made.skipped == (images / "Lion" / "02.jpg", images / "Owl" / "01.png")
    assert made.counts == {"train": 78, "test": 20, "ood": 2}
    said = capsys.readouterr().err
    assert f"skipped {images / 'Lion' / '02.jpg'}: image file is truncated" in said
    assert f"skipped {images / 'Owl' / '01.png'}: cannot identify image file" in said
    animals = data.animals(made.path)
    assert animals.train_x[animals.train_y == 6].tolist() == [list(shade(6, i)) for i in (1, 3, 5)]
    assert animals.train_x[animals.train_y == 18].tolist() == [list(shade(18, i)) for i in (2, 3, 5)]


def test_small_pictures_of_others_are_not_mixed_up_where_some_cannot_be_read(images):
    species_folder(images / "Owl", 18, range(6, 9))
    (images / "Owl" / "04.png").write_bytes(b"not a picture")
    (images / "Whale" / "00.png").write_bytes(b"not a picture")
    animals = data.animals(make_features(images, batch=7).path)
    assert (animals.test_pictures == animals.test_x[:, None, None]).all()
    assert animals.test_pictures[18, 0, 0].tolist() == list(shade(18, 8))
    assert animals.ood_pictures[:, 0, 0].tolist() == [list(shade(20, 1))]


def test_species_of_which_nothing_can_be_read_is_an_error(images, cache):
    (images / "Owl" / "04.png").write_bytes(b"not a picture")
    with pytest.raises(ValueError, match="no photographs that can be read of Owl for testing"):
        make_features(images)
    for path in images.glob("*/*"):
        path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"no photographs that can be read of Red panda, Cheetah, .*, Mule, Whale"):
        make_features(images)
    assert list(cache.iterdir()) == []


def test_features_that_are_not_finite_are_an_error_that_names_the_photograph(images, tmp_path, cache):
    path = tmp_path / "w.pth"
    torch.save({"fc.weight": torch.eye(3) * torch.tensor([1, 1, 400])}, path)  # 200 * 400 is too much for float16
    with pytest.raises(ValueError, match=r"Colours makes features of .*Red panda/01.png that are not finite"):
        make_features(images, pretrained=path)
    assert list(cache.iterdir()) == []


def test_named_weights_are_used(images, tmp_path):
    path = tmp_path / "w.safetensors"
    save_file({"fc.weight": torch.eye(3) * 2}, path)
    made = make_features(images, pretrained=path, out=tmp_path / "out" / "deep")
    assert made.path == tmp_path / "out" / "deep" / "animals_mine_effnetlite0.npz"
    assert data.animals(made.path).ood_x.tolist() == [[400, 0, 400], [400, 2, 400]]
    assert not (tmp_path / "cache").exists()


def test_interrupted_work_leaves_nothing(images, cache, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    def half_written(file, **_):
        with file.open("wb") if isinstance(file, Path) else file as stream:
            stream.write(b"PK half a file")
        raise KeyboardInterrupt

    path = make_features(images).path
    old = path.read_bytes()
    for module, name, end in ((photographs, "read_photograph", interrupted), (np, "savez", half_written)):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, end)
            with pytest.raises(KeyboardInterrupt):
                make_features(images)
        assert path.read_bytes() == old
        assert list(cache.iterdir()) == [path]


def test_own_features_never_stand_in_for_the_published_ones(images, cache, monkeypatch):
    make_features(images)
    monkeypatch.setenv("MESU_DATA", str(cache))
    with pytest.raises(FileNotFoundError, match=r"Animals .EfficientNet-Lite0. was not found") as refused:
        load(ANIMALS["effnetlite0"])  # as animals("effnetlite0") does, once
    assert str(refused.value).endswith("mesu data get animals --images FOLDER, then mesu run animals --features FILE")
