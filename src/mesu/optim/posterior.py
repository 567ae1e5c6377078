"""Posterior rules as optimisers: `MESU`, `FOOVB`, ... What is known is in the network: sigma is a parameter of it.

Only the rule for deep networks remembers more of a weight (`mesu.rules.paced`).
"""

import warnings
from functools import lru_cache
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mesu import rules
from mesu.optim import health
from mesu.optim.clipping import ClippingWatch
from mesu.optim.steps import as_vector, buckets, named_pairs, refuse_unsound, with_gradients, write
from mesu.posterior import Pair
from mesu.posterior.bayesian import as_start
from mesu.rules import Gaussian
from mesu.rules.checks import non_negative
from mesu.rules.curvature import gradient_of_sigma
from mesu.rules.parts import curvature_constants, remembers, rule_of, scaled_constants, setting_names
from mesu.rules.primitives import between

SAFE_STEP = 1.0  # in sigmas: a noisy gradient can then at most double a sigma, which the next gradients undo
NARROW_STEP = 0.3  # in drawn sigmas, where beliefs start wide: with 1, deep networks learned worse in trials
CAUTION = (
    30.0  # there, a step near the start is bounded as if draws had a variance this many times smaller than believed
)
# Of deep networks, in trials on fourteen: without momentum, or with three times the pace, some ended behind Adam, and with a
# momentum of 0.5 those with GroupNorm. With a momentum of 0.9 old tasks were kept worse, with a third of the pace new ones were
# learned worse.
PACE, MOMENTUM = 0.1, 0.8
RATES = ("lr_mean", "lr_std")  # what a group's lr multiplies
PIECE = 65_536  # weights; half or twice as many take about the same time, a million at once three times as long


class PosteriorOptimizer(Optimizer):
    """A posterior rule as an optimiser: subclasses name the rule's module and its settings.

    The settings of a group go by name to the rule's `constants`; the type of what that returns identifies the rule, here and
    in `mesu.engine`. A parameter group holds pairs laid out as ``[mean, std, mean, std, ...]``, so that state dicts, copies
    and other frameworks see a plain list of parameters.
    """

    file: Any  # the rule's module; or a dict of modules, of which the group's "update" names one
    remedy = "set max_step below 1, or lower the rate of sigma"  # for a sigma that a step would break
    _clipping: ClippingWatch | None = None
    looks_at_cuts = (
        False  # whether the next step is to say how many weights the trust region stops: `mesu.monitor` asks
    )
    share_cut: float | None = None  # what it said

    def __init__(self, params: Any, defaults: dict, foreach: bool | None = None) -> None:
        groups: list[Any] = [params] if isinstance(params, (nn.Module, Pair)) else list(params)
        if not groups:
            raise ValueError("there is nothing to optimise: give a mesu.Bayesian or its pairs()")
        if not isinstance(groups[0], dict):
            groups = [{"params": params if isinstance(params, nn.Module) else groups}]
        super().__init__(groups, {**defaults, "foreach": foreach})

    def constants(self, group: dict) -> Any:
        """The rule's constants with this group's settings; raises `ValueError` for settings that make no sense."""
        file = self.file
        if isinstance(file, dict):
            if group["update"] not in file:
                names = " or ".join(repr(name) for name in file)
                raise ValueError(f"update must be {names}, got {group['update']!r}")
            file = file[group["update"]]
        if group.get("max_std_of") is not None and group["max_std"] is not None:
            # "start", which the first batch may change
            group = {**group, "max_std": group["max_std"] * (float(group["starts"][0]) / group["max_std_of"])}
        settings = {name: group[name] for name in setting_names(file.constants) if name in group}
        lr = 1.0 if "lr" in settings else float(non_negative("lr", group.get("lr", 1.0)))
        if lr == 1:
            return file.constants(**settings)
        try:
            return file.constants(**settings | {name: lr * settings[name] for name in RATES if name in settings})
        except ValueError as error:
            raise ValueError(f"{error}; lr={lr:g} multiplies both rates") from None

    def rule(self, q: Gaussian, g: Gaussian, group: dict) -> Gaussian:
        """The rule with this group's settings. A subclass that has its own runs in torch only."""
        c = self.constants(group)
        return rule_of(type(c)).step(q, g, c)

    def add_param_group(self, param_group: dict) -> None:
        """Add pairs with settings of their own.

        Args:
            param_group: ``{"params": net_or_pairs, ...settings}``, where the pairs come from `Bayesian.pairs` or
                `Bayesian.attach`, or are plain ``(mean, std)`` tuples.
        """
        pairs = named_pairs(param_group["params"])
        narrower, starts = {pair.narrowing != 1 for pair in pairs}, [pair.first for pair in pairs]
        if len(narrower) > 1:
            raise ValueError(
                "some of these pairs are drawn narrower than believed (narrowing), some are not: put them into groups of "
                "their own"
            )
        narrowing = CAUTION if True in narrower else 1.0
        if len({pair.curvature for pair in pairs}) > 1:
            raise ValueError(
                "some of these pairs are of estimator='linear', some are not: put them into groups of their own"
            )
        known = any(pair.curvature for pair in pairs)
        param_group = {"narrowing": narrowing, "curvature": known, **param_group, "starts": starts}
        settings = {**self.defaults, **param_group}
        if _in_units_of_starts(self.constants(settings)) and any(start is None for start in starts):
            raise ValueError(
                "prior_std='start' and narrowing need to know where each sigma started: pass a mesu.Bayesian or its pairs(), "
                "not plain tensors"
            )
        bounds = ("narrow", "pace")
        if narrowing != 1 and all(getattr(self.constants(settings), name, None) is None for name in bounds):
            warnings.warn(
                f"{type(self).__name__} does not bound the steps of weights that start as wide as this network's, and may not "
                "learn: make the network with mesu.Bayesian(..., estimator='local'), or use mesu.MESU with update='exact'",
                stacklevel=4,
            )
        if remembers(self.constants(settings)):  # which refuses bad settings now, not at a step
            if not known:
                raise ValueError(
                    f"update={settings['update']!r} needs a curvature that is known, as estimator='linear' finds it: make the "
                    "network with that (the default), or take update='exact'"
                )
        else:
            zero = torch.zeros(1)
            self.rule(Gaussian(zero, zero + 1), Gaussian(zero, zero), settings)
        flat = [parameter for pair in pairs for parameter in (pair.mean, pair.std)]
        super().add_param_group({**param_group, "params": flat, "names": [pair.name for pair in pairs]})

    def __setstate__(self, state: dict) -> None:
        """As torch's; groups that were saved before sigmas had known starts have none, and before there was an lr, 1."""
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("narrowing", 1.0)
            group.setdefault("curvature", False)
            group.setdefault("starts", [None] * len(group["names"]))
            group["starts"] = [None if start is None else as_start(start) for start in group["starts"]]
        for settings in (self.defaults, *self.param_groups):
            if "lr_mean" in settings:
                settings.setdefault("lr", 1.0)

    def load_state_dict(self, state_dict: dict) -> None:
        """As torch's; where sigmas started, the network knows best, and shares it."""
        shared = [group["starts"] for group in self.param_groups]
        super().load_state_dict(state_dict)
        for group, starts in zip(self.param_groups, shared, strict=True):
            group["starts"] = starts

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
        if self._clipping is None:
            self._clipping = ClippingWatch()
        self._clipping.see(self.param_groups)
        proposals, seen, cuts = [], [], []
        number = 0 if torch.compiler.is_compiling() else health.is_due(self)
        for group in self.param_groups:
            for pairs in buckets(with_gradients(group), fused=group["foreach"] is not False):
                q = Gaussian(as_vector([p.mean for p in pairs]), as_vector([p.std for p in pairs]))
                g = Gaussian(as_vector([p.mean.grad for p in pairs]), as_vector([p.std.grad for p in pairs]))
                state = self._remembered(group, pairs)
                new, after = self._moved(q, g, state, group, pairs)
                refuse_unsound(pairs, g, new, self.remedy)
                if number:
                    seen += health.look_at_step(self, number, group, pairs, g, q, new)
                if self.looks_at_cuts:
                    cuts.append(health.count_cut(self, group, pairs, g, q, new))
                proposals.append((pairs, new, after))
        for pairs, new, after in proposals:
            write([p.mean for p in pairs], new.mean)
            write([p.std for p in pairs], new.std)
            for name, vector in after.items():
                write([self.state[p.mean][name] for p in pairs], vector)
        if cuts:
            self.share_cut = health.share(*map(sum, zip(*cuts, strict=True)))
        if number:
            health.tell(self, seen)
            health.look_at_memory(self, number)
        return loss

    def _remembered(self, group: dict, pairs: list[Pair]) -> dict[str, Tensor]:
        """What the rule remembers of the weights of some pairs, by name; nothing for most rules."""
        c = self.constants(group)
        if type(self).rule is not PosteriorOptimizer.rule or not remembers(c):
            return {}
        rule = rule_of(type(c))
        for pair in pairs:
            if not self.state[pair.mean]:
                begun = rule.initial(Gaussian(pair.mean.detach(), pair.std.detach()))
                self.state[pair.mean].update(begun._asdict())
        return {name: as_vector([self.state[p.mean][name] for p in pairs]) for name in rule.State._fields}

    def _moved(
        self, q: Gaussian, g: Gaussian, state: dict[str, Tensor], group: dict, pairs: list[Pair]
    ) -> tuple[Gaussian, dict[str, Tensor]]:
        """The rule's proposal. On a CPU it is computed piece by piece, so that intermediate results stay in the cache."""
        in_units = type(self).rule is PosteriorOptimizer.rule and _in_units_of_starts(self.constants(group))
        starts = _precisions(pairs, q.mean) if in_units else None
        if q.mean.device.type != "cpu" or q.mean.numel() <= PIECE or torch.compiler.is_compiling():
            return self._proposal(q, g, state, group, starts)
        new = Gaussian(torch.empty_like(q.mean), torch.empty_like(q.std))
        after = {name: torch.empty_like(vector) for name, vector in state.items()}
        for at in range(0, q.mean.numel(), PIECE):
            piece = slice(at, at + PIECE)
            moved, remembered = self._proposal(
                Gaussian(q.mean[piece], q.std[piece]),
                Gaussian(g.mean[piece], g.std[piece]),
                {name: vector[piece] for name, vector in state.items()},
                group,
                None if starts is None else starts[piece],
            )
            new.mean[piece], new.std[piece] = moved
            for name, vector in remembered.items():
                after[name][piece] = vector
        return new, after

    def _proposal(
        self, q: Gaussian, g: Gaussian, state: dict[str, Tensor], group: dict, starts: Tensor | None
    ) -> tuple[Gaussian, dict[str, Tensor]]:
        """The rule on some weights; `starts` are the precisions that they began with, if its constants depend on them."""
        if group["curvature"]:  # the gradient is sigma h, possibly of several costs: see `mesu.rules.curvature`
            h = between(g.std / q.std, 0.0, inf)
            known = None
            if type(self).rule is PosteriorOptimizer.rule:
                c = self.constants(group)
                known = curvature_constants(c if starts is None else scaled_constants(c, starts))
            if known is not None:
                rule = rule_of(type(known))
                if state:
                    new, after = rule.step(q, Gaussian(g.mean, h), rule.State(**state), known)
                    return new, after._asdict()
                return rule.step(q, Gaussian(g.mean, h), known), {}
            g = Gaussian(g.mean, gradient_of_sigma(q.std, h))
        if starts is None:
            return self.rule(q, g, group), {}
        c = scaled_constants(self.constants(group), starts)
        return rule_of(type(c)).step(q, g, c), {}


def _precisions(pairs: list[Pair], like: Tensor) -> Tensor:
    """The precision that each weight of these pairs began with."""
    unknown = next((pair.name for pair in pairs if pair.first is None), None)
    if unknown is not None:
        raise ValueError(
            f"the sigma that {unknown!r} started with is not known: make the optimiser with a mesu.Bayesian"
        )
    if torch.compiler.is_compiling():
        starts = [pair.first.pow(-2).to(like.device, like.dtype) for pair in pairs]  # type: ignore[union-attr]
        return torch.cat([start.expand(pair.mean.numel()) for start, pair in zip(starts, pairs, strict=True)])
    sizes: Any = tuple((pair.start, pair.mean.numel()) for pair in pairs)
    if type(like) is not Tensor:  # sharded: the precisions must be too
        return torch.cat([like.new_full((size,), start**-2) for start, size in sizes])
    return _repeated(sizes, like.dtype, like.device)


@lru_cache(maxsize=8)  # the same at every step
def _repeated(sizes: tuple[tuple[float, int], ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.cat([torch.full((size,), start**-2, dtype=dtype, device=device) for start, size in sizes])


def _in_units_of_starts(c: Any) -> bool:
    """Whether some of these constants are given in units of each weight's start."""
    return any(getattr(c, name, None) is not None for name in ("narrow", "start")) or bool(
        getattr(c, "pull_start", 0.0)
    )


class MESU(PosteriorOptimizer):
    """Metaplasticity from Synaptic Uncertainty: continual learning with a memory of `memory` updates.

    Differentiate a loss that is *summed* over the batch and averaged over the samples (`Bayesian.nll` is); there is no
    learning rate to tune. Weights without a gradient neither learn nor forget.

    Args:
        params: A `Bayesian`, its `pairs()`, or parameter groups ``{"params": net_or_pairs, ...}``.
        memory: How many updates the posterior remembers (N); ``float("inf")`` never forgets.
        prior_mean: Where an unused mean relaxes to.
        prior_std: Where an unused sigma relaxes to; ``"start"`` is where each one began. ``"auto"`` is that for a posterior
            that draws narrower than it believes, and 1 for any other, as in the paper.
        lr_mean: Rate of the mean; 1 in the Bayesian derivation.
        lr_std: Rate of sigma, in front of eq. 9 with its half; 1 in the Bayesian derivation.
        update: ``"exact"``, the closed form, which no gradient can break; ``"paper"``, eq. 9-10 as printed; ``"paced"``, for
            deep networks: Bayes' rule for sigma, and means that keep a pace in every layer (`mesu.rules.paced`). ``"auto"`` is
            "paced" for the default estimator where a network has more than three weight matrices, else "exact".
        max_step: Trust region: the furthest that a mean or sigma may move in one step, in sigmas. ``"auto"`` is 1 for the
            exact form, where few samples or sharp targets could otherwise throw weights about, and off for the other two.
            None is off. For a posterior that draws narrower than it believes, ``"auto"`` is 0.3, and near the start the
            mean's limit is sqrt(30) times smaller.
        foreach: False runs the rule one parameter at a time; otherwise a group goes through it as one vector.
        max_std: The widest that a sigma may become, whatever the prior's or the trust region; ``"start"`` is the widest that
            its parameter has now, which puts every parameter in a group of its own; None is off. Where sigma's gradient is
            mostly noise (convolutions, few samples, a high `lr_std`), its noise makes some sigmas grow far beyond their start.
        lr: Multiplies `lr_mean` and `lr_std`; for torch's learning rate schedulers, which set it.
        pace: For ``"paced"``: how far the t-th typical gradient moves a weight, in first sigmas, times sqrt(t).
        momentum: For ``"paced"``: how much of its last moves a mean goes on with; 0 is nothing.

    Example:
        >>> net = mesu.Bayesian(nn.Linear(4, 3), seed=0)
        >>> opt = mesu.MESU(net, memory=1000)
        >>> net.nll(torch.ones(1, 4), torch.tensor([2])).backward()
        >>> opt.step(); opt.zero_grad()
    """

    file: Any = {"exact": rules.mesu, "paper": rules.mesu_paper, "paced": rules.paced}  # noqa: RUF012
    remedy = "use update='exact', set max_step below 1, or lower lr_std"

    def __init__(
        self,
        params: Any,
        memory: float,
        prior_mean: float = 0.0,
        prior_std: float | str = "auto",
        lr_mean: float = 1.0,
        lr_std: float = 1.0,
        update: str = "auto",
        max_step: float | str | None = "auto",
        foreach: bool | None = None,
        max_std: float | str | None = None,
        lr: float = 1.0,
        pace: float = PACE,
        momentum: float = MOMENTUM,
    ) -> None:
        defaults = {
            "lr": lr,
            "memory": memory,
            "prior_mean": prior_mean,
            "prior_std": prior_std,
            "lr_mean": lr_mean,
            "lr_std": lr_std,
            "update": update,
            "max_step": max_step,
            "max_std": max_std,
            "pace": pace,
            "momentum": momentum,
        }
        super().__init__(params, defaults, foreach)

    def add_param_group(self, param_group: dict) -> None:
        """As for every rule; says what "auto" is for the group's pairs, and ``max_std="start"`` for its sigmas."""
        param_group = {**param_group, "params": named_pairs(param_group["params"])}  # a generator would serve only once
        settings = {**self.defaults, **param_group}
        if settings["update"] == "auto":
            deep = settings["max_step"] == "auto" and any(pair.deep for pair in param_group["params"])
            param_group = {**param_group, "update": "paced" if deep else "exact"}
            settings |= param_group
        if settings["update"] == "paced" and settings["max_step"] not in ("auto", None):
            raise ValueError(
                f"max_step={settings['max_step']!r} is for update='exact': with update='paced', pace bounds every step"
            )
        if settings["prior_std"] == "auto":
            narrower = any(pair.narrowing != 1 for pair in param_group["params"])
            at_start = narrower and settings["update"] != "paper"
            param_group = {**param_group, "prior_std": "start" if at_start else 1.0}
        if settings["max_step"] == "auto":
            safe = NARROW_STEP if any(pair.narrowing != 1 for pair in param_group["params"]) else SAFE_STEP
            param_group = {**param_group, "max_step": safe if settings["update"] == "exact" else None}
        if not (isinstance(settings["max_std"], str) and settings["max_std"] == "start"):
            super().add_param_group(param_group)
            return
        before = len(self.param_groups)
        try:
            for pair in param_group["params"]:
                start = float(pair.std.detach().max()) if pair.std.numel() else None
                super().add_param_group({**param_group, "params": [pair], "max_std": start, "max_std_of": pair.start})
        except Exception:
            del self.param_groups[before:]  # all of them or none
            raise

    def __setstate__(self, state: dict) -> None:
        """As for every rule; what was saved before there was a `max_std` had none."""
        super().__setstate__(state)
        for settings in (self.defaults, *self.param_groups):
            settings.setdefault("max_std", None)
            settings.setdefault("pace", PACE)
            settings.setdefault("momentum", MOMENTUM)


class FOOVB(PosteriorOptimizer):
    """FOO-VB Diagonal: online variational Bayes without forgetting. MESU's exact form with the plain mean and no end.

    Args:
        params: A `Bayesian`, its `pairs()`, or parameter groups.
        lr_mean: Rate of the mean.
        lr_std: Rate of sigma.
        max_step: Trust region in sigmas; None is off.
        foreach: As for `MESU`.
        lr: As for `MESU`.
    """

    file = rules.foovb

    def __init__(
        self,
        params: Any,
        lr_mean: float = 1.0,
        lr_std: float = 1.0,
        max_step: float | None = None,
        foreach: bool | None = None,
        lr: float = 1.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "lr_mean": lr_mean, "lr_std": lr_std, "max_step": max_step}, foreach)


class BayesByBackprop(PosteriorOptimizer):
    """The traditional Bayesian network: gradient descent on cost plus KL, one rate for all (eq. blundell1).

    Args:
        params: A `Bayesian`, its `pairs()`, or parameter groups.
        lr: The learning rate.
        kl_weight: Share of the KL term in one update, 1 / (number of mini-batches) in the original; 0 leaves it out.
        prior_mean: Mean of the prior.
        prior_std: Standard deviation of the prior.
        max_step: Trust region in sigmas; None is off.
        foreach: As for `MESU`.
    """

    file = rules.bayes_by_backprop

    def __init__(
        self,
        params: Any,
        lr: float,
        kl_weight: float = 0.0,
        prior_mean: float = 0.0,
        prior_std: float = 1.0,
        max_step: float | None = None,
        foreach: bool | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "kl_weight": kl_weight,
            "prior_mean": prior_mean,
            "prior_std": prior_std,
            "max_step": max_step,
        }
        super().__init__(params, defaults, foreach)


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

    file = rules.bayesian_synapse
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
