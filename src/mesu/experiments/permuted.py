"""What the permuted experiments share: one learner on one permuted stream, measured after every task."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from mesu import measures, optim
from mesu.data import Dataset
from mesu.experiments.table import Row
from mesu.learners import BayesianLearner, Learner, WeightLearner
from mesu.posterior import Bayesian
from mesu.streams import Permuted


def rows(
    settings: Any, stream: Permuted, outliers: np.ndarray, name: str, seed: int, task_done: Callable[[], None]
) -> Iterator[Row]:
    """Train one learner with one seed and measure it after every task.

    Args:
        settings: The experiment's settings.
        stream: The tasks.
        outliers: Inputs that should be told from the newest task's.
        name: The learner.
        seed: Decides the first weights and the noise.
        task_done: Called after each task, for progress.
    """
    torch.set_num_threads(1)  # learners and seeds run side by side: more threads only wait for each other
    model = make_learner(settings, stream.dataset, name, seed)
    row = partial(Row, settings.name, name, seed)
    for task in stream:
        x, y = task.x_train, task.y_train
        for _ in range(settings.epochs):
            model.learn(x, y)
        model.boundary(x, y)
        step = (task.index + 1) * settings.epochs * len(x)
        for old in range(task.index + 1):
            test = stream[old]
            probs = model.predict(test.x_test, settings.test_samples).probs.numpy()
            yield row(step, task.index, old, "accuracy", measures.accuracy(probs, test.y_test))
        inside = model.predict(task.x_test, settings.test_samples)
        error = measures.calibration_error(inside.probs.numpy(), task.y_test)
        yield row(step, task.index, None, "calibration_error", error)
        # a deterministic network has no epistemic uncertainty: aleatoric is all that it can offer
        kind = "epistemic" if isinstance(model, BayesianLearner) else "aleatoric"
        novel = model.predict(outliers, settings.test_samples)
        auroc = measures.auroc(getattr(inside, kind).numpy(), getattr(novel, kind).numpy())
        yield row(step, task.index, None, "ood_auroc", auroc)
        task_done()


def make_learner(settings: Any, dataset: Dataset, name: str, seed: int) -> Learner:
    """A fresh learner by name."""
    torch.manual_seed(seed)
    # no biases, as in the paper; torch's own start is the paper's U(+-1/sqrt(fan_in)) for deterministic networks
    net = nn.Sequential(
        nn.Linear(dataset.features, settings.hidden, bias=False),
        nn.ReLU(),
        nn.Linear(settings.hidden, dataset.classes, bias=False),
    )
    if name in ("mesu", "foo-vb"):
        posterior = Bayesian(net, estimator=settings.estimator, init="mnist", seed=seed)
        if name == "mesu":
            opt = optim.MESU(posterior, settings.memory, prior_std=settings.prior_std, update=settings.update)
        else:
            opt = optim.FOOVB(posterior)
        return BayesianLearner(posterior, opt, settings.samples)
    weights = list(net.parameters())
    rules = {
        "sgd": lambda s: optim.SGD(weights, s.sgd_lr),
        "ewc-online": lambda s: optim.EWCOnline(weights, s.ewc_online_lr, s.ewc_online_strength, s.ewc_online_decay),
        "ewc-stream": lambda s: optim.EWCStream(weights, s.ewc_stream_lr, s.ewc_stream_strength, s.ewc_stream_decay),
        "si": lambda s: optim.SI(weights, s.si_lr, s.si_strength),
    }
    if name not in rules:
        raise ValueError(f"there is no learner {name!r}: choose from mesu, foo-vb, {', '.join(rules)}")
    return WeightLearner(net, rules[name](settings))


def check(settings: Any, dataset: Dataset) -> None:
    """Refuse settings that cannot run, before anything is started: builds every learner once."""
    for name in ("tasks", "seeds", "epochs", "samples", "test_samples", "hidden"):
        if getattr(settings, name) < 1:
            raise ValueError(f"{name} must be 1 or more, got {getattr(settings, name)!r}")
    if not settings.learners or len(set(settings.learners)) < len(settings.learners):
        raise ValueError(f"learners must be different names, got {','.join(settings.learners)!r}")
    for learner in settings.learners:
        make_learner(settings, dataset, learner, seed=0)
