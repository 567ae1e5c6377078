"""Made-up weights and photographs that the tests of features share: no network, and each picture says which it is."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from mesu.lab.data.animals import SPECIES
from mesu.lab.features.photographs import (
    NETWORKS,
    Network,
)


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


def save(path, array, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(array, dtype=np.uint8)).save(path, **options)
    return path


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
