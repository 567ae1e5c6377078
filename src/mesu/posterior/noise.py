"""The posterior's own source of Gaussian noise: it has a seed, can be copied, and its state is a tensor for checkpoints.

One seed serves two kinds of code: torch draws from a generator; compiled code computes its noise from the seed and the
number of the update, a counter. The state has both.
"""

from numbers import Integral

import torch
from torch import Tensor

CPU_STATE_BYTES = 5056  # size of a CPU generator's state; other devices have other sizes
LARGE_RATE = 1e6  # counts of higher rates are drawn from the Gaussian that they are near to: torch's would overflow
COUNTER_BYTES = 16  # seed and step, eight bytes each, after the generator's state


class Noise:
    """A stream of standard normals that does not change when other code draws random numbers.

    Args:
        seed: Where the stream begins. None draws a seed from torch's global generator, which `torch.manual_seed` sets.

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
        if not isinstance(seed, Integral) or not 0 <= seed < 2**63:
            raise ValueError(f"seed must be a whole number between 0 and 2**63 - 1, got {seed!r}")
        self.generator = torch.Generator().manual_seed(int(seed))
        self.seed = int(seed)  # of the counter
        self.step = 0  # updates that compiled code has drawn noise for

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

    def poisson(self, rate: Tensor) -> Tensor:
        """Counts with these rates."""
        self._move(rate.device)
        counts = torch.poisson(rate.clamp_max(LARGE_RATE), generator=self.generator)
        if not (rate > LARGE_RATE).any():
            return counts
        near = rate + rate.sqrt() * self.normal(rate.shape, like=rate)
        return torch.where(rate > LARGE_RATE, near.round(), counts)

    def _move(self, device: torch.device) -> None:
        # Each device type has its own generator: the new one continues from a number that the old one draws.
        if device.type != self.generator.device.type:
            seed = int(torch.randint(2**62, (1,), generator=self.generator, device=self.generator.device).item())
            self.generator = torch.Generator(device).manual_seed(seed)

    @property
    def state(self) -> Tensor:
        """Everything needed to continue both streams, as bytes in a tensor."""
        counter = torch.tensor([self.seed, self.step], dtype=torch.int64).view(torch.uint8)
        return torch.cat([self.generator.get_state(), counter])

    @state.setter
    def state(self, state: Tensor) -> None:
        state = state.detach().to("cpu", torch.uint8)
        generator_state, counter = state[:-COUNTER_BYTES].clone(), state[-COUNTER_BYTES:].clone()
        device = "cpu" if generator_state.numel() == CPU_STATE_BYTES else "cuda"
        generator = torch.Generator(device)
        generator.set_state(generator_state)
        self.generator = generator
        self.seed, self.step = counter.view(torch.int64).tolist()

    def __getstate__(self) -> dict:
        return {"state": self.state}

    def __setstate__(self, saved: dict) -> None:
        self.state = saved["state"]

    def __deepcopy__(self, memo) -> "Noise":
        twin = Noise.__new__(Noise)
        twin.state = self.state
        memo[id(self)] = twin
        return twin
