"""A posterior is a module: `Bayesian` turns any `nn.Module` into a mean-field Gaussian over its weights.

    w = mu + sigma * e,   e ~ N(0, 1)                          eq. 11: the gradients of eq. 12 then come from autograd

The means stay where the weights were (`module.0.weight`), each with its standard deviation beside it
(`module.0.weight_std`). Both are `nn.Parameter`s: `state_dict`, `.to()`, deep copies and other people's frameworks carry
sigma along.
"""

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from mesu.posterior import drawing, draws, health, initial, sizes
from mesu.posterior.coverage import PLAIN, as_patterns, choose, freeze_batchnorm, inside, owners, use_local_layers
from mesu.posterior.inputs import check_batch, explain_failure, first_layer, refuse_misfit
from mesu.posterior.joint import cost_with_joint_step
from mesu.posterior.layers import Local, drawing_with, recording
from mesu.posterior.likelihood import Likelihood, named
from mesu.posterior.linear import cost_with_curvature
from mesu.posterior.noise import Noise
from mesu.posterior.replicas import active_ddp, noise_of_rank, refuse_unsynchronised, summed
from mesu.rules.checks import positive, whole

ESTIMATORS = ("linear", "joint", "local", "weights")
AT_MEAN = ("linear", "joint")  # those that draw nothing, and know the curvature
# The default's start: a sigma of 3 / sqrt(fan_in). It is wide because sigma^2 is the first learning rate, and evidence soon
# narrows it. Each layer adds noise to a prediction, and deep networks barely narrow the sigmas of their middle layers: so the
# variance that is drawn is smaller by 5 n for n weight matrices, or by 1.25 n^3 if that is more.
WIDE, NARROWING = 3.0, 5.0
SHALLOW = 3  # weight matrices of a network that learns well with bounded steps: two hidden layers, a recurrent layer and a head
MARK = b"mesu 2\n\0"  # what the extra state begins with since it holds more than the noise


class _Pair(NamedTuple):
    name: str
    mean: nn.Parameter
    std: nn.Parameter


class _Told(NamedTuple):
    """What the first inputs of a layer changed."""

    layer: str
    by: float  # the divisor
    divided: dict[str, bool]  # the parameters, each with whether its means were divided too
    size: float  # `input_size` before


class Pair(_Pair):
    """One parameter of the posterior: its name in the module, its means and its standard deviations.

    Attributes:
        narrowing: See `Bayesian`.
        curvature: Whether sigma's gradient is sigma times a curvature, as the estimators "linear" and "joint" give it.
        deep: Whether it is of a network that learns better with `mesu.rules.paced`.
    """

    first: Tensor | None = None  # the start, shared with the network: its first batch may change it
    narrowing: float = 1.0
    curvature: bool = False
    deep: bool = False

    @property
    def start(self) -> float | None:
        """The standard deviation that all its weights began with; None if it is not known."""
        return None if self.first is None else float(self.first)

    def __new__(
        cls,
        name: str,
        mean: Any,
        std: Any,
        start: float | Tensor | None = None,
        narrowing: float = 1.0,
        curvature: bool = False,
        deep: bool = False,
    ) -> "Pair":
        """A pair is a tuple of three, for those who unpack it."""
        pair = super().__new__(cls, name, mean, std)
        pair.first = start if start is None else as_start(start)
        pair.narrowing, pair.curvature, pair.deep = narrowing, curvature, deep
        return pair


def as_start(sigma: float | Tensor) -> Tensor:
    """A start as a number that others can share."""
    return sigma if isinstance(sigma, Tensor) else torch.tensor(sigma, dtype=torch.float64, device="cpu")


class Bayesian(nn.Module):
    """Any network as a mean-field Gaussian over its weights.

    The module is copied, so the original stays as it is. ``net(x, samples=10)`` draws ten networks and returns their
    outputs stacked, ``[10, B, ...]``; ``net(x)`` draws one and returns ``[B, ...]``. Every example sees `samples` different
    draws. `net.nll` is the cost to differentiate; `mesu.predict` gives probabilities and uncertainty.

    Args:
        module: The network. Parameters that do not require a gradient stay deterministic.
        estimator: How `nll` finds the gradients. ``"linear"`` draws nothing: the gradient at the means, and for sigma the
            Gauss-Newton curvature there (see `mesu.posterior.linear`). ``"joint"`` is that with one step of all weights
            together, for a network that predicts one number, one example an update (`mesu.posterior.joint`). ``"local"``
            draws pre-activations of Linear and Conv layers (cheap, less noise) and weights elsewhere; ``"weights"`` draws
            every weight, as the paper does. None is ``"linear"``, but ``"local"`` for one of the paper's starts, an
            `init_std`, or a likelihood that cannot `sample`.
        init: ``"keep"`` starts from the module's own weights, trained or not; ``"mnist"`` and ``"cifar"`` are the
            paper's two initialisations (see `mesu.posterior.initial`).
        init_std: One starting sigma for every weight, instead of the one that `init` names.
        init_scale: What the sigma that `init` names is multiplied by. Below 1, more of what is there is kept and less
            learned from each example; for data seen many times see docs/start.md first. None is 3 for the default estimator,
            else 1.
        input_scale: Size (root mean square) of the inputs, where it is far from 1: the first layer's sigma is divided by it.
            None lets the first batch of `nll` tell (see `fit_inputs`) for the default estimator, and is 1 for the others.
        deterministic: Names of parameters or submodules to leave out (``"embedding"``, ``"*.bias"``).
        batchnorm: ``"refuse"`` or ``"freeze"``. Batch normalisation mixes examples and keeps running averages that no
            posterior covers; frozen, it uses the averages it came with and its gains stay deterministic.
        likelihood: ``"categorical"`` (class scores), ``"gaussian"`` (regression), ``"heteroscedastic"`` (regression that learns
            its noise), ``"bernoulli"`` (any number of labels a row), ``"poisson"`` (counts), a name that was registered, or an
            object: ``mesu.posterior.Categorical(ignore_index=...)``, or one of your own (docs/how-to/add-a-likelihood.md).
        noise_std: Observation noise of the Gaussian likelihood.
        narrowing: How much narrower than believed weights are drawn where nothing has been learned: a variance this many
            times smaller. Draws become as wide as sigma as evidence comes in. 1 draws what is believed, as the paper does.
            None is for the default estimator 5 times the number n of weight matrices, or 1.25 n³ if that is more; else 1.
        vectorize: Run the samples as one batch (True) or one after the other (False); None picks the faster.
        seed: Seed of the posterior's own noise; None takes one from torch's global generator.

    Example:
        >>> net = mesu.Bayesian(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), seed=0)
        >>> net(torch.zeros(5, 4), samples=10).shape
        torch.Size([10, 5, 3])
        >>> [pair.name for pair in net.pairs()]
        ['0.weight', '0.bias', '2.weight', '2.bias']
    """

    _wrapped_by_ddp = False  # itself, not a module that it is part of
    _own_noise = False  # this process's, of several that train copies of the network
    _ignored_by_ddp: Any = None

    def __init__(
        self,
        module: nn.Module,
        *,
        estimator: str | None = None,
        init: str = "keep",
        init_std: float | None = None,
        init_scale: float | None = None,
        input_scale: float | None = None,
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
        refuse_posteriors_inside(module)
        self.likelihood = named(likelihood, noise_std)
        wide = init == "keep" and init_std is None and estimator in (None, *AT_MEAN)
        if estimator is None:
            estimator = "linear" if wide and hasattr(self.likelihood, "sample") else "local"
            wide = estimator == "linear"
        if estimator not in ESTIMATORS:
            raise ValueError(f"estimator must be 'linear', 'joint', 'local' or 'weights', got {estimator!r}")
        init_scale = (WIDE if wide else 1.0) if init_scale is None else init_scale
        if narrowing is not None and positive("narrowing", narrowing) < 1:
            raise ValueError(f"narrowing must be 1 (draws as wide as sigma) or more, got {narrowing!r}")
        if batchnorm not in ("refuse", "freeze"):
            raise ValueError(f"batchnorm must be 'refuse' or 'freeze', got {batchnorm!r}")
        self.estimator = estimator
        self.init = init
        self.init_std = init_std
        self.init_scale = positive("init_scale", init_scale)
        self._tells = wide and input_scale is None  # whether the first batch tells the size of inputs
        self.input_scale = positive("input_scale", 1.0 if input_scale is None else input_scale)
        self.batchnorm = batchnorm
        self.vectorize = vectorize
        self.noise = Noise(seed)
        self.module = copy.deepcopy(module)
        self._turns = drawing.Turns()
        self._covered: list[str] = []
        self.input_size = self.input_scale  # of the inputs that the first layer starts for
        self._starts: dict[str, Tensor] = {}  # sigma of each covered parameter at its start
        self._made: dict[str, float] = {}  # the same before any inputs told their size
        self._unsized: set[str] = set()  # layers whose inputs have not been seen
        patterns = as_patterns(deterministic)
        chosen = choose(self.module, "", patterns, [], batchnorm)
        self._matrices = sum(self.module.get_parameter(name).dim() > 1 for name in chosen)
        if narrowing is None and wide:
            narrowing = NARROWING * max(1, self._matrices) * max(1.0, (self._matrices / 2) ** 2)
        self.narrowing = 1.0 if narrowing is None else float(narrowing)
        self._cover("", patterns)
        if not self._covered:
            raise ValueError("the module has no parameter to be uncertain about: all are frozen or left out by name")

    # -- what is covered --------------------------------------------------------------------------------------------

    def pairs(self, prefix: str = "") -> Iterator[Pair]:
        """Every covered parameter with its standard deviation, or only those of the submodule or parameter `prefix`."""
        linear, deep = self.estimator in AT_MEAN, self.estimator == "linear" and self._matrices > SHALLOW
        names = [name for name in self._covered if inside(name, prefix)]
        with self._turns:
            at: dict[str, Any] = dict(self.module.named_parameters(remove_duplicate=False))
            gone = [name for name in names if name not in at or name + "_std" not in at]
            if gone:
                raise RuntimeError(
                    f"parameter {gone[0]!r} or its sigma is not in the network any more: something has replaced it. Of torch's "
                    "sharding, use torch.distributed.fsdp.fully_shard, not FullyShardedDataParallel"
                )
            pairs = [
                Pair(name, at[name], at[name + "_std"], self._starts.get(name), self.narrowing, linear, deep)
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
        refuse_posteriors_inside(module)
        example = next(self.parameters())
        parent.add_module(leaf, copy.deepcopy(module).to(example.device, example.dtype))
        try:
            self._cover(name, [f"{name}.{pattern}" for pattern in as_patterns(deterministic)])
        except BaseException:
            del parent._modules[leaf]
            raise
        return list(self.pairs(name))

    def _cover(self, prefix: str, deterministic: Iterable[str]) -> None:
        """Give every parameter below `prefix` a standard deviation, and let layers draw their outputs where they can."""
        chosen = choose(self.module, prefix, deterministic, self._covered, self.batchnorm)
        holders = owners(self.module)
        _, first = first_layer(self.module)
        for name in chosen:
            owner, leaf = holders[name][0]
            scale = self.input_scale if owner is first else 1.0
            mean, std = initial.start(owner, leaf, self.init, self.init_std, self.noise, self.init_scale, scale)
            sigma = float(std.view(-1)[0]) if std.numel() else 1.0
            self._starts[name], self._made[name] = as_start(sigma), sigma
            if self.narrowing != 1:
                draws.narrow(owner, leaf, (self.narrowing - 1) / sigma**2)
            getattr(owner, leaf).data = mean
            owner.register_parameter(leaf + "_std", nn.Parameter(std))
            if self._tells and leaf in sizes.entries(owner) and len(holders[name]) == 1:
                self._unsized.add(name.rpartition(".")[0])
        self._covered += chosen
        use_local_layers(self.module, self._covered)
        freeze_batchnorm(self.module)

    def train(self, mode: bool = True) -> "Bayesian":
        """As `nn.Module.train`, except that batch normalisation stays frozen."""
        super().train(mode)
        freeze_batchnorm(self.module)
        return self

    # -- the size of the inputs -------------------------------------------------------------------------------------

    def fit_inputs(self, x: Tensor, **kwargs) -> None:
        """Let inputs tell how large they are, as the first batch of `nll` does by itself; later calls change nothing.

        Where the inputs of a layer are more than four times as large as one, or as small, its first sigma is divided by their
        size, and so are its means if they are still as torch made them. Call it before the first batch, with the same inputs in
        every process, where several processes learn together or `nll` is compiled.

        Args:
            x: Inputs ``[B, ...]``.
            **kwargs: Passed on to the network's forward.
        """
        with torch.enable_grad(), self._sizing():
            self.at_mean(x.detach(), **kwargs)

    @property
    def awaits_inputs(self) -> bool:
        """Whether there is a layer that no inputs have reached yet, and that will start as suits their size."""
        return bool(self._unsized)

    def _told(self, x: Tensor) -> Any:
        """The context for a forward pass: in what may be the first batch, the size of the inputs is measured."""
        alone = self._unsized and not x.requires_grad and sizes.may_measure() and not sizes.several_processes()
        return self._sizing() if alone else nullcontext([])

    @contextmanager
    def _sizing(self) -> Iterator[list["_Told"]]:
        """Inside, layers that meet their first inputs are scaled to suit them. Yields what was done, for `_undo`."""
        done: list[_Told] = []
        with self._turns:
            layers = [(name, self.module.get_submodule(name)) for name in self._unsized]
            try:
                with sizes.watching(layers, partial(self._meet, done)):
                    yield done
            except BaseException:
                self._undo(done)
                raise

    def _undo(self, done: list["_Told"]) -> None:
        """Undo what the inputs of a refused batch have changed. The divisors are powers of two: nothing is lost to rounding."""
        with self._turns:
            for name, by, divided, size in reversed(done):
                self._divide(name, 1 / by, divided)
                self._unsized.add(name)
                self.input_size = size

    def _meet(self, done: list["_Told"], name: str, x: Tensor) -> None:
        """A layer is about to meet its first inputs."""
        if name not in self._unsized:
            return
        if x.requires_grad or not x.is_floating_point():  # they come from weights that learn
            self._unsized.discard(name)
            done.append(_Told(name, 1.0, {}, self.input_size))
            return
        size = sizes.size_of(x)
        if size > 0:  # zeros tell nothing: wait for others
            self._unsized.discard(name)
            by = sizes.divisor(size, x.numel())
            before = self.input_size
            done.append(_Told(name, by, self._divide(name, by), before))

    @torch.no_grad()
    def _divide(self, layer: str, by: float, which: dict[str, bool] | None = None) -> dict[str, bool]:
        """Divide a layer's first sigmas, and its means where torch made them.

        Args:
            layer: Its name.
            by: What to divide by.
            which: The parameters to divide, each with whether its means are too; None finds out which.

        Returns:
            The parameters that were divided, each with whether its means were.
        """
        divided: dict[str, bool] = {}
        owner = self.module.get_submodule(layer)
        self.input_size = by if health.enters_first(self.module, owner) else self.input_size
        for leaf in sizes.entries(owner):
            name = f"{layer}.{leaf}" if layer else leaf
            if by == 1 or name not in self._starts or (which is not None and leaf not in which):
                continue
            mean, std = owner.get_parameter(leaf), owner.get_parameter(leaf + "_std")
            if which is None and not bool((std == float(self._starts[name])).all()):
                continue  # it has learned, from inputs that were not measured: what it knows stays
            bound = sizes.torch_bound(owner, leaf)
            divided[leaf] = sizes.as_torch_made(mean, bound) if which is None else which[leaf]
            if divided[leaf]:
                mean.data /= by
            std.data /= by
            self._set_start(name, float(self._starts[name]) / by)
        return divided

    def _set_start(self, name: str, sigma: float) -> None:
        """Say where a parameter started: to the optimisers that share it, and to its draws."""
        self._starts[name].fill_(sigma)
        owner, _, leaf = name.rpartition(".")
        if self.narrowing != 1:
            draws.narrow(self.module.get_submodule(owner), leaf, (self.narrowing - 1) / sigma**2)

    # -- plain networks ---------------------------------------------------------------------------------------------

    def mean_network(self) -> nn.Module:
        """A copy of the module that was wrapped, at the means: plain layers, and the names that it had in its `state_dict`.

        Example:
            >>> net = mesu.Bayesian(nn.Linear(2, 3), seed=0)
            >>> net.mean_network()
            Linear(in_features=2, out_features=3, bias=True)
        """
        with self._turns:
            module = copy.deepcopy(self.module)
        for name in self._covered:
            owner, _, leaf = name.rpartition(".")
            delattr(module.get_submodule(owner), leaf + "_std")
        for layer in module.modules():
            layer.__class__ = PLAIN.get(type(layer), type(layer))
            vars(layer).pop(draws.KEPT, None)
        return module

    def load_means(self, state_dict: Mapping[str, Tensor]) -> None:
        """Take the means, and the buffers, from the `state_dict` of a plain network of the same kind. Sigma stays.

        Raises:
            ValueError: for names that are missing, unexpected or of another shape, and for values that are not finite;
                nothing is changed then.
        """
        with self._turns:
            stds = {name + "_std" for name in self._covered}
            own = {name: value for name, value in self.module.state_dict().items() if name not in stds}
            refuse_misfit(own, state_dict)
            with torch.no_grad():
                for name, value in own.items():
                    value.copy_(state_dict[name])

    # -- drawing ----------------------------------------------------------------------------------------------------

    def forward(self, *args, samples: int | None = None, **kwargs):
        """Outputs of drawn networks: ``[samples, B, ...]``, or ``[B, ...]`` for one draw when `samples` is None."""
        self._take_noise_of_rank()
        out = self.sample(*args, samples=1 if samples is None else samples, **kwargs)
        return pytree.tree_map(lambda t: t[0], out) if samples is None else out

    def sample(self, *args, samples: int, noise: Noise | None = None, estimator: str | None = None, **kwargs):
        """`forward` with another noise or another estimator than the posterior's own."""
        samples = whole("samples", samples)
        estimator = estimator or self.estimator
        if estimator not in ESTIMATORS:
            raise ValueError(f"estimator must be 'linear', 'joint', 'local' or 'weights', got {estimator!r}")
        noise = noise or self.noise
        before = noise.state
        with self._local_layers(None if estimator == "weights" else noise) as layers:
            names = self._names_to_draw(layers)
            try:
                with self._turns if names else self._turns.shared(), drawing.without_checkpoints():
                    out = self._run(names, samples, noise, before, args, kwargs)
            except BaseException as error:
                noise.state = before
                if isinstance(error, RuntimeError):
                    explain_failure(self.module, args, str(error))
                raise
        if torch.is_grad_enabled() and self.estimator != "linear" and sizes.may_measure():
            health.look_at_drawn(self, out)
        return out

    def at_mean(self, *args, **kwargs):
        """The output of the one network whose weights are the means: no noise, ``[B, ...]``."""
        with self._local_layers(None), self._turns.shared():
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
        if self._wrapped_by_ddp:
            refuse_unsynchronised(self)
        self._take_noise_of_rank()
        before = self.noise.state
        if not torch.compiler.is_compiling():
            check_batch(x, y)
            self.likelihood.check(y)
        linear = self.estimator in AT_MEAN
        samples = (1 if linear else 10) if samples is None else whole("samples", samples)
        with recording() if linear else nullcontext({}) as calls, self._told(x) as told:
            out = self._at_mean_explained(x, **kwargs) if linear else self(x, samples=samples, **kwargs)
        try:
            if not isinstance(out, Tensor):
                raise TypeError(
                    f"the network gives a {type(out).__name__}, and the cost wants one tensor: wrap it in a module that "
                    "gives its scores alone"
                )
            if self.estimator == "joint":
                if active_ddp() is not None:
                    raise ValueError(
                        "estimator='joint' makes the step of one example, and several processes have one each: use "
                        "estimator='linear', whose costs add up"
                    )
                others = list(self.deterministic_parameters())
                cost = cost_with_joint_step(self.likelihood, out, y, list(self.pairs()), others)
            elif linear:
                cost = cost_with_curvature(self.likelihood, out, y, list(self.pairs()), samples, self.noise, calls)
            else:
                cost = self.likelihood.nll(out, y)
            cost = summed(cost)
        except BaseException:
            self.noise.state = before
            self._undo(told)
            raise
        if cost.requires_grad and sizes.may_measure():
            health.look_at_batch(self, x, y, out if linear else out[0], cost)
        return cost

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
        """Run the samples as one batch, or one after the other. If vmap refuses, start again from the noise state `before`."""
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

    def load_state_dict(self, *args, **kwargs):
        """As `nn.Module.load_state_dict`: not while another thread has drawn weights in the module."""
        with self._turns:
            return super().load_state_dict(*args, **kwargs)

    def get_extra_state(self) -> Tensor:
        """The noise generator's state, so that a restored posterior draws what the saved one would have drawn.

        Where the first batch tells the size of inputs, also where sigmas started: a network made anew could not know.
        """
        if not self._tells:
            return self.noise.state
        starts = {name: float(start) for name, start in self._starts.items()}
        known = json.dumps({"starts": starts, "unsized": sorted(self._unsized), "input_size": self.input_size}).encode()
        noise = self.noise.state
        head = MARK + noise.numel().to_bytes(8, "little")
        return torch.cat([_as_bytes(head), noise, _as_bytes(known)])

    def set_extra_state(self, state: Tensor) -> None:
        """Continue the saved noise, from the saved starts. Before there were starts in it, none had been changed."""
        self._own_noise = False
        state = state.detach().to("cpu", torch.uint8)
        if bytes(state[: len(MARK)].tolist()) != MARK:
            self.noise.state = state
            for name, sigma in self._made.items():
                self._set_start(name, sigma)
            self._unsized.clear()
            return
        at = len(MARK) + 8
        end = at + int.from_bytes(bytes(state[len(MARK) : at].tolist()), "little")
        known = json.loads(bytes(state[end:].tolist()))
        self.noise.state = state[at:end]
        for name, sigma in known["starts"].items():
            if name in self._starts:
                self._set_start(name, sigma)
        self.input_size = known["input_size"]
        self._unsized = set(known["unsized"]) & {name.rpartition(".")[0] for name in self._starts}

    def __setstate__(self, state: dict) -> None:
        """As torch's; a network that was pickled before the first batch told the size of inputs has starts that stay."""
        super().__setstate__(state)
        self._starts = {name: as_start(sigma) for name, sigma in self._starts.items()}
        self.__dict__.setdefault("_unsized", set())
        self.__dict__.setdefault("_matrices", 0)
        self.__dict__.setdefault("_made", {})
        self.__dict__.setdefault("_tells", False)
        self.__dict__.setdefault("input_size", getattr(self, "input_scale", 1.0))

    # -- several processes ------------------------------------------------------------------------------------------

    def _take_noise_of_rank(self) -> None:
        """Let the copies of this network on several processes draw noise of their own."""
        if not self._own_noise and active_ddp() is not None:
            self.noise, self._own_noise = noise_of_rank(self.noise) or self.noise, True

    @property
    def _ddp_params_and_buffers_to_ignore(self) -> Any:
        # DDP asks for this when it wraps a network, and is the only one to do so: the network learns here that it is wrapped
        self._wrapped_by_ddp = True
        if self._ignored_by_ddp is None:
            raise AttributeError("nothing is left out")
        return self._ignored_by_ddp

    @_ddp_params_and_buffers_to_ignore.setter
    def _ddp_params_and_buffers_to_ignore(self, names: Any) -> None:
        self._ignored_by_ddp = names

    def extra_repr(self) -> str:
        """What `print(net)` adds."""
        weights = sum(pair.mean.numel() for pair in self.pairs())
        return f"estimator={self.estimator!r}, init={self.init!r}, gaussian_weights={weights}"


def refuse_posteriors_inside(module: nn.Module) -> None:
    """Raise `ValueError` if a module is a posterior, or has one in it: its standard deviations would be taken for weights."""
    for name, part in module.named_modules():
        if isinstance(part, Bayesian):
            raise ValueError(
                f"its part {name!r} is Bayesian already: make one mesu.Bayesian of the whole plain network"
                if name
                else "the module is Bayesian already"
            )


def _as_bytes(text: bytes) -> Tensor:
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)
