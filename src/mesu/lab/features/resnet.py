"""ResNet18 (He et al. 2015, table 1), its weights named as in torchvision: a photograph becomes 512 features."""

import torch
from torch import Tensor, nn


class ResNet18(nn.Module):
    """Photographs [N, 3, height, width] to the scores of the 1,000 classes of ImageNet."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(Block(64, 64, stride=1), Block(64, 64, stride=1))
        self.layer2 = nn.Sequential(Block(64, 128, stride=2), Block(128, 128, stride=1))
        self.layer3 = nn.Sequential(Block(128, 256, stride=2), Block(256, 256, stride=1))
        self.layer4 = nn.Sequential(Block(256, 512, stride=2), Block(512, 512, stride=1))
        self.fc = nn.Linear(512, 1000)

    def features(self, x: Tensor) -> Tensor:
        """The 512 numbers that the last layer sees: each channel's mean over the picture."""
        x = torch.relu(self.bn1(self.conv1(x)))
        x = nn.functional.max_pool2d(x, 3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """The scores."""
        return self.fc(self.features(x))


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, channels: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels_out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.downsample = None
        if stride != 1 or channels != channels_out:
            shortcut = nn.Conv2d(channels, channels_out, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(channels_out))

    def forward(self, x: Tensor) -> Tensor:
        """relu(shortcut + residual)."""
        residual = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu((x if self.downsample is None else self.downsample(x)) + residual)
