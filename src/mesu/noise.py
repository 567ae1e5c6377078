"""The posterior's own source of Gaussian noise: seeded, copyable, its state a tensor that a checkpoint can hold."""

import torch
from torch import Tensor

CPU_STATE_BYTES = 5056  # size of a CPU generator's state; other devices have other sizes


class Noise:
    """A stream of standard normals that no other random code can disturb.

    Args:
        seed: Where the stream begins. None takes a seed from torch's global generator, so `torch.manual_seed` rules.

    Example:
        >>> noise = Noise(seed=1)
        >>> first = noise.normal((2,))
        >>> again = Noise(seed=1).normal((2,))
        >>> bool((first == again).all())
        True
    """

    def __init__(self, seed: int | None = None) -> None:
        if seed is None:
            seed = int(torch.randint(2**62, (1,)).item())
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, shape, like: Tensor | None = None) -> Tensor:
        """Standard normals of a shape, with the device and dtype of `like`."""
        if like is None:
            return torch.randn(shape, generator=self.generator)
        self._move(like.device)
        return torch.randn(shape, generator=self.generator, device=like.device, dtype=like.dtype)

    def uniform(self, like: Tensor) -> Tensor:
        """Uniform numbers between -1 and 1, one for each element of `like`."""
        self._move(like.device)
        return torch.rand(like.shape, generator=self.generator, device=like.device, dtype=like.dtype) * 2 - 1

    def _move(self, device: torch.device) -> None:
        # Each device type has its own generator: the new one continues from a number that the old one draws.
        if device.type != self.generator.device.type:
            seed = int(torch.randint(2**62, (1,), generator=self.generator, device=self.generator.device).item())
            self.generator = torch.Generator(device).manual_seed(seed)

    @property
    def state(self) -> Tensor:
        """Everything needed to continue the stream, as bytes in a tensor."""
        return self.generator.get_state()

    @state.setter
    def state(self, state: Tensor) -> None:
        state = state.detach().to("cpu", torch.uint8)
        device = "cpu" if state.numel() == CPU_STATE_BYTES else "cuda"
        generator = torch.Generator(device)
        generator.set_state(state)
        self.generator = generator

    def __getstate__(self) -> dict:
        return {"state": self.state}

    def __setstate__(self, saved: dict) -> None:
        self.state = saved["state"]

    def __deepcopy__(self, memo) -> "Noise":
        twin = Noise.__new__(Noise)
        twin.state = self.state
        memo[id(self)] = twin
        return twin
