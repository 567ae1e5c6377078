"""A posterior in the strategies of Avalanche: `Posterior` is a plugin for `Naive` and any other supervised template.

    net = mesu.Bayesian(model)
    strategy = Naive(model=net, optimizer=mesu.MESU(net, memory=10_000), plugins=[mesu.avalanche.Posterior()])

A strategy differentiates a criterion of what the model gives, which is one draw, averaged over the batch; and it tests one draw
too. The plugin puts the network's own cost, a sum, in the place of the criterion, and the average over many draws in the place
of the output that metrics see.
"""

from importlib import import_module
from typing import Any

from mesu.posterior.bayesian import Bayesian
from mesu.posterior.wrapped import posterior_or_plain
from mesu.prediction import predict
from mesu.rules.checks import whole

try:
    SupervisedPlugin: Any = import_module("avalanche.core").SupervisedPlugin
    DynamicModule: Any = import_module("avalanche.models").DynamicModule
except ImportError as error:
    if (error.name or "").partition(".")[0] not in ("avalanche", "torchvision"):
        raise
    raise ImportError("mesu.avalanche needs Avalanche: pip install 'mesu[avalanche]'", name="avalanche") from error
except RuntimeError as error:  # torchvision's, whose operators are compiled for one build of torch
    raise ImportError(
        f"mesu.avalanche needs Avalanche, which could not be imported ({error}): install the torchvision that belongs to "
        "this torch",
        name="avalanche",
    ) from error

__all__ = ["Posterior"]


class Posterior(SupervisedPlugin):
    """Lets a strategy of Avalanche train and test a `Bayesian`.

    Put it first among the plugins: those that add a term to the loss (a regulariser) come after it, and their term is kept.
    Replay plugins work as ever. A step costs one forward pass more than in a loop of your own.

    Args:
        samples: Draws that a tested prediction is averaged over; 0 for the closed form (`mesu.predict`).

    Attributes:
        prediction: That of the last tested batch, with its uncertainty.

    Raises:
        TypeError: when training or testing begins, if the strategy's model is no `Bayesian`.
        ValueError: likewise, for a model that grows with the experiences, or with parameters that nothing would train.
    """

    def __init__(self, samples: int = 100) -> None:
        super().__init__()
        self.samples = 0 if type(samples) is int and samples == 0 else whole("samples", samples)
        self.prediction: Any = None

    def before_training(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Refuse a model that could not be trained."""
        net = checked(strategy.model)
        alone = [name for name, parameter in net.named_parameters() if parameter.requires_grad]
        moved = {id(parameter) for group in strategy.optimizer.param_groups for parameter in group["params"]}
        lost = [name for name in alone if id(net.get_parameter(name)) not in moved]
        if lost:
            raise ValueError(
                f"{lost[0].removeprefix('module.')!r} is moved by nothing: a strategy has one optimiser, and this one is for "
                "Gaussian weights. Freeze it (requires_grad=False), or let the posterior cover it"
            )

    def before_training_exp(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Take out of the optimiser what Avalanche has just put into it: frozen parameters, which have no sigma."""
        for group in strategy.optimizer.param_groups:
            if "names" in group:
                group["params"] = group["params"][: 2 * len(group["names"])]

    def before_backward(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Differentiate the network's own cost, which is summed over the batch, instead of the criterion."""
        strategy.loss = strategy.model.nll(strategy.mb_x, strategy.mb_y)

    def after_eval_forward(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Give metrics the average over draws: the logarithm of the probabilities, or the mean."""
        checked(strategy.model)
        self.prediction = predict(strategy.model, strategy.mb_x, samples=self.samples)
        if hasattr(self.prediction, "probs"):
            strategy.mb_output = self.prediction.probs.clamp_min(1e-38).log()
        else:
            strategy.mb_output = getattr(self.prediction, "mean", self.prediction)


def checked(model: Any) -> Bayesian:
    """The posterior that a strategy's model is, or an error that says why it is none."""
    net = posterior_or_plain(model)
    if not isinstance(net, Bayesian):
        raise TypeError(
            f"the plugin is for a mesu.Bayesian, got {type(model).__name__}: pass model=mesu.Bayesian(model)"
        )
    for name, part in net.module.named_modules():
        if isinstance(part, DynamicModule):
            raise ValueError(
                f"its part {name or type(part).__name__!r} is a {type(part).__name__}, which grows with the experiences, and "
                "what it grows has no sigma: give the network an output for every class from the start"
            )
    return net
