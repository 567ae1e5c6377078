"""Animals: photographs of twenty species, and whales as strangers, as features of a network trained on ImageNet.

The species are numbered as in the paper: species i is of family i % 5, and a task has one species of each family. The
ResNet18 features are made anew from the paper's photographs: close to the published ones, not the same.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from mesu.data.finding import load
from mesu.data.published import Array, Published

# the photographs and their labels are the same for both networks
_PHOTOGRAPHS = {
    "train_y": Array((4576,), "<U2", "9c32d050b4dd60a9f4e6c97f24318f3ddc3bcd4dcb8eb9b465b6b8e27fea1665"),
    "test_y": Array((1446,), "<U2", "372e513135100990956f8bdfea53d3ac28d309e7396ac2425f7e063f1309252f"),
    "species_code": Array((20,), "<U2", "484a0b6a0da55d9751bf8a9e25a5cc4ef09a8db6f172e8caf0b1f6680c6f1806"),
    "species_name": Array((20,), "<U10", "55f95615e76334836a8ea62e5b73dd43d115f07f0348dd5d5e571ad2fe51aa77"),
}
_RESNET18 = {
    "train_x": Array((4576, 512), "float16", "2d395a18676078469cbd47800dcd55cb41d2e6b0be73172725b2dca07ab54449"),
    "test_x": Array((1446, 512), "float16", "e985777d007c49edc184f131f406eede713ebafba2f9452f4a37402fef26c598"),
    "ood_x": Array((287, 512), "float16", "310732a0b647c9c9140812a5a97327c49134d57e860664fcac1668b259f4dffe"),
}
_EFFNETLITE0 = {
    "train_x": Array((4576, 1280), "float16", "3c45c8421bd8db73e6b55dacecbd0cedeed94f595b63ca9175f4dca723207581"),
    "test_x": Array((1446, 1280), "float16", "565bac7284348b6c7e4fd9c93e5dba79cd77265707698a01e26206e68ae5fc9d"),
    "ood_x": Array((287, 1280), "float16", "03c70d7704a9b3f9eceb8561ad0aa0e1512b0a7c3a902df039de058bebd77f48"),
}

ANIMALS = {
    "resnet18": Published(
        name="animals-resnet18",
        title="Animals (ResNet18)",
        what="6,309 photographs of animals as 512 features",
        contents=_RESNET18 | _PHOTOGRAPHS,
        sources=(),
    ),
    "effnetlite0": Published(
        name="animals-effnetlite0",
        title="Animals (EfficientNet-Lite0)",
        what="6,309 photographs of animals as 1,280 features",
        contents=_EFFNETLITE0 | _PHOTOGRAPHS,
        sources=(),
    ),
}


@dataclass(frozen=True)
class Animals:
    """Features of photographs, one in each row of float32, and the species of each as a whole number from 0."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    ood_x: np.ndarray  # whales: no species to learn
    species: tuple[str, ...]  # names, by number


@cache
def animals(features: str = "resnet18") -> Animals:
    """4,576 photographs to learn, 1,446 to test and 287 whales, as features.

    Args:
        features: The network that they are from: `"resnet18"` (512 features) or `"effnetlite0"` (1,280).
    """
    if features not in ANIMALS:
        raise ValueError(f"features must be one of {', '.join(ANIMALS)}, got {features!r}")
    arrays = load(ANIMALS[features])
    train_x, test_x, ood_x = (arrays[name].astype(np.float32) for name in ("train_x", "test_x", "ood_x"))
    # codes are sorted, so a code's place among them is the species' number
    train_y, test_y = (np.searchsorted(arrays["species_code"], arrays[name]) for name in ("train_y", "test_y"))
    return Animals(train_x, train_y, test_x, test_y, ood_x, tuple(arrays["species_name"].tolist()))
