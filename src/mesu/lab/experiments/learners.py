"""How experiments make their learners: each experiment describes its choices, and one function builds them all."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from mesu.learners import BayesianLearner, Learner, WeightLearner
from mesu.posterior.bayesian import Bayesian
from mesu.replay import Replay


class Choice(NamedTuple):
    """A learner to choose: the rule, and the posterior that it moves, if it moves one."""

    rule: Callable[[Any], Any]  # makes the optimiser, of a posterior or of a plain network's list of parameters
    posterior: Mapping[str, Any] | None = None  # what `Bayesian` is given beside the network; None for a plain network
    mean: bool = False  # a plain network descends the mean of a batch's losses instead of their sum
    replay: int | None = None  # rows that are kept and learned again among the new ones; None is no replay
    engine: bool | None = None  # False where there is no compiled rule


def make_learner(
    name: str,
    choices: Mapping[str, Choice],
    network: Callable[[], nn.Module],
    seed: int,
    samples: int = 10,
    batch: int = 1,
    device: str = "cpu",
    engine: bool | None = None,
) -> Learner:
    """A fresh learner.

    Args:
        name: Which of the choices.
        choices: The learners that the experiment has.
        network: Makes the network; its first weights are drawn with the seed.
        seed: Decides the first weights and the noise.
        samples: Monte Carlo samples of each update of a posterior.
        batch: Examples an update.
        device: The torch device to learn on.
        engine: As for `BayesianLearner`: False for the torch path in any case.

    Raises:
        ValueError: if there is no such learner.
    """
    if name not in choices:
        raise no_learner(name, choices)
    choice = choices[name]
    engine = choice.engine if engine is None else engine
    replay = None if choice.replay is None else Replay(choice.replay, seed=seed)
    torch.manual_seed(seed)
    net = network()
    if choice.posterior is None:
        net = net.to(device)
        return WeightLearner(net, choice.rule(list(net.parameters())), batch, engine, mean=choice.mean, replay=replay)
    posterior = Bayesian(net, **choice.posterior, seed=seed).to(device)
    return BayesianLearner(posterior, choice.rule(posterior), samples, batch, engine, replay)


def no_learner(name: str, known: Iterable[str]) -> ValueError:
    """An error that lists the learners of an experiment."""
    return ValueError(f"there is no learner {name!r}: choose from {', '.join(known)}")


def perceptron(inputs: int, hidden: int, outputs: int, bias: bool = False) -> nn.Sequential:
    """One hidden layer of ReLU units; the paper's have no biases.

    Torch's own start is the paper's for deterministic networks: U(+-1/sqrt(fan_in)).
    """
    return nn.Sequential(nn.Linear(inputs, hidden, bias=bias), nn.ReLU(), nn.Linear(hidden, outputs, bias=bias))


def uncertainty(model: Learner, prediction: Any) -> Any:
    """The uncertainty that should be higher on outliers: epistemic, or aleatoric for a plain network, which has no other."""
    values = prediction.epistemic if isinstance(model, BayesianLearner) else prediction.aleatoric
    return values.numpy()
