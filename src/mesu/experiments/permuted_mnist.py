"""Permuted MNIST (Fig. 3): 784 pixels shuffled anew for each task, one example at a time, 50 hidden units."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mesu.data import fashion_mnist, mnist
from mesu.experiments import permuted
from mesu.experiments.table import Row
from mesu.streams import Permuted


@dataclass(frozen=True)
class PermutedMNIST:
    """Settings of `mesu run permuted-mnist`: the paper's table, and the published run where the two differ."""

    tasks: int = 20  # permutations, learned one after the other; the paper has 200
    seeds: int = 3  # runs, each with its own permutations and first weights; the paper has 5
    learners: tuple[str, ...] = ("mesu", "ewc-online", "si", "foo-vb", "ewc-stream", "sgd")  # who takes part
    epochs: int = 1  # times that each task's 60,000 examples are shown
    hidden: int = 50  # hidden units of the one layer
    samples: int = 10  # Monte Carlo samples of a training step
    test_samples: int = 10  # Monte Carlo samples of a prediction
    memory: float = 300_000  # N of MESU, in updates: five tasks
    prior_std: float = 1.0  # prior of MESU
    update: str = "paper"  # MESU's step: exact or paper
    estimator: str = "local"  # how MESU and FOO-VB draw: local, or weights as the paper does
    sgd_lr: float = 0.002  # learning rate of SGD
    ewc_online_lr: float = 0.002  # learning rate of EWC Online
    ewc_online_strength: float = 2.0  # its lambda
    ewc_online_decay: float = 0.2  # its gamma
    ewc_stream_lr: float = 0.002  # learning rate of EWC Stream
    ewc_stream_strength: float = 5.0  # its lambda
    ewc_stream_decay: float = 0.2  # its gamma
    si_lr: float = 0.002  # learning rate of SI in the published run; the paper's table says 0.005
    si_strength: float = 1e-4  # its c in the published run; the paper's table says 1e-9

    name = "permuted-mnist"

    def check(self) -> None:
        """Refuse settings that cannot run, before anything is started."""
        fashion_mnist()
        permuted.check(self, mnist())

    def rows(self, learner: str, seed: int, task_done: Callable[[], None] = lambda: None) -> Iterator[Row]:
        """Train one learner with one seed; see `permuted.rows`. The outliers are Fashion-MNIST's test images."""
        stream = Permuted(mnist(), self.tasks, seed)
        return permuted.rows(self, stream, fashion_mnist().x_test, learner, seed, task_done)
