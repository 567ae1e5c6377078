"""What a batch shows when learning goes wrong: looked at now and then, told once (`mesu.health`).

size of inputs      the inputs that enter the first layer are far from size one, and nothing allows for it
mean of a batch     the gradient that reaches the cost says that it was divided by the number of examples
stuck               the last answers are all the same class, while the labels are not

Nothing is looked at while torch compiles or transforms what is run.
"""

from typing import Any

import torch
from torch import Tensor, nn

from mesu.health import EVERY, counted, is_look, warn_once
from mesu.posterior.inputs import CONVOLUTION
from mesu.posterior.likelihood import Categorical
from mesu.posterior.sizes import is_far, size_of

STARTED = 150  # calls after which answers are looked at: networks that learned told several classes after 70
ROWS, CALLS = 64, 64  # how many answers, from how many calls at most
COMMON = 0.5  # a class with a larger share of the labels may well be every answer
LIKE = 0.02  # relative: a gradient of one row is that of a mean to a few per cent, or it is not
MEAN = (
    "the cost was divided by the number of examples: {seen}. Every example is evidence of its own, and a {batch}th of it is "
    "counted, which makes the network slow and unsure. Differentiate net.nll(x, y) as it is, or sum the cost over the batch "
    "(reduction='sum') and average it over the samples"
)


def look_at_batch(net: Any, x: Tensor, y: Tensor, out: Tensor, cost: Tensor) -> None:
    """Look at a batch of `Bayesian.nll`: its inputs ``[B, ...]``, targets, outputs ``[B, ...]`` and their cost."""
    number = counted(net)
    look_at_answers(net, number, out, y)
    if is_look(number):
        look_at_inputs(net, x)
        look_at_mean(net, cost, len(y))


@torch.no_grad()
def look_at_chunk(net: Any, number: int, x: Any, y: Any) -> None:
    """Look at the last rows ``[T, d]`` of a chunk that the compiled engine has learned, after so many updates."""
    rows = torch.from_numpy(x[-ROWS:])
    look_at_inputs(net, rows)
    if number >= STARTED and len(rows) == ROWS and isinstance(net.likelihood, Categorical):
        tell_stuck(net, net.at_mean(rows).argmax(1), torch.from_numpy(y[-ROWS:]))


def look_at_inputs(net: Any, x: Tensor) -> None:
    """Warn of inputs whose size does not suit the first layer's sigma."""
    its_own = net.init == "keep" and net.init_std is None  # other starts do not go by the inputs
    if not its_own or not x.is_floating_point() or not enters_first(net.module):
        return
    rows = x.detach().flatten(1) if x.dim() > 1 else x.detach()[:, None]
    usual = float(rows.double().square().mean(1).sqrt().median())  # a few outliers are no matter of scale
    size = size_of(x)
    if is_far(size / net.input_size, x.numel()) and is_far(usual / net.input_size, x.numel()):
        told = "the first batch's" if net._tells else "input_scale"
        like = "1" if net.input_size == 1 else f"{told}, {net.input_size:.3g}"
        warn_once(
            net,
            "size of inputs",
            f"inputs are of size {size:.3g} (root mean square), far from {like}, for which the first layer starts: "
            f"standardise them, or make the network with mesu.Bayesian(..., input_scale={size:.2g})",
        )


def look_at_mean(net: Any, cost: Tensor, batch: int) -> None:
    """When the cost of `nll` is differentiated, warn if it was divided by the examples on the way."""
    if not cost.requires_grad or batch < 4:
        return

    def hook(gradient: Tensor) -> None:
        slope = float(gradient.detach())
        if abs(slope * batch - 1) < 1e-3:
            warn_once(net, "mean", MEAN.format(seen=f"its gradient is 1/{batch}", batch=batch))

    cost.register_hook(hook)


def look_at_drawn(net: Any, out: Any) -> None:
    """When drawn class scores ``[S, B, C]`` are differentiated, warn if their cost is a mean over the batch.

    The gradient of a cross-entropy is p - 1 for the label, times the weight of the example: 1/S of a sum, 1/(S B) of a mean.
    """
    if not isinstance(net.likelihood, Categorical) or not isinstance(out, Tensor) or out.dim() != 3:
        return
    samples, batch, classes = out.shape
    if not out.requires_grad or batch < 4 or classes < 2 or not is_look(counted(net, key="_draws_seen")):
        return
    scores = out.detach()

    def hook(gradient: Tensor) -> None:
        slope, label = gradient.detach().min(2)
        missing = 1 - scores.softmax(2).gather(2, label[..., None])[..., 0]
        weights = (-slope / missing)[missing > 0.05] * samples * batch
        if weights.numel() >= 4 and bool(((weights - 1).abs() < LIKE).all()):
            warn_once(net, "mean", MEAN.format(seen=f"each of {batch} examples has a weight of 1/{batch}", batch=batch))

    out.register_hook(hook)


def look_at_answers(net: Any, number: int, out: Tensor, y: Tensor) -> None:
    """Collect answers of a few calls, and warn if all are the same class and the labels are not.

    Args:
        net: The network.
        number: Of the call.
        out: Scores ``[B, C]``.
        y: Labels ``[B]``.
    """
    since = number % EVERY if number >= EVERY else number - STARTED
    if not 0 <= since < CALLS or not isinstance(net.likelihood, Categorical) or out.dim() != 2:
        return
    kept = [] if since == 0 else vars(net).get("_answers")
    if kept is None:  # enough were looked at
        return
    kept = [*kept, (out.detach().argmax(1), y.detach())]
    enough = sum(len(labels) for _, labels in kept) >= ROWS
    vars(net)["_answers"] = None if enough or since == CALLS - 1 else kept
    if enough:
        answers, labels = (torch.cat(parts) for parts in zip(*kept, strict=True))
        tell_stuck(net, answers, labels)


def tell_stuck(net: Any, answers: Tensor, labels: Tensor) -> None:
    """Warn if all these answers are the same class and the labels are not."""
    shares = torch.bincount(labels.long()) / len(labels)
    if bool((answers == answers[0]).all()) and float(shares.max()) <= COMMON:
        only = int(answers[0])
        share = float(shares[only]) if only < len(shares) else 0.0
        remedy = (
            "use the default estimator" if net.estimator != "linear" else "see whether it learns with torch.optim.Adam"
        )
        warn_once(
            net,
            "stuck",
            f"the last {len(answers)} answers were all class {only}, which {share:.0%} of the labels are: the network does not "
            f"learn. Shuffle sorted data, standardise the inputs, check that rows and labels belong together, and {remedy}",
        )


def enters_first(module: nn.Module, layer: nn.Module | None = None) -> bool:
    """Whether the first part with weights multiplies its inputs with them, and is this layer, if one is given."""
    for part in module.modules():
        if any(True for _ in part.parameters(recurse=False)):
            return isinstance(part, (nn.Linear, nn.RNNBase, *CONVOLUTION)) and layer in (None, part)
    return False
