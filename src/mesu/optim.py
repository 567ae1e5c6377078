"""Rules as ordinary `torch.optim.Optimizer`s, for any module on any device.

A step is all or nothing: new values of every parameter are computed first, checked, and only then written, so a refused
step leaves the network as it was. Posterior rules (`MESU`, `FOOVB`, ...) keep nothing between steps, for what they know is
sigma, and that is in the network; weight rules (`EWC`, `SI`, ...) keep their importances in `optimizer.state`.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from mesu import rules
from mesu.posterior import Bayesian, Pair
from mesu.rules import Gaussian

SAFE_STEP = 1.0  # sigmas: noise in a slope can then at most double a sigma, which the next slopes undo
PIECE = 65_536  # weights; twice as many or half is nearly as good, a million at once takes three times as long
Inner = Callable[..., Optimizer] | None  # torch.optim.Adam and its like


class StepRefused(ValueError):
    """A step that would have left a weight not finite, or a sigma not positive. Nothing was changed."""


class PosteriorOptimizer(Optimizer):
    """A posterior rule as an optimiser: subclasses name the rule and its settings.

    A parameter group holds pairs laid out as ``[mean, std, mean, std, ...]``, so that state dicts, copies and other
    frameworks see a plain list of parameters.
    """

    remedy = "set max_step below 1, or lower the rate of sigma"  # for a sigma that a step would break

    def __init__(self, params: Any, defaults: dict, foreach: bool | None) -> None:
        groups: list[Any] = [params] if isinstance(params, (Bayesian, Pair)) else list(params)
        if not groups:
            raise ValueError("there is nothing to optimise: give a mesu.Bayesian or its pairs()")
        if not isinstance(groups[0], dict):
            groups = [{"params": params if isinstance(params, Bayesian) else groups}]
        super().__init__(groups, {**defaults, "foreach": foreach})

    def rule(self, q: Gaussian, g: Gaussian, group: dict) -> Gaussian:
        """The rule with this group's settings; raises `ValueError` for settings that make no sense."""
        raise NotImplementedError

    def add_param_group(self, param_group: dict) -> None:
        """Add pairs with settings of their own.

        Args:
            param_group: ``{"params": net_or_pairs, ...settings}``, where the pairs come from `Bayesian.pairs` or
                `Bayesian.attach`, or are plain ``(mean, std)`` tuples.
        """
        pairs = _named_pairs(param_group["params"])
        settings = {**self.defaults, **param_group}
        zero = torch.zeros(1)
        self.rule(Gaussian(zero, zero + 1), Gaussian(zero, zero), settings)  # refuses bad settings now, not later
        flat = [parameter for pair in pairs for parameter in (pair.mean, pair.std)]
        super().add_param_group({**param_group, "params": flat, "names": [pair.name for pair in pairs]})

    @torch.no_grad()
    def step(self, closure=None):  # type: ignore[override]
        """Move every pair that has gradients; leave the others alone.

        Raises:
            StepRefused: if a gradient is not finite, or a new sigma would not be positive and finite.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        proposals = []
        for group in self.param_groups:
            for pairs in _buckets(_with_gradients(group), fused=group["foreach"] is not False):
                q = Gaussian(_vector([p.mean for p in pairs]), _vector([p.std for p in pairs]))
                g = Gaussian(_vector([p.mean.grad for p in pairs]), _vector([p.std.grad for p in pairs]))
                new = self._moved(q, g, group)
                _refuse_unsound(pairs, g, new, self.remedy)
                proposals.append((pairs, new))
        for pairs, new in proposals:
            _write([p.mean for p in pairs], new.mean)
            _write([p.std for p in pairs], new.std)
        return loss

    def _moved(self, q: Gaussian, g: Gaussian, group: dict) -> Gaussian:
        """The rule's proposal, on a CPU a piece at a time: what a rule computes on the way then stays in the cache."""
        if q.mean.device.type != "cpu" or q.mean.numel() <= PIECE or torch.compiler.is_compiling():
            return self.rule(q, g, group)
        new = Gaussian(torch.empty_like(q.mean), torch.empty_like(q.std))
        for mean, std, *arguments in zip(*(vector.split(PIECE) for vector in (*new, *q, *g)), strict=True):
            moved = self.rule(Gaussian(*arguments[:2]), Gaussian(*arguments[2:]), group)
            mean.copy_(moved.mean)
            std.copy_(moved.std)
        return new


class MESU(PosteriorOptimizer):
    """Metaplasticity from Synaptic Uncertainty: continual learning with a memory of `memory` updates.

    Differentiate a loss that is *summed* over the batch and averaged over the samples (`Bayesian.nll` is); there is no
    learning rate to tune. Weights without a gradient neither learn nor forget.

    Args:
        params: A `Bayesian`, its `pairs()`, or parameter groups ``{"params": net_or_pairs, ...}``.
        memory: How many updates the posterior remembers (N); ``float("inf")`` never forgets.
        prior_mean: Where an unused mean relaxes to.
        prior_std: Where an unused sigma relaxes to.
        lr_mean: Rate of the mean; 1 in the Bayesian derivation.
        lr_std: Rate of sigma, in front of eq. 9 with its half; 1 in the Bayesian derivation.
        update: ``"exact"``, the closed form, which no gradient can break; ``"paper"``, eq. 9-10 as printed.
        max_step: Trust region: the furthest that a mean or sigma may move in one step, in sigmas. ``"auto"`` is 1 for the
            exact form, where few samples or sharp targets could otherwise throw weights about, and off for the paper's.
            None is off.
        foreach: False runs the rule one parameter at a time; otherwise a group goes through it as one vector.
        max_std: The widest that a sigma may become, whatever the prior's or the trust region; ``"start"`` is the widest that
            its parameter has now, which puts every parameter in a group of its own; None is off. Where sigma's gradient is
            mostly noise (convolutions, few samples, a high `lr_std`), its noise makes some sigmas grow far beyond their start.

    Example:
        >>> net = mesu.Bayesian(nn.Linear(4, 3), seed=0)
        >>> opt = mesu.MESU(net, memory=1000)
        >>> net.nll(torch.ones(1, 4), torch.tensor([2]), samples=10).backward()
        >>> opt.step(); opt.zero_grad()
    """

    remedy = "use update='exact', set max_step below 1, or lower lr_std"

    def __init__(
        self,
        params: Any,
        memory: float,
        prior_mean: float = 0.0,
        prior_std: float = 1.0,
        lr_mean: float = 1.0,
        lr_std: float = 1.0,
        update: str = "exact",
        max_step: float | str | None = "auto",
        foreach: bool | None = None,
        max_std: float | str | None = None,
    ) -> None:
        defaults = {
            "memory": memory,
            "prior_mean": prior_mean,
            "prior_std": prior_std,
            "lr_mean": lr_mean,
            "lr_std": lr_std,
            "update": update,
            "max_step": max_step,
            "max_std": max_std,
        }
        super().__init__(params, defaults, foreach)

    def add_param_group(self, param_group: dict) -> None:
        """As for every rule; says what ``max_step="auto"`` is for the group's update, ``max_std="start"`` for its sigmas."""
        settings = {**self.defaults, **param_group}
        if settings["max_step"] == "auto":
            param_group = {**param_group, "max_step": SAFE_STEP if settings["update"] == "exact" else None}
        if not (isinstance(settings["max_std"], str) and settings["max_std"] == "start"):
            super().add_param_group(param_group)
            return
        before = len(self.param_groups)
        try:
            for pair in _named_pairs(param_group["params"]):
                start = float(pair.std.detach().max()) if pair.std.numel() else None
                super().add_param_group({**param_group, "params": [pair], "max_std": start})
        except Exception:
            del self.param_groups[before:]  # all of them or none
            raise

    def __setstate__(self, state: dict) -> None:
        """As for every rule; what was saved before there was a `max_std` had none."""
        super().__setstate__(state)
        for settings in (self.defaults, *self.param_groups):
            settings.setdefault("max_std", None)

    def rule(self, q, g, group):
        """Eq. 9-10, or their closed form."""
        names = ("memory", "prior_mean", "prior_std", "lr_mean", "lr_std", "max_step", "max_std")
        c = rules.mesu.constants(**{name: group[name] for name in names})
        if group["update"] == "exact":
            return rules.mesu.exact(q, g, c)
        if group["update"] == "paper":
            return rules.mesu.paper(q, g, c)
        raise ValueError(f"update must be 'exact' or 'paper', got {group['update']!r}")


class FOOVB(PosteriorOptimizer):
    """FOO-VB Diagonal: online variational Bayes without forgetting. MESU's exact form with the plain mean and no end.

    Args:
        params: A `Bayesian`, its `pairs()`, or parameter groups.
        lr_mean: Rate of the mean.
        lr_std: Rate of sigma.
        max_step: Trust region in sigmas; None is off.
        foreach: As for `MESU`.
    """

    def __init__(
        self,
        params: Any,
        lr_mean: float = 1.0,
        lr_std: float = 1.0,
        max_step: float | None = None,
        foreach: bool | None = None,
    ) -> None:
        super().__init__(params, {"lr_mean": lr_mean, "lr_std": lr_std, "max_step": max_step}, foreach)

    def rule(self, q, g, group):
        """The fixed point of online variational Bayes."""
        return rules.foovb.step(q, g, rules.foovb.constants(group["lr_mean"], group["lr_std"], group["max_step"]))


class BayesByBackprop(PosteriorOptimizer):
    """The traditional Bayesian network: gradient descent on cost plus KL, one rate for all (eq. blundell1).

    Args:
        params: A `Bayesian`, its `pairs()`, or parameter groups.
        lr: The learning rate.
        weight: Share of the KL term in one update, 1 / (number of mini-batches) in the original; 0 leaves it out.
        prior_mean: Mean of the prior.
        prior_std: Standard deviation of the prior.
        max_step: Trust region in sigmas; None is off.
        foreach: As for `MESU`.
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        weight: float = 0.0,
        prior_mean: float = 0.0,
        prior_std: float = 1.0,
        max_step: float | None = None,
        foreach: bool | None = None,
    ) -> None:
        defaults = {"lr": lr, "weight": weight, "prior_mean": prior_mean, "prior_std": prior_std, "max_step": max_step}
        super().__init__(params, defaults, foreach)

    def rule(self, q, g, group):
        """Plain descent on C'."""
        names = ("lr", "weight", "prior_mean", "prior_std", "max_step")
        c = rules.bayes_by_backprop.constants(**{name: group[name] for name in names})
        return rules.bayes_by_backprop.step(q, g, c)


class BayesianSynapse(PosteriorOptimizer):
    """The Bayesian synapse of Aitchison et al.: forgetting on a fixed clock `tau` (eq. aitchison).

    Args:
        params: A `Bayesian`, its `pairs()`, or parameter groups.
        tau: Updates that it takes to relax to the prior.
        prior_mean: Mean of the prior.
        prior_std: Standard deviation of the prior.
        max_step: Trust region in sigmas; None is off.
        foreach: As for `MESU`.
    """

    remedy = "start from a smaller sigma, or scale the inputs down"

    def __init__(
        self,
        params: Any,
        tau: float,
        prior_mean: float = 0.0,
        prior_std: float = 1.0,
        max_step: float | None = None,
        foreach: bool | None = None,
    ) -> None:
        defaults = {"tau": tau, "prior_mean": prior_mean, "prior_std": prior_std, "max_step": max_step}
        super().__init__(params, defaults, foreach)

    def rule(self, q, g, group):
        """Both lines of eq. aitchison."""
        names = ("tau", "prior_mean", "prior_std", "max_step")
        c = rules.bayesian_synapse.constants(**{name: group[name] for name in names})
        return rules.bayesian_synapse.step(q, g, c)


class WeightOptimizer(Optimizer):
    """A weight rule as an optimiser, its `State` under the rule's own names in `optimizer.state`.

    A rule steps down its own gradient, or lets another optimiser of torch's do so: with ``inner=torch.optim.Adam`` it only
    adds its penalty to the gradient, and Adam moves the weights.
    """

    file: Any  # the rule's module

    def __init__(self, params: Iterable, inner: Callable[..., Optimizer] | None = None, **settings: float) -> None:
        self.file.constants(**settings)  # refuses bad settings
        self.settings = tuple(settings)
        self.inner: Optimizer | None = None
        super().__init__(params, dict(settings))
        if inner is not None:
            groups = [{"params": group["params"], "lr": group["lr"]} for group in self.param_groups]
            self.inner = inner(groups, lr=settings["lr"])

    def add_param_group(self, param_group: dict) -> None:
        """Add parameters, with settings of their own or the defaults; they are refused now, not at the next step."""
        self.constants({**self.defaults, **param_group})
        super().add_param_group(param_group)
        if self.inner is not None:
            group = self.param_groups[-1]
            self.inner.add_param_group({"params": group["params"], "lr": group["lr"]})

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles are made of."""
        return {**super().__getstate__(), "settings": self.settings, "inner": self.inner}

    def constants(self, group: dict) -> Any:
        """The rule's constants with this group's settings."""
        return self.file.constants(**{name: group[name] for name in self.settings})

    def rule_state(self, parameter: Tensor) -> Any:
        """What the rule remembers of one parameter; the state to start from if it has not been moved yet."""
        kept = self.state[parameter]
        return self.file.State(**kept) if kept else self.file.initial(parameter.detach())

    @torch.no_grad()
    def step(self, closure=None):  # type: ignore[override]
        """Move every parameter that has a gradient.

        Raises:
            StepRefused: if a new weight would not be finite. Nothing has changed then.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        moving = [
            (parameter, self.rule_state(parameter), self.constants(group))
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        if self.inner is not None:
            self._follow(self.inner, moving)
            return loss
        proposals = []
        for parameter, state, c in moving:
            new, state = self.file.step(parameter, parameter.grad, state, c)
            _refuse_infinite(parameter, new)
            proposals.append((parameter, new, state))
        for parameter, new, state in proposals:
            parameter.copy_(new)
            self.state[parameter] = state._asdict()
        return loss

    def _follow(self, inner: Optimizer, moving: list[tuple[Tensor, Any, Any]]) -> None:
        """Let the inner optimiser move the weights down the penalised gradient; each parameter keeps its own gradient."""
        watched = hasattr(self.file, "followed")
        slopes: list[Any] = [parameter.grad for parameter, _, _ in moving]
        before = [parameter.clone() if watched else None for parameter, _, _ in moving]
        for (parameter, _, _), slope in zip(moving, slopes, strict=True):
            _refuse_infinite(parameter, slope)
        for (parameter, state, c), slope in zip(moving, slopes, strict=True):
            parameter.grad = self.file.penalised(parameter, slope, state, c) if c.strength else slope
        inner.step()
        for (parameter, state, _), slope, old in zip(moving, slopes, before, strict=True):
            parameter.grad = slope
            self.state[parameter] = (self.file.followed(old, parameter, slope, state) if watched else state)._asdict()

    def state_dict(self) -> dict:
        """As every optimiser's, the inner one's with it."""
        inside = {} if self.inner is None else {"inner": self.inner.state_dict()}
        return {**super().state_dict(), **inside}

    def load_state_dict(self, state_dict: dict) -> None:
        """Take up what `state_dict` gave."""
        inside: Any = state_dict.get("inner")
        if (inside is None) != (self.inner is None):
            raise ValueError("the saved state belongs to another optimiser: only one of the two has an inner one")
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "inner"})
        if self.inner is not None:
            self.inner.load_state_dict(inside)


def _refuse_infinite(parameter: Tensor, new: Tensor) -> None:
    if not torch.isfinite(new).all():
        raise StepRefused(
            f"a parameter of shape {tuple(parameter.shape)} would not stay finite, so the step was refused and nothing "
            "changed: look for NaN in the loss, or lower the learning rate"
        )


class SGD(WeightOptimizer):
    """Plain stochastic gradient descent."""

    file = rules.sgd

    def __init__(self, params: Iterable, lr: float) -> None:
        super().__init__(params, lr=lr)


class EWC(WeightOptimizer):
    """Elastic Weight Consolidation: call `consolidate` at the end of each task.

    Args:
        params: Parameters of a plain module.
        lr: The learning rate.
        strength: Weight of the penalties (lambda).
        inner: An optimiser of torch's to follow the penalised gradient, ``torch.optim.Adam`` say; None is plain descent.
    """

    file: Any = rules.ewc

    def __init__(self, params: Iterable, lr: float, strength: float, inner: Inner = None) -> None:
        super().__init__(params, inner, lr=lr, strength=strength)

    @torch.no_grad()
    def consolidate(self, fishers: Iterable[Tensor]) -> None:
        """A task ended: hold on to the weights as they are.

        Args:
            fishers: For each parameter in order, the mean over the task's examples of the squared gradient of one.
        """
        parameters = [(p, self.constants(group)) for group in self.param_groups for p in group["params"]]
        fishers = list(fishers)
        if [f.shape for f in fishers] != [p.shape for p, _ in parameters]:
            raise ValueError(
                f"there must be one Fisher diagonal for each parameter, in its shape: got {len(fishers)} for "
                f"{len(parameters)} parameters"
            )
        for (parameter, c), fisher in zip(parameters, fishers, strict=True):
            self.state[parameter] = self.file.consolidate(parameter, self.rule_state(parameter), fisher, c)._asdict()


class EWCOnline(EWC):
    """EWC Online: one penalty, older tasks fading by `decay` at each `consolidate`."""

    file = rules.ewc_online

    def __init__(self, params: Iterable, lr: float, strength: float, decay: float, inner: Inner = None) -> None:
        WeightOptimizer.__init__(self, params, inner, lr=lr, strength=strength, decay=decay)


class EWCStream(WeightOptimizer):
    """EWC Stream: every example is a task of its own, so there is nothing to call at boundaries."""

    file = rules.ewc_stream

    def __init__(self, params: Iterable, lr: float, strength: float, decay: float) -> None:
        super().__init__(params, lr=lr, strength=strength, decay=decay)


class SI(WeightOptimizer):
    """Synaptic Intelligence: call `consolidate` at the end of each task.

    Args:
        params: Parameters of a plain module.
        lr: The learning rate.
        strength: Weight of the penalty (c).
        damping: Keeps the importance of a weight that did not move finite (xi).
        inner: As for `EWC`.
    """

    file: Any = rules.si

    def __init__(self, params: Iterable, lr: float, strength: float, damping: float = 1.0, inner: Inner = None) -> None:
        super().__init__(params, inner, lr=lr, strength=strength, damping=damping)

    @torch.no_grad()
    def consolidate(self) -> None:
        """A task ended: turn the path of every weight into importance."""
        for group in self.param_groups:
            c = self.constants(group)
            for parameter in group["params"]:
                self.state[parameter] = self.file.consolidate(parameter, self.rule_state(parameter), c)._asdict()


class SIPerTask(SI):
    """Synaptic Intelligence with an anchor for each task, as the published CIFAR runs had it."""

    file = rules.si_per_task


def _named_pairs(params: Any) -> list[Pair]:
    """What a user gave as parameters, as named pairs of matching tensors."""
    given = params.pairs() if isinstance(params, Bayesian) else [params] if isinstance(params, Pair) else params
    pairs = []
    for index, pair in enumerate(given):
        if not isinstance(pair, tuple) or not all(isinstance(p, Tensor) for p in pair[-2:]) or len(pair) not in (2, 3):
            raise TypeError(
                f"expected pairs (mean, std), got {type(pair).__name__}: pass a mesu.Bayesian or its pairs(), "
                "not net.parameters()"
            )
        mean, std = pair[-2:]
        if mean.shape != std.shape:
            raise ValueError(f"a mean of shape {tuple(mean.shape)} has a std of shape {tuple(std.shape)}")
        pairs.append(Pair(pair[0] if len(pair) == 3 else f"pair {index}", mean, std))
    return pairs


def _with_gradients(group: dict) -> list[Pair]:
    params = group["params"]
    pairs = []
    for name, mean, std in zip(group["names"], params[::2], params[1::2], strict=True):
        if (mean.grad is None) != (std.grad is None):
            missing = "mean" if mean.grad is None else "std"
            raise StepRefused(
                f"the {missing} of {name!r} has no gradient while its partner has one: differentiate an output of "
                "net(x, samples=...) or net.nll(...), where both take part"
            )
        if mean.grad is not None:
            pairs.append(Pair(name, mean, std))
    return pairs


def _buckets(pairs: list[Pair], fused: bool) -> list[list[Pair]]:
    """Pairs that go through the rule together: one at a time, or all of one dtype and device as a single vector."""
    if not fused:
        return [[pair] for pair in pairs]
    alike: dict[Any, list[Pair]] = {}
    for pair in pairs:
        alike.setdefault((pair.mean.dtype, pair.mean.device), []).append(pair)
    return list(alike.values())


def _vector(tensors: list[Any]) -> Tensor:
    flat = [t.reshape(-1) for t in tensors]
    return flat[0] if len(flat) == 1 else torch.cat(flat)


def _write(parameters: list[Any], vector: Tensor) -> None:
    for parameter, part in zip(parameters, vector.split([p.numel() for p in parameters]), strict=True):
        parameter.copy_(part.view_as(parameter))


def _all_finite(values: Tensor) -> Tensor:
    low, high = torch.aminmax(values)  # NaN wins in both; much cheaper than isfinite().all()
    return (low > -torch.inf) & (high < torch.inf)


def _refuse_unsound(pairs: list[Pair], g: Gaussian, new: Gaussian, remedy: str) -> None:
    """Raise `StepRefused`, saying which weights and why, unless every mean is finite and every sigma positive."""
    if bool(
        _all_finite(g.mean) & _all_finite(g.std) & _all_finite(new.mean) & _all_finite(new.std) & (new.std.min() > 0)
    ):
        return
    unsound = ~((new.std > 0) & torch.isfinite(new.mean + new.std) & torch.isfinite(g.mean) & torch.isfinite(g.std))
    count, index = int(unsound.sum()), int(unsound.nonzero()[0])
    ends = torch.tensor([p.mean.numel() for p in pairs]).cumsum(0)
    name = pairs[int((ends <= index).sum())].name
    where = f"{count} of {unsound.numel()} weights, the first in {name!r}"
    g_mean, g_std = float(g.mean[index]), float(g.std[index])
    if not (torch.isfinite(g.mean[index]) and torch.isfinite(g.std[index])):
        largest = max(float(pair.std.detach().max()) for pair in pairs)
        raise StepRefused(
            f"the gradient of {where} is not finite (mean {g_mean}, std {g_std}), so the step was refused and nothing "
            "changed: look for NaN or infinity in the inputs and the loss. If they are sound, the weights have run away "
            f"(the largest sigma is {largest:.3g}): take max_step=1 or less, more samples, or a smaller init_scale"
        )
    raise StepRefused(
        f"{where}, would get sigma {float(new.std[index]):.3g} and mean {float(new.mean[index]):.3g} (gradients: "
        f"mean {g_mean:.3g}, std {g_std:.3g}), so the step was refused and nothing changed: {remedy}"
    )
