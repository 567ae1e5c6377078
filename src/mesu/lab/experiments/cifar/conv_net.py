"""The paper's convolutional network: four convolutions, one hidden layer, and a head for every task."""

from torch import Tensor, nn

SIDE = 32  # pixels of an image


class ConvNet(nn.Module):
    """Images ``[B, 3, 32, 32]`` to scores of one task's classes; the head that is asked is the one that learns.

    Args:
        heads: Tasks.
        classes: Classes of each.
        width: Channels of the first two convolutions, the paper's 32; the others follow it.

    Example:
        >>> ConvNet(heads=5, classes=2)(torch.zeros(7, 3, 32, 32), head=4).shape
        torch.Size([7, 2])
    """

    def __init__(self, heads: int, classes: int, width: int = 32) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, padding="same"),
            nn.ReLU(),
            nn.Conv2d(width, width, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.25),
            nn.Conv2d(width, 2 * width, 3, padding="same"),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.25),
            nn.Flatten(),
            nn.Linear(2 * width * 6 * 6, 16 * width),
            nn.ReLU(),
            nn.Dropout(0.5),
        )
        self.heads = nn.ModuleList(nn.Linear(16 * width, classes) for _ in range(heads))

    def forward(self, x: Tensor, head: int) -> Tensor:
        """Scores ``[B, classes]`` of task `head`."""
        return self.heads[head](self.body(x))
