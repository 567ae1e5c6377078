"""Replay: what is kept and picked, that a row is evidence once, and that nothing depends on how the stream came."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import mesu
from mesu import optim
from mesu.learners.contract import check_learner
from mesu.replay import REFRESH, UNKNOWN, scrambled

STREAMS = 400  # seeds that frequencies are counted over


def numbered(rows: int, start: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows that say which of the stream they are."""
    number = np.arange(start, start + rows)
    return number[:, None].astype(np.float64), number


def kept(replay: mesu.Replay) -> tuple[list[int], list[int]]:
    """The numbers of the rows in the ring, and of those in the reservoir."""
    return replay.y[: replay.recent].tolist(), replay.y[replay.recent : len(replay)].tolist()


def classifier(seed: int = 0, features: int = 4, classes: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(features, 5), nn.ReLU(), nn.Linear(5, classes))


def posterior_learner(engine: bool | None = None, batch: int = 1, **options) -> mesu.BayesianLearner:
    net = mesu.Bayesian(classifier(), seed=0)
    return mesu.BayesianLearner(
        net, mesu.MESU(net, memory=1000), batch=batch, engine=engine, replay=mesu.Replay(20, times=2, **options)
    )


def plain_learner(rule=None, engine: bool | None = None) -> mesu.WeightLearner:
    net = classifier()
    rule = rule or partial(optim.EWCOnline, lr=0.01, strength=1.0, decay=0.2)
    return mesu.WeightLearner(net, rule(list(net.parameters())), engine=engine, replay=mesu.Replay(20, times=2))


def some_rows(rows: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, 4)).astype(np.float32), rng.integers(0, 3, rows)


def same(one, other) -> bool:
    a, b = one.tensors(), other.tensors()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# -- what is kept and picked


def test_half_are_the_last_rows_and_half_a_sample_of_all_before():
    replay = mesu.Replay(10)
    replay.put(*numbered(4))
    assert sorted(replay.y[: len(replay)]) == [0, 1, 2, 3]  # nothing is lost before it is full
    replay.put(*numbered(996, 4))
    ring, reservoir = kept(replay)
    assert sorted(ring) == [995, 996, 997, 998, 999]
    assert len(set(reservoir)) == 5
    assert max(reservoir) < 995


def test_every_old_row_is_in_the_reservoir_with_the_same_probability():
    counts = np.zeros(40)
    for seed in range(STREAMS):
        replay = mesu.Replay(20, seed=seed)
        replay.put(*numbered(50))
        counts[kept(replay)[1]] += 1
    expected = STREAMS * 10 / 40
    assert ((counts - expected) ** 2 / expected).sum() < 73  # chi squared of 39 degrees of freedom, one in a thousand


def test_slots_are_picked_alike_and_other_seeds_pick_others():
    replay = mesu.Replay(16, times=4, candidates=1)
    replay.put(*numbered(16))
    slots = np.concatenate([replay.put(*numbered(100, at)).ravel() for at in range(16, 4016, 100)])
    counts = np.bincount(slots, minlength=16)
    assert ((counts - 1000) ** 2 / 1000).sum() < 37.7  # chi squared of 15 degrees of freedom, one in a thousand
    numbers = np.arange(9, dtype=np.uint64)
    assert not np.isin(scrambled(0, numbers, 5), scrambled(1, numbers, 5)).any()


def test_the_most_epistemic_of_the_candidates_is_picked():
    """The largest of four uniform numbers is 4/5 on average; without a score, a row is taken as often as it is drawn."""
    replay = mesu.Replay(1000, times=4, candidates=4)
    replay.put(*numbered(1000))
    replay.score(lambda rows: rows[:, 0] / 1000)
    slots = replay.best((scrambled(3, np.arange(2000, dtype=np.uint64), 4) % 1000).astype(np.int64))
    assert replay.scores[slots].mean() == pytest.approx(0.8, abs=0.01)
    replay.scores[500:] = UNKNOWN
    slots = replay.best((scrambled(3, np.arange(2000, dtype=np.uint64), 4) % 1000).astype(np.int64))
    assert (replay.scores[slots] == UNKNOWN).mean() == pytest.approx(0.5, abs=0.03)


def test_the_rows_of_a_chunk_come_in_order_each_followed_by_rows_that_were_kept_by_then():
    replay = mesu.Replay(6, times=3)
    x, y = replay.sequence(*numbered(200), batch=4)
    batches = y.reshape(50, 4, 4)
    assert (batches[:, 0].ravel() == np.arange(200)).all()
    assert (x[:, 0] == y).all()
    assert (batches[:, 1:].max((1, 2)) <= batches[:, 0].max(1)).all()


# -- evidence


def linear_learner(engine: bool | None, estimator: str = "linear", batch: int = 1) -> mesu.BayesianLearner:
    torch.manual_seed(0)
    net = mesu.Bayesian(
        nn.Linear(3, 1).double(), estimator=estimator, init_std=0.5, narrowing=1.0, likelihood="gaussian", seed=0
    )
    opt = mesu.MESU(net, memory=float("inf"), max_step=None)
    return mesu.BayesianLearner(net, opt, batch=batch, engine=engine, replay=mesu.Replay(50, times=4))


@pytest.mark.parametrize("engine", [None, False])
def test_every_row_is_evidence_once(engine):
    """With inputs of +-1 and noise 1, each row adds 1 to every weight's precision: 1 / sigma^2 = 1 / sigma_0^2 + rows."""
    rng = np.random.default_rng(0)
    x = rng.choice([-1.0, 1.0], (200, 3))
    learner = linear_learner(engine)
    learner.learn(x, x.sum(1, keepdims=True) + rng.normal(size=(200, 1)))
    for pair in learner.net.pairs():
        # on the torch path the curvature is that of drawn labels, right on average
        assert pair.std.detach().pow(-2).numpy() == pytest.approx(4 + 200, rel=1e-9 if engine is None else 0.15)


def test_a_joint_step_counts_every_row_once():
    """One weight, no bias: the joint step is Bayes' rule, and a row that is learned five times is learned once."""
    torch.manual_seed(0)
    net = mesu.Bayesian(
        nn.Linear(1, 1, bias=False).double(),
        estimator="joint",
        init_std=0.5,
        narrowing=1.0,
        likelihood="gaussian",
        seed=0,
    )
    start = float(next(net.pairs()).mean.detach())
    opt = mesu.MESU(net, memory=float("inf"), max_step=None)
    learner = mesu.BayesianLearner(net, opt, replay=mesu.Replay(2, times=4))
    learner.learn(np.array([[1.0]]), np.array([[2.0]]))  # five times the same row
    pair = next(net.pairs())
    assert float(pair.std.detach()) ** -2 == pytest.approx(4 + 1)
    assert float(pair.mean.detach()) == pytest.approx((4 * start + 2) / 5)
    assert vars(net.likelihood) == {"noise_std": 1.0}


def test_the_rates_are_as_they_were_afterwards():
    learner = posterior_learner()
    learner.learn(*some_rows(20))
    with pytest.raises(ValueError, match="finite"):
        learner.learn(np.full((1, 4), np.nan, np.float32), np.array([0]))
    assert [group["lr_std"] for group in learner.optimizer.param_groups] == [1.0]


# -- the same learner however the stream came


@pytest.mark.parametrize(
    "make",
    [
        posterior_learner,
        partial(posterior_learner, engine=False),
        plain_learner,
        partial(plain_learner, partial(torch.optim.Adam, lr=0.01), engine=False),
    ],
)
def test_learners_keep_their_contract(make, monkeypatch):
    monkeypatch.setattr("mesu.replay.REFRESH", 10)  # rows are scored several times
    check_learner(make, features=4, classes=3)


def test_batches_keep_the_contract(monkeypatch):
    monkeypatch.setattr("mesu.replay.REFRESH", 10)
    check_learner(partial(posterior_learner, batch=4), features=4, classes=3, batch=4)


def test_a_loop_of_ones_own_learns_what_the_learner_does():
    x, y = some_rows()
    learner = posterior_learner(engine=False, batch=4)
    learner.learn(x, y)
    net, replay = mesu.Bayesian(classifier(), seed=0), mesu.Replay(20, times=2)
    opt = mesu.MESU(net, memory=1000, lr_std=replay.share)
    for rows, labels in zip(torch.from_numpy(x).split(4), torch.from_numpy(y).split(4), strict=True):
        for some, theirs in replay.mix(rows, labels, net):
            net.nll(some, theirs).backward()
            opt.step()
            opt.zero_grad()
    assert len(x) > REFRESH
    assert (replay.scores != UNKNOWN).any()
    ours = {**net.state_dict(), **{f"kept rows.{name}": value for name, value in replay.state_dict().items()}}
    for name, value in learner.tensors().items():
        if name in ours:
            assert torch.equal(value, ours[name]), name


def test_a_loop_resumes_bit_for_bit(tmp_path):
    x, y = (torch.from_numpy(part) for part in some_rows(120))
    picks = []
    replay = mesu.Replay(10, seed=7)
    for at in range(0, 120, 8):
        if at == 40:
            torch.save(replay.state_dict(), tmp_path / "replay.pt")
        picks.append(torch.cat([rows for rows, _ in replay.mix(x[at : at + 8], y[at : at + 8])]))
    again = mesu.Replay(10)
    again.load_state_dict(torch.load(tmp_path / "replay.pt", weights_only=True))
    for at in range(40, 120, 8):
        found = torch.cat([rows for rows, _ in again.mix(x[at : at + 8], y[at : at + 8])])
        assert torch.equal(found, picks[at // 8])


def test_rows_keep_their_dtype_and_device():
    replay = mesu.Replay(4)
    for x, y in replay.mix(torch.ones(2, 3, dtype=torch.bfloat16), torch.zeros(2, 1)):
        assert (x.dtype, y.dtype, x.shape, y.shape) == (torch.bfloat16, torch.float32, (2, 3), (2, 1))


# -- what is refused


def test_a_batch_that_raised_is_not_kept():
    net, replay = mesu.Bayesian(classifier(), seed=0), mesu.Replay(20)

    def learn():
        for x, y in replay.mix(torch.ones(2, 4), torch.tensor([0, 3])):
            net.nll(x, y)

    with pytest.raises(ValueError, match="outside the head"):
        learn()
    assert len(replay) == 0


@pytest.mark.parametrize("rows", [1, 300])
def test_a_refused_chunk_leaves_the_buffer_as_it_was(rows):
    learner, twin = posterior_learner(), posterior_learner()
    x, y = some_rows(rows)
    wrong = y.copy()
    wrong[-1] = 3
    with pytest.raises(ValueError, match="label 3"):
        learner.learn(x, wrong)
    learner.learn(x[:, :4], y)  # the refused chunk has not said how wide rows are, either
    twin.learn(x, y)
    assert same(learner, twin)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 1}, "size must be a whole number, 2 or more, got 1"),
        ({"size": 10.5}, "size must be a whole number"),
        ({"size": 10, "times": 0}, "times must be a whole number, 1 or more, got 0"),
        ({"size": 10, "candidates": 0}, "candidates must be a whole number, 1 or more, got 0"),
        ({"size": 10, "seed": -1}, "seed must be a whole number, 0 or more, got -1"),
        ({"size": 10, "seed": 2**63}, "seed must be below"),
    ],
)
def test_settings_that_make_no_sense_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        mesu.Replay(**settings)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.ones(2, 5), torch.zeros(2, dtype=torch.long), "inputs of shape .5,. do not fit beside .* .4,."),
        (torch.ones(2, 4), torch.zeros(2, 1, dtype=torch.long), "targets of shape .1,. do not fit"),
        (
            torch.ones(2, 4).double(),
            torch.zeros(2, dtype=torch.long),
            "inputs are float64 now.*convert them to float32",
        ),
        (torch.ones(2, 4), torch.zeros(2), "targets are float32 now.*convert them to int64"),
        (torch.ones(0, 4), torch.zeros(0, dtype=torch.long), "there must be as many, and some"),
        (torch.ones(2, 4), torch.zeros(3, dtype=torch.long), "there must be as many"),
        (
            torch.full((2, 4), torch.nan),
            torch.zeros(2, dtype=torch.long),
            "inputs must be finite, got nan at index .0, 0.",
        ),
    ],
)
def test_rows_unlike_the_kept_ones_are_named(x, y, message):
    replay = mesu.Replay(10)
    list(replay.mix(torch.ones(2, 4), torch.zeros(2, dtype=torch.long)))
    before = replay.state_dict()
    with pytest.raises(ValueError, match=message):
        replay.mix(x, y)
    assert all(torch.equal(value, replay.state_dict()[name]) for name, value in before.items())


def test_what_cannot_be_used_with_replay_is_named():
    with pytest.raises(TypeError, match="rows must be tensors, got list"):
        mesu.Replay(10).mix([[1.0]], [0])  # type: ignore[arg-type]
    net = mesu.Bayesian(classifier(), seed=0)
    with pytest.raises(TypeError, match=r"must be a mesu\.Replay, got 500"):
        mesu.BayesianLearner(net, mesu.MESU(net, memory=10), replay=500)  # type: ignore[arg-type]
    drawn = mesu.Bayesian(classifier(), estimator="local", seed=0)
    with pytest.raises(ValueError, match="BayesByBackprop has no lr_std"):
        mesu.BayesianLearner(drawn, mesu.BayesByBackprop(drawn, lr=0.1), replay=mesu.Replay(10))
    learner = posterior_learner()
    with pytest.raises(ValueError, match="replay keeps rows without head"):
        learner.learn(*some_rows(2), head=0)
    with pytest.raises(ValueError, match="5 examples cannot be cut into batches of 2"):
        posterior_learner(batch=2).learn(*some_rows(5))


def test_a_state_of_another_buffer_is_refused():
    replay = mesu.Replay(10)
    replay.put(*numbered(5))
    with pytest.raises(
        ValueError, match=r"size=20, and this one 10: make it with mesu\.Replay\(20, times=4, candidates=4\)"
    ):
        replay.load_state_dict(mesu.Replay(20).state_dict())
    with pytest.raises(ValueError, match=r"not the state of a mesu\.Replay: it has nothing"):
        replay.load_state_dict({})
    assert len(replay) == 5
