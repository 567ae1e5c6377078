"""No row is lost between threads, and a process that is forked while others learn or save goes on."""

import os
import signal
import sys
import threading

import numpy as np
import pytest
import torch

import mesu
from mesu.online.locks import Lock, lock_of

SIZES = {"hidden": (), "predict_samples": 2}
posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")


@pytest.fixture(autouse=True)
def _eager_switches():
    """Threads take turns more often than they would, so that a race shows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(*tasks):
    """Run these in a thread each; the errors that they raise."""
    errors = []

    def guarded(task):
        try:
            task()
        except Exception as error:  # of any kind: the test shows it
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_four_threads_with_new_features_lose_no_row():
    river = pytest.importorskip("mesu.river")
    model = river.MESUClassifier(seed=0, **SIZES)

    def learn(who):
        for i in range(40):
            model.learn_one({"all": float(i), f"{who} {i // 5}": 1.0}, i % 3)

    assert together(*(lambda who=who: learn(who) for who in range(4))) == []
    now = model._online.snapshot
    assert (now.rows, now.weights.sizes[0]) == (160, 1 + 4 * 8)
    assert len(model._columns) == 33


@pytest.mark.parametrize("kind", ["MESUClassifier", "MESURegressor"])
def test_a_first_partial_fit_from_four_threads_keeps_all_rows(kind):
    model = getattr(mesu, kind)(random_state=0, **SIZES)
    rows = [np.random.default_rng(i).normal(size=(10, 2)) for i in range(4)]
    assert together(*(lambda x=x: model.partial_fit(x, np.arange(10) % 2) for x in rows)) == []
    assert model._online.snapshot.rows == 40


def test_predicting_while_classes_and_features_appear():
    river = pytest.importorskip("mesu.river")
    model = river.MESUClassifier(seed=0, **SIZES)
    finished = threading.Event()
    seen = []

    def learn():
        try:
            for i in range(60):
                model.learn_one({"all": float(i), f"feature {i // 3}": 1.0}, i // 2)
        finally:
            finished.set()

    def read():
        while not finished.is_set():
            seen.append(len(model.predict_proba_one({"all": 1.0, "feature 3": 1.0})))

    assert together(learn, read, read) == []
    assert max(seen, default=0) <= 30


def in_a_child(task):
    """Do something in a forked child, which is ended after a minute if it hangs. Whether it went well."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            task()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


@posix
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_forked_while_threads_learn_and_save_goes_on(tmp_path):
    river = pytest.importorskip("mesu.river")
    x, y = np.random.default_rng(0).normal(size=(300, 6)), np.arange(300) % 3
    model = mesu.MESUClassifier(hidden=(200,), predict_samples=2, random_state=0).partial_fit(x, y)
    rows = river.MESUClassifier(seed=0, **SIZES)
    rows.learn_one({"a": 1.0}, 0)
    stop = threading.Event()

    def until_stopped(task):
        count = 0
        while not stop.is_set():
            task(count)
            count += 1

    def child():
        model.partial_fit(x, y)
        model.predict(x)
        model.save(tmp_path / "child")
        assert mesu.load(tmp_path / "child").predict(x).tolist() == model.predict(x).tolist()
        rows.learn_one({"a": 2.0, "new in the child": 1.0}, 1)
        assert list(rows.predict_proba_one({"a": 2.0})) == list(rows._online.snapshot.labels)

    def fork():
        try:
            assert all(in_a_child(child) for _ in range(8))
        finally:
            stop.set()

    learning = [
        lambda: until_stopped(lambda _: model.partial_fit(x, y)),
        lambda: until_stopped(lambda _: model.save(tmp_path / "parent")),
        lambda: until_stopped(lambda i: rows.learn_one({"a": 1.0, f"{i % 20}": 1.0}, i % 2)),
    ]
    assert together(fork, *learning) == []


@posix
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_what_another_thread_was_changing_at_a_fork_is_known_in_the_child():
    lock, free, holding, done = Lock(), Lock(), threading.Event(), threading.Event()

    def hold():
        with lock.held():
            holding.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait()

    def child():
        with lock.held() as lost:
            assert lost
        for later in (lock, free):
            with later.held() as lost:
                assert not lost

    assert in_a_child(child)
    done.set()
    thread.join()
    with lock.held() as lost:
        assert not lost


@posix
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_torch_in_a_child_waits_for_no_thread_of_its_parent():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        large = torch.rand(300_000)
        large.sqrt()
        assert in_a_child(lambda: large.sqrt())
    finally:
        torch.set_num_threads(before)


def test_a_lock_belongs_to_one_model():
    one, other = mesu.MESUClassifier(), mesu.MESUClassifier()
    assert lock_of(one) is lock_of(one)
    assert lock_of(one) is not lock_of(other)
