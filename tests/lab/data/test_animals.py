"""Animals: the features of the paper, and files made of a user's own photographs."""

import numpy as np
import pytest

from mesu.lab import data
from mesu.lab.data.catalogue import data_sets
from mesu.lab.data.finding import where


def test_animals_refuses_other_features():
    with pytest.raises(ValueError, match="features must be one of resnet18, effnetlite0, got 'vgg'"):
        data.animals("vgg")


@pytest.mark.parametrize(("features", "width"), [("resnet18", 512), ("effnetlite0", 1280)])
def test_real_animals_have_the_species_that_their_files_say(real, features, width):
    name = f"animals-{features}"
    real(name)
    place = where(data_sets[name])
    assert place
    made = data.animals(features)
    assert made.train_x.shape == (4576, width)
    assert made.test_x.dtype == made.ood_x.dtype == np.float32
    assert len(made.ood_x) == 287
    assert len(made.species) == 20
    assert made.species[:5] == ("Red panda", "Cheetah", "Chicken", "Eagle", "Bull")
    with np.load(place, allow_pickle=False) as file:
        for part, labels in (("train", made.train_y), ("test", made.test_y)):
            folders = [path.split("/")[-2][2:] for path in file[f"{part}_file"].tolist()]
            assert [made.species[label] for label in labels] == folders
        assert np.array_equal(made.train_x, file["train_x"].astype(np.float32))
