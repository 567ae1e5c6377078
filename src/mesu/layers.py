"""Layers that draw their pre-activations instead of their weights: the local reparameterisation (Kingma et al., 2015).

For a linear layer fed one example, with independent Gaussian weights, pre-activation j is Gaussian too,

    m_j = sum_i x_i mu_ij        s_j^2 = sum_i x_i^2 sigma_ij^2        a_j = m_j + s_j e_j,   e_j ~ N(0, 1)

and independent of the other outputs. Drawing a is therefore the same in distribution as drawing the weights, at one
normal per output instead of one per weight, and sigma's gradient keeps its mean and loses variance.

Where one weight meets several inputs of the same example (a convolution's positions, a linear layer along a sequence)
each position still has the right mean and variance, but positions are drawn independently, which drawn weights are not.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from mesu.noise import Noise

# Under the root, so that an all-zero input (s = 0, where the root has no slope) gives a zero gradient and not NaN.
TINY = 1e-30


class Local:
    """A layer that, while it has a `noise`, draws its outputs; without one it is the plain layer it was."""

    noise: Noise | None = None

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer's linear map for given weights."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output: drawn when there is noise to draw it with."""
        layer: Any = self
        if self.noise is None:
            return self.linear(x, layer.weight, layer.bias)
        bias_std = getattr(layer, "bias_std", None)
        mean = self.linear(x, layer.weight, layer.bias)
        var = self.linear(x.square(), layer.weight_std.square(), None if bias_std is None else bias_std.square())
        return mean + var.clamp_min(TINY).sqrt() * self.noise.normal(mean.shape, like=mean)


class LocalLinear(Local, nn.Linear):  # type: ignore[misc]
    """`nn.Linear` with drawn outputs."""

    def linear(self, x, weight, bias):
        return F.linear(x, weight, bias)


class LocalConv1d(Local, nn.Conv1d):  # type: ignore[misc]
    """`nn.Conv1d` with drawn outputs."""

    def linear(self, x, weight, bias):
        return self._conv_forward(x, weight, bias)


class LocalConv2d(Local, nn.Conv2d):  # type: ignore[misc]
    """`nn.Conv2d` with drawn outputs."""

    def linear(self, x, weight, bias):
        return self._conv_forward(x, weight, bias)


class LocalConv3d(Local, nn.Conv3d):  # type: ignore[misc]
    """`nn.Conv3d` with drawn outputs."""

    def linear(self, x, weight, bias):
        return self._conv_forward(x, weight, bias)


LOCAL_TWIN: dict[type, type] = {
    nn.Linear: LocalLinear,
    nn.Conv1d: LocalConv1d,
    nn.Conv2d: LocalConv2d,
    nn.Conv3d: LocalConv3d,
}
