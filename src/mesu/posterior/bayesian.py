"""A posterior is a module: `Bayesian` turns any `nn.Module` into a mean-field Gaussian over its weights.

    w = mu + sigma * e,   e ~ N(0, 1)                          eq. 11: the gradients of eq. 12 then come from autograd

The means stay where the weights were (`module.0.weight`), each with its standard deviation beside it
(`module.0.weight_std`). Both are `nn.Parameter`s: `state_dict`, `.to()`, deep copies and other people's frameworks carry
sigma along.
"""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from mesu.posterior import drawing, draws, initial
from mesu.posterior.coverage import as_patterns, choose, freeze_batchnorm, inside, owners, use_local_layers
from mesu.posterior.inputs import check_batch, explain_failure, first_layer
from mesu.posterior.layers import Local, drawing_with, recording
from mesu.posterior.likelihood import Likelihood, named
from mesu.posterior.linear import cost_with_curvature
from mesu.posterior.noise import Noise
from mesu.rules.checks import positive, whole

ESTIMATORS = ("linear", "local", "weights")
# The default's start: beliefs of 3 / sqrt(fan_in), drawn with a third of that variance. Wide, for sigma^2 is the first
# learning rate, and evidence narrows it soon. Found by trial on networks of the kinds in docs/learning.md.
WIDE, NARROWING = 3.0, 3.0


class _Pair(NamedTuple):
    name: str
    mean: nn.Parameter
    std: nn.Parameter


class Pair(_Pair):
    """One parameter of the posterior: its name in the module, its means and its standard deviations.

    Attributes:
        start: The standard deviation that all its weights began with; None if it is not known.
        narrowing: See `Bayesian`.
        curvature: Whether sigma's gradient is sigma times a curvature, as the estimator "linear" gives it.
    """

    start: float | None = None
    narrowing: float = 1.0
    curvature: bool = False

    def __new__(
        cls,
        name: str,
        mean: Any,
        std: Any,
        start: float | None = None,
        narrowing: float = 1.0,
        curvature: bool = False,
    ) -> "Pair":
        """A pair is a tuple of three, for those who unpack it."""
        pair = super().__new__(cls, name, mean, std)
        pair.start, pair.narrowing, pair.curvature = start, narrowing, curvature
        return pair


class Bayesian(nn.Module):
    """Any network as a mean-field Gaussian over its weights.

    The module is copied, so the original stays as it is. ``net(x, samples=10)`` draws ten networks and returns their
    outputs stacked, ``[10, B, ...]``; ``net(x)`` draws one and returns ``[B, ...]``. Every example sees `samples` different
    draws. `net.nll` is the cost to differentiate; `mesu.predict` gives probabilities and uncertainty.

    Args:
        module: The network. Parameters that do not require a gradient stay deterministic.
        estimator: How `nll` finds the gradients. ``"linear"`` draws nothing: the gradient at the means, and for sigma the
            Gauss-Newton curvature there (see `mesu.posterior.linear`). ``"local"`` draws pre-activations of Linear and Conv
            layers (cheap, less noise) and weights elsewhere; ``"weights"`` draws every weight, as the paper does. None is
            ``"linear"``, but ``"local"`` for one of the paper's starts, an `init_std`, or a likelihood that cannot `sample`.
        init: ``"keep"`` starts from the module's own weights, trained or not; ``"mnist"`` and ``"cifar"`` are the
            paper's two initialisations (see `mesu.posterior.initial`).
        init_std: One starting sigma for every weight, instead of the one that `init` names.
        init_scale: What the sigma that `init` names is multiplied by. Below 1, more of what is there is kept and less
            learned from each example; for data seen many times see docs/start.md first. None is 3 for the default estimator,
            else 1.
        input_scale: Size (root mean square) of the inputs, where it is far from 1: the first layer's sigma is divided by it.
        deterministic: Names of parameters or submodules to leave out (``"embedding"``, ``"*.bias"``).
        batchnorm: ``"refuse"`` or ``"freeze"``. Batch normalisation mixes examples and keeps running averages that no
            posterior covers; frozen, it uses the averages it came with and its gains stay deterministic.
        likelihood: ``"categorical"`` (class scores), ``"gaussian"`` (regression), ``"bernoulli"`` (any number of labels a
            row), a name that was registered, or an object of your own (docs/how-to/add-a-likelihood.md).
        noise_std: Observation noise of the Gaussian likelihood.
        narrowing: How much narrower than believed weights are drawn where nothing has been learned: a variance this many
            times smaller. Draws become as wide as sigma as evidence comes in. 1 draws what is believed, as the paper does.
            None is 3 for the default estimator, else 1.
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
        estimator: str | None = None,
        init: str = "keep",
        init_std: float | None = None,
        init_scale: float | None = None,
        input_scale: float = 1.0,
        deterministic: Iterable[str] = (),
        batchnorm: str = "refuse",
        likelihood: str | Likelihood = "categorical",
        noise_std: float = 1.0,
        narrowing: float | None = None,
        vectorize: bool | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(module, nn.Module):
            raise TypeError(f"module must be an nn.Module, got {type(module).__name__}")
        if isinstance(module, Bayesian):
            raise ValueError("the module is Bayesian already")
        self.likelihood = named(likelihood, noise_std)
        wide = init == "keep" and init_std is None and estimator in (None, "linear")
        if estimator is None:
            estimator = "linear" if wide and hasattr(self.likelihood, "sample") else "local"
            wide = estimator == "linear"
        if estimator not in ESTIMATORS:
            raise ValueError(f"estimator must be 'linear', 'local' or 'weights', got {estimator!r}")
        init_scale = (WIDE if wide else 1.0) if init_scale is None else init_scale
        narrowing = (NARROWING if wide else 1.0) if narrowing is None else narrowing
        if positive("narrowing", narrowing) < 1:
            raise ValueError(f"narrowing must be 1 (draws as wide as sigma) or more, got {narrowing!r}")
        if batchnorm not in ("refuse", "freeze"):
            raise ValueError(f"batchnorm must be 'refuse' or 'freeze', got {batchnorm!r}")
        self.estimator = estimator
        self.init = init
        self.init_std = init_std
        self.init_scale = positive("init_scale", init_scale)
        self.input_scale = positive("input_scale", input_scale)
        self.batchnorm = batchnorm
        self.narrowing = float(narrowing)
        self.vectorize = vectorize
        self.noise = Noise(seed)
        self.module = copy.deepcopy(module)
        self._turns = drawing.Turns()
        self._covered: list[str] = []
        self._starts: dict[str, float] = {}  # sigma of each covered parameter at its start
        self._cover("", deterministic)
        if not self._covered:
            raise ValueError("the module has no parameter to be uncertain about: all are frozen or left out by name")

    # -- what is covered --------------------------------------------------------------------------------------------

    def pairs(self, prefix: str = "") -> Iterator[Pair]:
        """Every covered parameter with its standard deviation, or only those of the submodule or parameter `prefix`."""
        linear = self.estimator == "linear"
        get = self.module.get_parameter
        names = [name for name in self._covered if inside(name, prefix)]
        with self._turns:
            pairs = [
                Pair(name, get(name), get(name + "_std"), self._starts.get(name), self.narrowing, linear)
                for name in names
            ]
        yield from pairs

    def deterministic_parameters(self) -> Iterator[nn.Parameter]:
        """Parameters left out of the posterior, for an ordinary optimiser."""
        ours = {id(p) for pair in self.pairs() for p in (pair.mean, pair.std)}
        return (p for p in self.parameters() if id(p) not in ours)

    def attach(self, name: str, module: nn.Module, deterministic: Iterable[str] = ()) -> list[Pair]:
        """Add a new submodule, for example a head, to the network and give it a posterior.

        Args:
            name: Its place, as a dotted path in the wrapped module: ``"heads.task2"``.
            module: The new submodule; it is copied.
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
            self._cover(name, [f"{name}.{pattern}" for pattern in as_patterns(deterministic)])
        except BaseException:
            del parent._modules[leaf]
            raise
        return list(self.pairs(name))

    def _cover(self, prefix: str, deterministic: Iterable[str]) -> None:
        """Give every parameter below `prefix` a standard deviation; layers that can draw their outputs will do so."""
        chosen = choose(self.module, prefix, deterministic, self._covered, self.batchnorm)
        holders = owners(self.module)
        _, first = first_layer(self.module)
        for name in chosen:
            owner, leaf = holders[name][0]
            scale = self.input_scale if owner is first else 1.0
            mean, std = initial.start(owner, leaf, self.init, self.init_std, self.noise, self.init_scale, scale)
            sigma = float(std.view(-1)[0]) if std.numel() else 1.0
            self._starts[name] = sigma
            if self.narrowing != 1:
                draws.narrow(owner, leaf, (self.narrowing - 1) / sigma**2)
            getattr(owner, leaf).data = mean
            owner.register_parameter(leaf + "_std", nn.Parameter(std))
        self._covered += chosen
        use_local_layers(self.module, self._covered)
        freeze_batchnorm(self.module)

    def train(self, mode: bool = True) -> "Bayesian":
        """As `nn.Module.train`, except that batch normalisation stays frozen."""
        super().train(mode)
        freeze_batchnorm(self.module)
        return self

    # -- drawing ----------------------------------------------------------------------------------------------------

    def forward(self, *args, samples: int | None = None, **kwargs):
        """Outputs of drawn networks: ``[samples, B, ...]``, or ``[B, ...]`` for one draw when `samples` is None."""
        out = self.sample(*args, samples=1 if samples is None else samples, **kwargs)
        return pytree.tree_map(lambda t: t[0], out) if samples is None else out

    def sample(self, *args, samples: int, noise: Noise | None = None, estimator: str | None = None, **kwargs):
        """`forward` with another noise or another estimator than the posterior's own."""
        samples = whole("samples", samples)
        estimator = estimator or self.estimator
        if estimator not in ESTIMATORS:
            raise ValueError(f"estimator must be 'linear', 'local' or 'weights', got {estimator!r}")
        noise = noise or self.noise
        before = noise.state
        with self._local_layers(None if estimator == "weights" else noise) as layers:
            names = self._names_to_draw(layers)
            try:
                with self._turns if names else nullcontext():
                    return self._run(names, samples, noise, before, args, kwargs)
            except BaseException as error:
                noise.state = before
                if isinstance(error, RuntimeError):
                    explain_failure(self.module, args, str(error))
                raise

    def at_mean(self, *args, **kwargs):
        """The output of the one network whose weights are the means: no noise, ``[B, ...]``."""
        with self._local_layers(None), self._turns:
            return self.module(*args, **kwargs)

    def nll(self, x: Tensor, y: Tensor, samples: int | None = None, **kwargs) -> Tensor:
        """The reduced cost C (eq. 11): negative log-likelihood, summed over the batch, averaged over the samples.

        Args:
            x: Inputs ``[B, ...]``.
            y: Targets ``[B, ...]``.
            samples: Networks that each example sees; 10 by default. With the estimator ``"linear"``, which draws no network,
                the labels that its curvature is averaged over; 1 by default.
            **kwargs: Passed on to the network's forward.

        Raises:
            ValueError: for inputs that are empty, not finite or of the wrong width, and labels without an output; the
                posterior and its noise are then unchanged.
        """
        before = self.noise.state
        if not torch.compiler.is_compiling():
            check_batch(x, y)
            self.likelihood.check(y)
        linear = self.estimator == "linear"
        samples = (1 if linear else 10) if samples is None else whole("samples", samples)
        with recording() if linear else nullcontext({}) as calls:
            out = self._at_mean_explained(x, **kwargs) if linear else self(x, samples=samples, **kwargs)
        try:
            if not isinstance(out, Tensor):
                raise TypeError(
                    f"the network gives a {type(out).__name__}, and the cost wants one tensor: wrap it in a module that "
                    "gives its scores alone"
                )
            if linear:
                return cost_with_curvature(self.likelihood, out, y, list(self.pairs()), samples, self.noise, calls)
            return self.likelihood.nll(out, y)
        except (ValueError, TypeError):
            self.noise.state = before
            raise

    def _at_mean_explained(self, x: Tensor, **kwargs):
        """`at_mean`; where it fails for the shape of the input, the error says so."""
        try:
            return self.at_mean(x, **kwargs)
        except RuntimeError as error:
            explain_failure(self.module, (x,), str(error))
            raise

    @contextmanager
    def _local_layers(self, noise: Noise | None) -> Iterator[list[str]]:
        """Let the layers that can do so draw their outputs with `noise`, if there is one; yields the names of those that do."""
        layers = {name: m for name, m in self.module.named_modules() if isinstance(m, Local)}
        with drawing_with(layers.values(), noise), drawing.ordinary_attention(self.module):
            yield [*layers] if noise is not None else []

    def _names_to_draw(self, local_layers: list[str]) -> list[str]:
        """The covered parameters of all other layers: their values are drawn."""
        local = {f"{layer}.{leaf}" if layer else leaf for layer in local_layers for leaf in ("weight", "bias")}
        return [name for name in self._covered if name not in local]

    def _run(self, names: list[str], samples: int, noise: Noise, before: Tensor, args: tuple, kwargs: dict) -> Any:
        """The samples as one batch or one after the other; a network that vmap refuses starts again at noise `before`."""
        at_once = drawing.vmap_is_faster(self.module) if self.vectorize is None else self.vectorize
        if samples > 1 and at_once:
            try:
                return drawing.all_at_once(self.module, names, samples, noise, args, kwargs)
            except (RuntimeError, NotImplementedError) as error:
                # only an operation that vmap cannot run means "loop instead"; the caller sees all other errors
                if self.vectorize or not drawing.is_vmap_refusal(error):
                    raise
                self.vectorize = False
                noise.state = before
        return drawing.one_by_one(self.module, names, samples, noise, args, kwargs)

    # -- state ------------------------------------------------------------------------------------------------------

    def state_dict(self, *args, **kwargs):
        """As `nn.Module.state_dict`: means and standard deviations, never the weights that another thread has drawn."""
        with self._turns:
            return super().state_dict(*args, **kwargs)

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
