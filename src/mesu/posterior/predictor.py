"""`mesu.predictor`: a network's prediction with its uncertainty as a plain module, in closed form, to ship.

See `mesu.posterior.closed_form` for how it is found.
"""

from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from mesu.posterior.bayesian import Bayesian
from mesu.posterior.closed_form import follow, outputs, run, summarised
from mesu.posterior.draws import drawn_std
from mesu.posterior.likelihood import Likelihood, named
from mesu.posterior.moments import Gaussian


class Predictor(nn.Module):
    """What `predictor` gives: inputs ``[B, ...]`` to the fields of a prediction, one after the other.

    For classes they are `probs`, `total`, `aleatoric` and `epistemic`; for another likelihood, the fields of what its
    `summarise` gives. All tensors are buffers, and calling it changes nothing.

    Attributes:
        module: The network at its means; beside each uncertain buffer the variance that it is drawn with (``weight_var``).
        likelihood: What the outputs mean.
    """

    def __init__(self, net: Bayesian, likelihood: Likelihood, settings: dict[str, Any]) -> None:
        super().__init__()
        self.likelihood = likelihood
        self.module = net.mean_network().eval()
        pairs = list(net.pairs())
        self._uncertain = tuple({pair.name.rpartition(".")[0] for pair in pairs})
        self._steps = follow(self.module, self._uncertain, settings)
        for owner in self.module.modules():
            for leaf, value in list(owner._parameters.items()):
                if value is not None:
                    delattr(owner, leaf)
                    owner.register_buffer(leaf, value.detach())
        for pair in pairs:
            owner, _, leaf = pair.name.rpartition(".")
            std: Any = drawn_std(net.module.get_submodule(owner), leaf)
            self.module.get_submodule(owner).register_buffer(f"{leaf}_var", std.detach().square())
        super().train(False)

    def train(self, mode: bool = True) -> "Predictor":
        """Stay in evaluation mode: a prediction has no dropout."""
        return super().train(False)

    def prediction(self, x: Tensor) -> Any:
        """The same as one object, as `mesu.predict` gives it."""
        out = run(self, self._steps, self._uncertain, x)
        if not isinstance(out, Gaussian | Tensor):
            raise TypeError(
                f"the network gives a {type(out).__name__}, and a prediction wants one tensor: wrap it in a module that "
                "gives its scores alone"
            )
        return summarised(self.likelihood, outputs(out) if isinstance(out, Gaussian) else out[None])

    def forward(self, x: Tensor) -> Any:
        """The fields of the prediction as a tuple; a tensor if the likelihood summarises to one."""
        made = self.prediction(x)
        if not is_dataclass(made):
            return made
        return tuple(getattr(made, field.name) for field in fields(made))


def predictor(net: Bayesian, *, likelihood: str | Likelihood | None = None, **kwargs: Any) -> Predictor:
    """A network's prediction and uncertainty as a plain module, without draws: for `torch.export`, ONNX and TorchScript.

    It is a copy of what `net` believes now, gives what ``mesu.predict(net, x, samples=0)`` gives, can be
    differentiated with respect to its input, and costs a few forward passes (docs/how-to/cheap-uncertainty.md).

    Args:
        net: The network.
        likelihood: What the outputs mean, by name or as an object; by default the network's own likelihood.
        **kwargs: Fixed arguments of the network's forward, such as a head's name.

    Returns:
        A module from inputs ``[B, ...]`` to the tuple ``(probs, total, aleatoric, epistemic)``; for a Gaussian likelihood
        ``(mean, total, aleatoric, epistemic)``.

    Raises:
        TypeError: for a network that a closed form cannot follow. The error names the module or function, here or at the
            first call, and the remedy.

    Example:
        >>> net = mesu.Bayesian(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), seed=0)
        >>> module = mesu.predictor(net)
        >>> probs, total, aleatoric, epistemic = module(torch.zeros(2, 4))
        >>> bool(torch.equal(probs, mesu.predict(net, torch.zeros(2, 4), samples=0).probs))
        True
    """
    if not isinstance(net, Bayesian):
        raise TypeError(f"a predictor is made of a mesu.Bayesian, got {type(net).__name__}")
    tensors = [
        name for name, value in kwargs.items() if any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(value))
    ]
    if tensors:
        raise TypeError(
            f"a closed form has one input, got a tensor in {tensors[0]!r} too: use mesu.predict(..., samples=100)"
        )
    with torch.no_grad():
        meaning = named(likelihood) if isinstance(likelihood, str) else likelihood or net.likelihood
        return Predictor(net, meaning, kwargs)
