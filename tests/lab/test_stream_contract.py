"""The contract of streams: every stream keeps it, and each way to break it is noticed."""

from dataclasses import replace

import numpy as np
import pytest

from mesu.lab.data import digits
from mesu.lab.stream_contract import check_stream
from mesu.lab.streams import Domains, FirstExamples, InTurn, MultiHead, Permuted, Splits, Stationary, Task, streams

DIGITS = digits()
MAKERS = {
    "permuted": (lambda tasks, seed: Permuted(DIGITS, tasks, seed), 10),
    "stationary": (lambda tasks, seed: Stationary(DIGITS, tasks), 10),
    "domains": (lambda tasks, seed: Domains([DIGITS] * tasks), 10),
    "multi-head": (lambda tasks, seed: MultiHead(DIGITS, 2), 2),
    "first-examples": (lambda tasks, seed: FirstExamples(Permuted(DIGITS, tasks, seed), 50, 70), 10),
    "in-turn": (lambda tasks, seed: InTurn([Permuted(DIGITS, 2, seed), MultiHead(DIGITS, 5)]), 10),
    "splits": (lambda tasks, seed: Splits(MultiHead(DIGITS, 5), 3), 5),
}


def test_every_stream_is_checked():
    assert set(streams) == set(MAKERS)


@pytest.mark.parametrize("name", MAKERS)
def test_a_stream_keeps_the_contract(name):
    make, classes = MAKERS[name]
    check_stream(make, classes)


class Broken(Permuted):
    """A stream with something wrong in its third task."""

    def __init__(self, tasks, seed, change):
        super().__init__(replace(DIGITS), tasks, seed)
        self.change = change

    def _task(self, index):
        task = super()._task(index)
        return self.change(self, task) if index == 2 else task


def shaken(task, seed):
    return replace(task, order=np.random.default_rng(seed).permutation(64))


def with_data(task, **arrays):
    return replace(task, dataset=replace(task.dataset, **arrays))


def holed(x):
    x = x.copy()
    x[5, 5] = np.nan
    return x


RANDOM = np.random.default_rng(0)
BROKEN = {
    "the same when it is asked for twice": lambda stream, task: shaken(task, RANDOM),
    "not depend on how many": lambda stream, task: shaken(task, len(stream)),
    "say its index": lambda stream, task: replace(task, index=7),
    "must be float32": lambda stream, task: with_data(task, x_train=DIGITS.x_train.astype(float)),
    "to test must be finite": lambda stream, task: with_data(task, x_test=holed(DIGITS.x_test)),
    "must be from 0 to 9, got 1 to 10": lambda stream, task: with_data(task, y_train=DIGITS.y_train + 1),
    "must be whole numbers": lambda stream, task: with_data(task, y_test=DIGITS.y_test.astype(float)),
    "one a row": lambda stream, task: with_data(task, y_test=DIGITS.y_test[:-1]),
    "there must be examples": lambda stream, task: replace(task, train=np.arange(0)),
}


@pytest.mark.parametrize("said", BROKEN)
def test_a_broken_stream_is_noticed(said):
    with pytest.raises(AssertionError, match=said):
        check_stream(lambda tasks, seed: Broken(tasks, seed, BROKEN[said]), 10)


def test_a_seed_that_does_not_decide_and_a_stream_without_an_end_are_noticed():
    with pytest.raises(AssertionError, match="the same for the same seed"):
        check_stream(lambda tasks, seed: Permuted(DIGITS, tasks, int(RANDOM.integers(1000))), 10)

    class Endless(Permuted):
        def __getitem__(self, index):
            return self._task(index)

        def __iter__(self):
            return (self[index] for index in range(len(self)))

    with pytest.raises(AssertionError, match="beyond the last"):
        check_stream(lambda tasks, seed: Endless(DIGITS, tasks, seed), 10)


def test_a_task_of_ones_own_needs_no_base_class():
    class Mine(list):
        pass

    assert isinstance(Mine([Task(0, DIGITS)])[0], Task)
    check_stream(lambda tasks, seed: Mine(Task(index, DIGITS) for index in range(tasks)), 10)
