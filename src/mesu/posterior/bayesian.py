"""A posterior is a module: `Bayesian` turns any `nn.Module` into a mean-field Gaussian over its weights.

    w = mu + sigma * e,   e ~ N(0, 1)                          eq. 11: the gradients of eq. 12 then come from autograd

The means stay where the weights were (`module.0.weight`), each with its standard deviation beside it
(`module.0.weight_std`). Both are `nn.Parameter`s: `state_dict`, `.to()`, deep copies and other people's frameworks carry
sigma along.
"""

import copy
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils import _pytree as pytree

from mesu.posterior import initial
from mesu.posterior.layers import LOCAL_TWIN, Local
from mesu.posterior.likelihood import Likelihood, describe_bad, named
from mesu.posterior.noise import Noise
from mesu.rules.checks import positive

ESTIMATORS = ("weights", "local")
BATCHNORM = (nn.modules.batchnorm._BatchNorm,)
CONVOLUTION = (nn.modules.conv._ConvNd,)
# vmap has no batching rule for recurrent layers and attention, and turns drawn convolutions into slow grouped ones.
LOOPED = (nn.RNNBase, nn.MultiheadAttention, *CONVOLUTION)
# How torch says that shapes do not fit.
MISFIT = re.compile(
    r"shapes cannot be multiplied|size mismatch|expected input.* to have|must match the size|shape '.*' is invalid"
)


class Pair(NamedTuple):
    """One parameter of the posterior: its name in the module, its means and its standard deviations."""

    name: str
    mean: nn.Parameter
    std: nn.Parameter


class Bayesian(nn.Module):
    """Any network as a mean-field Gaussian over its weights.

    The module is copied, so the original stays as it is. ``net(x, samples=10)`` draws ten networks and returns their
    outputs stacked, ``[10, B, ...]``; ``net(x)`` draws one and returns ``[B, ...]``. Every example sees `samples` different
    draws. `net.nll` is the cost to differentiate; `mesu.predict` gives probabilities and uncertainty.

    Args:
        module: The network. Parameters that do not require a gradient stay deterministic.
        estimator: ``"local"`` draws pre-activations of Linear and Conv layers (cheap, less noise) and weights elsewhere;
            ``"weights"`` draws every weight, as the paper does.
        init: ``"keep"`` starts from the module's own weights, trained or not; ``"mnist"`` and ``"cifar"`` are the
            paper's two initialisations (see `mesu.posterior.initial`).
        init_std: One starting sigma for every weight, instead of the one that `init` names.
        init_scale: What the sigma that `init` names is multiplied by. Below 1, more of what is there is kept and less
            learned from each example; for data seen many times see docs/start.md first.
        input_scale: Size (root mean square) of the inputs, where it is far from 1: the first layer's sigma is divided by it.
        deterministic: Names of parameters or submodules to leave out (``"embedding"``, ``"*.bias"``).
        batchnorm: ``"refuse"`` or ``"freeze"``. Batch normalisation mixes examples and keeps running averages that no
            posterior covers; frozen, it uses the averages it came with and its gains stay deterministic.
        likelihood: ``"categorical"`` (class scores), ``"gaussian"`` (regression), ``"bernoulli"`` (any number of labels a
            row), a name that was registered, or an object of your own (docs/how-to/add-a-likelihood.md).
        noise_std: Observation noise of the Gaussian likelihood.
        vectorize: Run the samples as one batch (True) or one after the other (False); None picks the faster.
        seed: Seed of the posterior's own noise; None takes one from torch's global generator.

    Example:
        >>> net = mesu.Bayesian(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), seed=0)
        >>> net(torch.zeros(5, 4), samples=10).shape
        torch.Size([10, 5, 3])
        >>> [pair.name for pair in net.pairs()]
        ['0.weight', '0.bias', '2.weight', '2.bias']
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        estimator: str = "local",
        init: str = "keep",
        init_std: float | None = None,
        init_scale: float = 1.0,
        input_scale: float = 1.0,
        deterministic: Iterable[str] = (),
        batchnorm: str = "refuse",
        likelihood: str | Likelihood = "categorical",
        noise_std: float = 1.0,
        vectorize: bool | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(module, nn.Module):
            raise TypeError(f"module must be an nn.Module, got {type(module).__name__}")
        if isinstance(module, Bayesian):
            raise ValueError("the module is Bayesian already")
        if estimator not in ESTIMATORS:
            raise ValueError(f"estimator must be 'weights' or 'local', got {estimator!r}")
        if batchnorm not in ("refuse", "freeze"):
            raise ValueError(f"batchnorm must be 'refuse' or 'freeze', got {batchnorm!r}")
        self.estimator = estimator
        self.init = init
        self.init_std = init_std
        self.init_scale = positive("init_scale", init_scale)
        self.input_scale = positive("input_scale", input_scale)
        self.batchnorm = batchnorm
        self.vectorize = vectorize
        self.likelihood = named(likelihood, noise_std)
        self.noise = Noise(seed)
        self.module = copy.deepcopy(module)
        self._covered: list[str] = []
        self._cover("", deterministic)
        if not self._covered:
            raise ValueError("the module has no parameter to be uncertain about: all are frozen or left out by name")

    # -- what is covered --------------------------------------------------------------------------------------------

    def pairs(self, prefix: str = "") -> Iterator[Pair]:
        """Every covered parameter with its sigma, or only those of the submodule or parameter called `prefix`."""
        for name in self._covered:
            if _inside(name, prefix):
                yield Pair(name, self.module.get_parameter(name), self.module.get_parameter(name + "_std"))

    def deterministic_parameters(self) -> Iterator[nn.Parameter]:
        """Parameters left out of the posterior, for an ordinary optimiser."""
        ours = {id(p) for pair in self.pairs() for p in (pair.mean, pair.std)}
        return (p for p in self.parameters() if id(p) not in ours)

    def attach(self, name: str, module: nn.Module, deterministic: Iterable[str] = ()) -> list[Pair]:
        """Put a new submodule (a head, say) into the living network and give it a posterior.

        Args:
            name: Where, as a dotted path into the wrapped module: ``"heads.task2"``.
            module: The new part; it is copied.
            deterministic: Names inside it to leave out.

        Returns:
            Its pairs, for ``optimizer.add_param_group({"params": pairs})``.

        Example:
            >>> net = mesu.Bayesian(nn.ModuleDict({"old": nn.Linear(2, 2)}), seed=0)
            >>> [pair.name for pair in net.attach("new", nn.Linear(2, 3))]
            ['new.weight', 'new.bias']
        """
        parent_name, _, leaf = name.rpartition(".")
        parent = self.module.get_submodule(parent_name)
        if hasattr(parent, leaf) or (isinstance(parent, nn.ModuleDict) and leaf in parent):
            raise ValueError(f"the network already has something called {name!r}: choose another name")
        example = next(self.parameters())
        parent.add_module(leaf, copy.deepcopy(module).to(example.device, example.dtype))
        try:
            patterns = [deterministic] if isinstance(deterministic, str) else deterministic
            self._cover(name, [f"{name}.{pattern}" for pattern in patterns])
        except BaseException:
            del parent._modules[leaf]
            raise
        return list(self.pairs(name))

    def _cover(self, prefix: str, deterministic: Iterable[str]) -> None:
        """Give every parameter below `prefix` a standard deviation, and every layer that can be local its twin."""
        patterns = [deterministic] if isinstance(deterministic, str) else list(deterministic)
        normalised = {name for name, m in self.module.named_modules() if isinstance(m, BATCHNORM)}
        refused = sorted(name or type(self.module).__name__ for name in normalised if _inside(name, prefix))
        if refused and self.batchnorm == "refuse":
            raise ValueError(
                f"layer {refused[0]!r} is a batch normalisation ({len(refused)} in all): it mixes the examples of a batch "
                "and keeps running averages that no posterior covers. Use GroupNorm or LayerNorm instead, or keep it "
                "deterministic at the averages it has with Bayesian(..., batchnorm='freeze')"
            )
        owners = _owners(self.module)
        unused = set(patterns)
        covered = []
        for name, parameter in self.module.named_parameters():
            matching = {pattern for pattern in patterns if _matches(name, pattern)}
            unused -= matching
            is_std = name.endswith("_std") and name.removesuffix("_std") in self._covered
            frozen = not parameter.requires_grad or name.rpartition(".")[0] in normalised
            if name in self._covered or is_std or frozen or matching or not _inside(name, prefix):
                continue
            if isinstance(parameter, nn.UninitializedParameter):
                raise ValueError(f"parameter {name!r} has no shape yet: run the lazy module once before wrapping it")
            if any(getattr(owner, "sparse", False) is True for owner, _ in owners[name]):
                raise ValueError(
                    f"parameter {name!r} is of a layer with sparse=True: drawn weights have dense gradients, and those of "
                    f"sigma are never sparse. Make the layer with sparse=False, or leave it out: deterministic=[{name!r}]"
                )
            if parameter.is_floating_point():
                covered.append(name)
        if unused:
            raise ValueError(f"deterministic={sorted(unused)[0]!r} matches no parameter of the module")
        _, first = self._first_layer()
        for name in covered:
            owner, leaf = owners[name][0]
            scale = self.input_scale if owner is first else 1.0
            mean, std = initial.start(owner, leaf, self.init, self.init_std, self.noise, self.init_scale, scale)
            getattr(owner, leaf).data = mean
            owner.register_parameter(leaf + "_std", nn.Parameter(std))
        self._covered += covered
        places = Counter(id(m) for _, m in self.module.named_modules(remove_duplicate=False))
        for name, layer in self.module.named_modules():
            weight = f"{name}.weight" if name else "weight"
            tied = len(owners.get(weight, ())) > 1 or len(owners.get(f"{weight[:-6]}bias", ())) > 1
            shared = tied or places[id(layer)] > 1  # one draw must serve all its places
            if type(layer) in LOCAL_TWIN and weight in self._covered and not shared:
                layer.__class__ = LOCAL_TWIN[type(layer)]
        self._freeze_batchnorm()

    def train(self, mode: bool = True) -> "Bayesian":
        """As `nn.Module.train`, except that a kept batch normalisation stays frozen."""
        super().train(mode)
        self._freeze_batchnorm()
        return self

    def _freeze_batchnorm(self) -> None:
        for module in self.module.modules():
            if isinstance(module, BATCHNORM):
                module.training = False

    # -- drawing ----------------------------------------------------------------------------------------------------

    def forward(self, *args, samples: int | None = None, **kwargs):
        """Outputs of drawn networks: ``[samples, B, ...]``, or ``[B, ...]`` for one draw when `samples` is None."""
        out = self.sample(*args, samples=1 if samples is None else samples, **kwargs)
        return pytree.tree_map(lambda t: t[0], out) if samples is None else out

    def sample(self, *args, samples: int, noise: Noise | None = None, estimator: str | None = None, **kwargs):
        """`forward` with the noise and the estimator of your choice; by default the posterior's own."""
        if not isinstance(samples, int) or samples < 1:
            raise ValueError(f"samples must be a whole number, 1 or more, got {samples!r}")
        estimator = estimator or self.estimator
        if estimator not in ESTIMATORS:
            raise ValueError(f"estimator must be 'weights' or 'local', got {estimator!r}")
        noise = noise or self.noise
        before = noise.state
        with self._local_layers(noise if estimator == "local" else None) as layers:
            drawn = self._drawn_names(layers)
            try:
                if samples > 1 and self._vectorizes():
                    try:
                        return self._all_at_once(drawn, samples, noise, args, kwargs)
                    except (RuntimeError, NotImplementedError) as error:
                        # only vmap's own refusals mean "loop instead"; the rest is the caller's to see
                        if self.vectorize or not _is_vmap_refusal(error):
                            raise
                        self.vectorize = False
                        noise.state = before
                return self._one_by_one(drawn, samples, noise, args, kwargs)
            except BaseException as error:
                noise.state = before
                if isinstance(error, RuntimeError):
                    self._explain(args, str(error))
                raise

    def at_mean(self, *args, **kwargs):
        """The output of the one network whose weights are the means: no noise, ``[B, ...]``."""
        with self._local_layers(None):
            return self.module(*args, **kwargs)

    def nll(self, x: Tensor, y: Tensor, samples: int = 10, **kwargs) -> Tensor:
        """The reduced cost C (eq. 11): negative log-likelihood, summed over the batch, averaged over the samples.

        Raises:
            ValueError: for inputs that are empty or not finite or of the wrong width, and labels outside the head; the
                posterior and its noise are then as they were.
        """
        before = self.noise.state
        if not torch.compiler.is_compiling():
            for name, value in (("inputs", x), ("targets", y)):
                if not isinstance(value, Tensor):
                    raise TypeError(f"{name} must be a tensor, got {type(value).__name__}: take torch.as_tensor")
            if x.dim() == 0 or y.dim() == 0:
                raise ValueError("got a single number where a batch was expected: give inputs and targets a first axis")
            if x.shape[0] == 0 or x.shape[0] != y.shape[0]:
                raise ValueError(f"got {x.shape[0]} inputs and {y.shape[0]} targets: there must be as many, and some")
            if x.is_floating_point() and not torch.isfinite(x).all():
                raise ValueError(f"inputs must be finite, got {describe_bad(x)}: drop or fill those rows first")
            self.likelihood.check(y)
        out = self(x, samples=samples, **kwargs)
        try:
            if not isinstance(out, Tensor):
                raise TypeError(
                    f"the network gives a {type(out).__name__}, and the cost wants one tensor: wrap it in a module that "
                    "gives its scores alone"
                )
            return self.likelihood.nll(out, y)
        except (ValueError, TypeError):
            self.noise.state = before
            raise

    @contextmanager
    def _local_layers(self, noise: Noise | None) -> Iterator[list[str]]:
        """Lend the noise to the layers that draw their own outputs; yields their names."""
        layers = [(name, m) for name, m in self.module.named_modules() if isinstance(m, Local)]
        for _, layer in layers:
            layer.noise = noise
        # torch's fused attention takes weights past their layers, so that those could not draw
        fused = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            yield [name for name, _ in layers] if noise is not None else []
        finally:
            torch.backends.mha.set_fastpath_enabled(fused)
            for _, layer in layers:
                layer.noise = None

    def _drawn_names(self, local_layers: list[str]) -> list[str]:
        local = {f"{layer}.{leaf}" if layer else leaf for layer in local_layers for leaf in ("weight", "bias")}
        return [name for name in self._covered if name not in local]

    def _draw(self, names: list[str], noise: Noise) -> list[Tensor]:
        """One flat draw of standard normals for the named parameters, cut to their shapes."""
        means = [self.module.get_parameter(name) for name in names]
        if not means:
            return []
        flat = noise.normal((sum(m.numel() for m in means),), like=means[0])
        return [e.view(m.shape) for e, m in zip(flat.split([m.numel() for m in means]), means, strict=True)]

    def _weights(self, names: list[str], eps: list[Tensor]) -> dict[str, Tensor]:
        """Eq. 11: w = mu + sigma * e."""
        get = self.module.get_parameter
        return {name: get(name) + get(name + "_std") * e for name, e in zip(names, eps, strict=True)}

    def _one_by_one(self, names, samples, noise, args, kwargs):
        outs = []
        for _ in range(samples):
            weights = self._weights(names, self._draw(names, noise))
            outs.append(functional_call(self.module, weights, args, kwargs))
        return pytree.tree_map(lambda *leaves: torch.stack(leaves), *outs)

    def _all_at_once(self, names, samples, noise, args, kwargs):
        draws = [self._draw(names, noise) for _ in range(samples)]
        weights = self._weights(names, [torch.stack(e) for e in zip(*draws, strict=True)])
        index = torch.arange(samples)  # gives vmap its axis when every layer draws its own outputs

        def one(weights, _):
            return functional_call(self.module, weights, args, kwargs)

        return vmap(one, randomness="different")(weights, index)

    def _vectorizes(self) -> bool:
        if self.vectorize is not None:
            return self.vectorize
        return not any(isinstance(m, LOOPED) for m in self.module.modules())

    def _first_layer(self) -> tuple[str, nn.Linear | nn.modules.conv._ConvNd | None]:
        """The layer that meets the inputs, by the order in which the module names its parts."""
        layers = ((n, m) for n, m in self.module.named_modules() if isinstance(m, (nn.Linear, *CONVOLUTION)))
        return next(layers, ("", None))

    def _explain(self, args: tuple, message: str) -> None:
        """Raise a `ValueError` if the network failed because its input has the wrong width."""
        x = args[0] if args and isinstance(args[0], Tensor) else None
        name, first = self._first_layer()
        if x is None or first is None:
            return
        if isinstance(first, nn.Linear):
            fits = x.dim() > 0 and first.in_features in (x.shape[-1], prod(x.shape[1:]))
            wanted = f"{first.in_features} features"
        else:
            axis = -len(first.kernel_size) - 1
            fits = x.dim() >= -axis and x.shape[axis] == first.in_channels
            wanted = f"{first.in_channels} channels"
        if not fits or MISFIT.search(message):
            raise ValueError(
                f"an input of shape {tuple(x.shape)} does not fit: the first layer ({name or type(first).__name__!r}) "
                f"takes {wanted}"
            ) from None

    # -- state ------------------------------------------------------------------------------------------------------

    def get_extra_state(self) -> Tensor:
        """The noise generator's state, so that a restored posterior draws what the saved one would have drawn."""
        return self.noise.state

    def set_extra_state(self, state: Tensor) -> None:
        """Continue the saved noise."""
        self.noise.state = state

    def extra_repr(self) -> str:
        """What `print(net)` adds."""
        weights = sum(pair.mean.numel() for pair in self.pairs())
        return f"estimator={self.estimator!r}, init={self.init!r}, gaussian_weights={weights}"


def _inside(name: str, prefix: str) -> bool:
    return not prefix or name == prefix or name.startswith(prefix + ".")


def _matches(name: str, pattern: str) -> bool:
    return _inside(name, pattern) or fnmatchcase(name, pattern)


def _is_vmap_refusal(error: Exception) -> bool:
    text = str(error)
    return any(word in text for word in ("vmap", "Batching rule", "batching rule", "functorch"))


def _owners(module: nn.Module) -> dict[str, list[tuple[nn.Module, str]]]:
    """For each parameter name, every (submodule, attribute) that holds the same tensor: more than one if it is tied."""
    homes: dict[int, list[tuple[nn.Module, str]]] = {}
    names: dict[str, int] = {}
    for path, owner in module.named_modules():
        for leaf, parameter in owner._parameters.items():
            if parameter is not None:
                homes.setdefault(id(parameter), []).append((owner, leaf))
                names[f"{path}.{leaf}" if path else leaf] = id(parameter)
    return {name: homes[key] for name, key in names.items()}
