"""The rules of plain weights against their equations, worked in sixty digits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.equations.cases import (
    R,
    close,
    decays,
    gradients,
    importances,
    powers,
    rates,
    signed,
    strengths,
    tensor,
    total,
    weights,
)

from mesu.rules import ewc, ewc_online, ewc_stream, sgd, si, si_per_task


@given(weights, gradients, rates)
def test_sgd(w, g, lr):
    new, state = sgd.step(tensor(w), tensor(g), sgd.initial(tensor(w)), sgd.constants(lr))
    close(new.item(), *total(R(w), -R(lr) * R(g)))
    assert state == sgd.State()


tasks = st.lists(st.tuples(importances, weights), max_size=6)


@given(tasks, weights, gradients, rates, strengths)
def test_ewc_has_one_penalty_for_every_task(tasks, w, g, lr, strength):
    c = ewc.constants(lr, strength)
    state = ewc.initial(tensor(w))
    for fisher, anchor in tasks:
        state = ewc.consolidate(tensor(anchor), state, tensor(fisher), c)
    # d/dw of lambda/2 sum_k F_k (w - w_k)^2, the list kept as it is
    penalty = sum((R(strength) * R(f) * (R(w) - R(a)) for f, a in tasks), R(0))
    size = abs(R(g)) + sum((R(strength) * R(f) * (abs(R(w)) + abs(R(a))) for f, a in tasks), R(0))
    close(ewc.penalised(tensor(w), tensor(g), state, c).item(), R(g) + penalty, size)
    new, after = ewc.step(tensor(w), tensor(g), state, c)
    close(new.item(), R(w) - R(lr) * (R(g) + penalty), abs(R(w)) + R(lr) * size)
    assert after == state


@given(tasks, weights, gradients, rates, strengths, decays)
def test_ewc_online_has_one_fading_penalty(tasks, w, g, lr, strength, decay):
    c = ewc_online.constants(lr, strength, decay)
    state = ewc_online.initial(tensor(w))
    importance, anchor = R(0), R(w)
    for fisher, end in tasks:
        state = ewc_online.consolidate(tensor(end), state, tensor(fisher), c)
        importance, anchor = R(decay) * importance + R(fisher), R(end)
    close(state.importance.item(), importance, importance)
    assert state.anchor.item() == float(anchor)
    pull = R(strength) * importance
    new, after = ewc_online.step(tensor(w), tensor(g), state, c)
    size = abs(R(w)) + R(lr) * (abs(R(g)) + pull * (abs(R(w)) + abs(anchor)))
    close(new.item(), R(w) - R(lr) * (R(g) + pull * (R(w) - anchor)), size)
    assert after == state


@given(weights, weights, importances, gradients, rates, strengths, decays)
def test_ewc_stream_renews_its_penalty_at_every_step(w, anchor, importance, g, lr, strength, decay):
    c = ewc_stream.constants(lr, strength, decay)
    state = ewc_stream.State(tensor(importance), tensor(anchor))
    new, after = ewc_stream.step(tensor(w), tensor(g), state, c)
    pull = R(strength) * R(importance)
    size = abs(R(w)) + R(lr) * (abs(R(g)) + pull * (abs(R(w)) + abs(R(anchor))))
    close(new.item(), R(w) - R(lr) * (R(g) + pull * (R(w) - R(anchor))), size)
    close(after.importance.item(), *total(R(decay) * R(importance), R(g) ** 2))
    assert after.anchor.item() == w  # before the step, not after it


@given(weights, gradients, rates, strengths, decays)
def test_the_first_step_of_every_weight_rule_is_sgd(w, g, lr, strength, decay):
    expected = sgd.step(tensor(w), tensor(g), sgd.State(), sgd.constants(lr))[0]
    for file, c in (
        (ewc, ewc.constants(lr, strength)),
        (ewc_online, ewc_online.constants(lr, strength, decay)),
        (ewc_stream, ewc_stream.constants(lr, strength, decay)),
        (si, si.constants(lr, strength)),
    ):
        assert file.step(tensor(w), tensor(g), file.initial(tensor(w)), c)[0].item() == expected.item()


@given(weights, weights, importances, signed(-6, 6), gradients, rates, strengths)
def test_si_step(w, anchor, importance, path, g, lr, strength):
    c = si.constants(lr, strength, damping=0.5)
    state = si.State(tensor(importance), tensor(anchor), tensor(path))
    new, after = si.step(tensor(w), tensor(g), state, c)
    # d/dw of c Omega (w - w*)^2, which has no half to cancel the two
    pull = 2 * R(strength) * R(importance)
    step = -R(lr) * (R(g) + pull * (R(w) - R(anchor)))
    size = abs(R(w)) + R(lr) * (abs(R(g)) + pull * (abs(R(w)) + abs(R(anchor))))
    close(new.item(), R(w) + step, size)
    close(after.path.item(), R(path) - R(g) * step, abs(R(path)) + abs(R(g)) * size)
    assert (after.importance, after.anchor) == (state.importance, state.anchor)


@given(weights, weights, importances, signed(-6, 6), powers(-6, 1))
def test_si_consolidation(w, anchor, importance, path, damping):
    state = si.State(tensor(importance), tensor(anchor), tensor(path))
    after = si.consolidate(tensor(w), state, si.constants(0.1, 1.0, damping))
    distance, rounding = (R(w) - R(anchor)) ** 2, (abs(R(w)) + abs(R(anchor))) * abs(R(w) - R(anchor))
    gain = max(R(0), R(path) / (distance + R(damping)))
    close(
        after.importance.item(), R(importance) + gain, R(importance) + gain * (1 + rounding / (distance + R(damping)))
    )
    assert after.anchor.item() == w
    assert after.path.item() == 0.0


finished = st.lists(st.tuples(weights, signed(-6, 6)), max_size=5)  # where each task ended, and its path


@given(finished, weights, gradients, rates, strengths, powers(-6, 1))
def test_si_per_task_has_a_penalty_for_every_task_whose_path_lowered_the_loss(ends, w, g, lr, strength, damping):
    c = si_per_task.constants(lr, strength, damping)
    state = si_per_task.initial(tensor(0.0))
    kept, start = [], R(0)  # Omega_k and theta_k of every task, the list kept as it is
    for end, path in ends:
        state = si_per_task.consolidate(tensor(end), state._replace(path=tensor(path)), c)
        distance = (R(end) - start) ** 2
        kept.append((max(R(0), R(path) / (distance + R(damping))), R(end)))
        start = R(end)
        assert (state.anchor.item(), state.path.item()) == (end, 0.0)
    # single terms are in double precision: the distance of two ends loses digits where they are near
    loss = 1e-9 * sum((omega * (1 + abs(theta)) for omega, theta in kept), R(0))
    assert abs(R(state.importance.item()) - sum((omega for omega, _ in kept), R(0))) <= loss
    assert abs(R(state.anchored.item()) - sum((omega * theta for omega, theta in kept), R(0))) <= loss
    pull = sum((2 * R(strength) * omega * (R(w) - theta) for omega, theta in kept), R(0))
    size = abs(R(g)) + 2 * R(strength) * sum((omega * (1 + abs(R(w)) + abs(theta)) for omega, theta in kept), R(0))
    found = si_per_task.penalised(tensor(w), tensor(g), state, c)
    assert abs(R(found.item()) - (R(g) + pull)) <= 1e-9 * size
    new, after = si_per_task.step(tensor(w), tensor(g), state, c)
    assert abs(R(new.item()) - (R(w) - R(lr) * (R(g) + pull))) <= 1e-9 * (abs(R(w)) + R(lr) * size)
    close(
        after.path.item(),
        R(state.path.item()) - R(g) * (R(new.item()) - R(w)),
        abs(R(g)) * (abs(R(w)) + abs(R(new.item()))),
    )


def test_si_per_task_forgets_no_anchor_and_rewards_no_rise():
    # two tasks by hand: the first ends at 1 with path 2 and damping 1: Omega = 2 / (1 + 1) = 1; the second raised the loss
    c = si_per_task.constants(lr=0.1, strength=0.5, damping=1.0)
    state = si_per_task.initial(tensor(0.0))._replace(path=tensor(2.0))
    state = si_per_task.consolidate(tensor(1.0), state, c)
    assert [value.item() for value in state] == [1.0, 1.0, 1.0, 0.0]
    state = si_per_task.consolidate(tensor(3.0), state._replace(path=tensor(-4.0)), c)
    assert [value.item() for value in state] == [1.0, 1.0, 3.0, 0.0]
    assert (
        si_per_task.penalised(tensor(4.0), tensor(0.0), state, c).item() == 3.0
    )  # towards 1, where the first task ended


def test_si_path_is_the_fall_of_the_loss():
    # on a slope that is the same everywhere, what the path collects is exactly how far the loss fell
    c = si.constants(lr=0.25, strength=3.0)
    w = start = tensor(2.0)
    state = si.initial(w)
    for _ in range(8):
        w, state = si.step(w, tensor(1.5), state, c)
    assert state.path.item() == pytest.approx(1.5 * (start - w).item(), rel=1e-14)
    assert si.consolidate(w, state, c).importance.item() == pytest.approx(4.5 / (9.0 + 1.0), rel=1e-14)
