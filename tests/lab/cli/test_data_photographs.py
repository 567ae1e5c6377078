"""`mesu data get animals --images`: what the command prints, and with which exit code."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.lab.data import places
from tests.lab.features import made_up
from tests.lab.features.made_up import Colours

from mesu.lab import data
from mesu.lab.cli import main as cli
from mesu.lab.features import photographs
from mesu.lab.features.photographs import (
    NETWORKS,
    make_features,
)

folders, cache, images = places.folders, places.cache, made_up.images  # fixtures


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
    assert err.endswith("79 photographs for training, 20 for testing, 2 outliers; 1 skipped as unreadable\n")
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
    assert err == "features of 102 photographs by Colours\nstopped\n"
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
            "error: 'animals' stands for two data sets: animals-resnet18 (6,309 photographs of animals as 512 features) "
            "and animals-effnetlite0 "
            "(6,309 photographs of animals as 1,280 features)",
        ),
        (["animals"], "or make features of your own photographs with mesu data get animals --images FOLDER"),
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
