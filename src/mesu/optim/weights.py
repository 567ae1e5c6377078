"""Weight rules as optimisers: `SGD`, `EWC`, `SI`, ... They keep their importances in `optimizer.state`."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from mesu import rules
from mesu.optim.steps import refuse_infinite
from mesu.rules.parts import consolidates, uses_fisher

Inner = Callable[..., Optimizer] | None  # torch.optim.Adam and its like


class WeightOptimizer(Optimizer):
    """A weight rule as an optimiser: subclasses name the rule's module and its settings.

    What the rule remembers, its `State`, is in `optimizer.state` under the names of the fields. A rule moves the weights
    itself. If it is one that adds a penalty to the gradient, another optimiser may move them instead: with
    ``inner=torch.optim.Adam`` the rule only adds the penalty, and Adam moves the weights.
    """

    file: Any  # the rule's module

    def __init__(self, params: Iterable, inner: Callable[..., Optimizer] | None = None, **settings: float) -> None:
        self.file.constants(**settings)  # refuses bad settings
        self.settings = tuple(settings)
        self.inner: Optimizer | None = None
        super().__init__(params, dict(settings))
        if inner is not None:
            if not hasattr(self.file, "penalised"):
                raise ValueError(f"{type(self).__name__} moves the weights itself, so it takes no inner optimiser")
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

    def boundary(self, fishers: Callable[[], Iterable[Tensor]]) -> None:
        """A task ended: consolidate, if the rule does. `fishers` is called only for a rule that needs them."""
        if uses_fisher(self.file):
            self.consolidate(fishers())
        elif consolidates(self.file):
            self.consolidate()

    @torch.no_grad()
    def consolidate(self, fishers: Iterable[Tensor] | None = None) -> None:
        """A task ended: hold on to what the weights have learned.

        Args:
            fishers: For a rule that needs them (EWC): for each parameter in order, the mean over the task's examples of the
                squared gradient of one.

        Raises:
            ValueError: if the rule does nothing at a boundary, or if the Fisher diagonals do not fit.
        """
        if not consolidates(self.file):
            raise ValueError(
                f"{type(self).__name__} does nothing at the end of a task: there is nothing to consolidate"
            )
        parameters = [(p, self.constants(group)) for group in self.param_groups for p in group["params"]]
        if not uses_fisher(self.file):
            if fishers is not None:
                raise ValueError(f"{type(self).__name__} takes no Fisher diagonals: call consolidate() without them")
            for parameter, c in parameters:
                self.state[parameter] = self.file.consolidate(parameter, self.rule_state(parameter), c)._asdict()
            return
        fishers = [] if fishers is None else list(fishers)
        if [f.shape for f in fishers] != [p.shape for p, _ in parameters]:
            raise ValueError(
                f"there must be one Fisher diagonal for each parameter, in its shape: got {len(fishers)} for "
                f"{len(parameters)} parameters"
            )
        for (parameter, c), fisher in zip(parameters, fishers, strict=True):
            self.state[parameter] = self.file.consolidate(parameter, self.rule_state(parameter), fisher, c)._asdict()

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
            refuse_infinite(parameter, new)
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
            refuse_infinite(parameter, slope)
        for (parameter, state, c), slope in zip(moving, slopes, strict=True):
            idle = getattr(c, "strength", None) == 0  # Adam and its like then see the gradient itself, to the bit
            parameter.grad = slope if idle else self.file.penalised(parameter, slope, state, c)
        inner.step()
        for (parameter, state, _), slope, old in zip(moving, slopes, before, strict=True):
            parameter.grad = slope
            self.state[parameter] = (self.file.followed(old, parameter, slope, state) if watched else state)._asdict()

    def state_dict(self) -> dict:
        """As every optimiser's, with that of the inner optimiser."""
        inside = {} if self.inner is None else {"inner": self.inner.state_dict()}
        return {**super().state_dict(), **inside}

    def load_state_dict(self, state_dict: dict) -> None:
        """Restore what `state_dict` gave."""
        inside: Any = state_dict.get("inner")
        if (inside is None) != (self.inner is None):
            raise ValueError("the saved state belongs to another optimiser: only one of the two has an inner one")
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "inner"})
        if self.inner is not None:
            self.inner.load_state_dict(inside)


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


class SIPerTask(SI):
    """Synaptic Intelligence with an anchor for each task, as the published CIFAR runs had it."""

    file = rules.si_per_task
