"""Scores worked out by hand on small matrices, and scikit-learn's where it has them."""

from math import inf, log, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from mesu import measures

A = [
    [0.9, 0.3, 0.2],
    [0.7, 0.8, 0.4],
    [0.5, 0.6, 0.7],
]
# learned three of four tasks, later ones not measured
PARTIAL = [
    [0.9, nan, nan, nan],
    [0.7, 0.8, nan, nan],
    [0.5, 0.6, 0.7, nan],
]
PROBS = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4], [0.8, 0.1, 0.1]]
LABELS = [0, 1, 0, 1]


@pytest.mark.parametrize("matrix", [A, PARTIAL])
@pytest.mark.parametrize(
    ("measure", "wanted"),
    [
        (measures.average_accuracy, 0.6),  # (0.5 + 0.6 + 0.7) / 3
        (measures.newest_accuracy, 0.7),
        (measures.plasticity, 0.8),  # (0.9 + 0.8 + 0.7) / 3
        (measures.forgetting, 0.3),  # ((0.9 - 0.5) + (0.8 - 0.6)) / 2
        (measures.backward_transfer, -0.3),  # ((0.5 - 0.9) + (0.6 - 0.8)) / 2
        (measures.memory_rigidity, 5.0),  # 1 / |0.9 - 0.7|
    ],
)
def test_by_hand(matrix, measure, wanted):
    assert measure(matrix) == pytest.approx(wanted)


@pytest.mark.parametrize(("window", "wanted"), [(1, 0.7), (2, 0.65), (3, 0.6), (5, 0.6)])
def test_window_accuracy(window, wanted):
    assert measures.window_accuracy(A, window) == pytest.approx(wanted)
    assert measures.window_accuracy(PARTIAL, window) == pytest.approx(wanted)


def test_window_is_five_by_default():
    last = np.zeros((7, 7))
    last[-1] = [1, 1, 0.5, 0.4, 0.3, 0.2, 0.1]
    assert measures.window_accuracy(last) == pytest.approx(0.3)


def test_forgetting_takes_the_best_since_the_task_was_learned():
    # task 0: 0.6 then 0.9, best 0.9; task 1 was at 1.0 before it was learned, which does not count
    a = [[0.6, 1.0, 0.0], [0.9, 0.5, 0.0], [0.4, 0.4, 0.8]]
    assert measures.forgetting(a) == pytest.approx(((0.9 - 0.4) + (0.5 - 0.4)) / 2)


def test_forgetting_skips_rows_that_were_not_measured():
    a = [[0.6, nan, nan], [nan, 0.5, nan], [0.4, 0.4, 0.8]]
    assert measures.forgetting(a) == pytest.approx(((0.6 - 0.4) + (0.5 - 0.4)) / 2)


def test_better_later_is_negative_forgetting_and_positive_transfer():
    a = [[0.5, 0.1], [0.8, 0.9]]
    assert measures.forgetting(a) == pytest.approx(-0.3)
    assert measures.backward_transfer(a) == pytest.approx(0.3)


def test_forward_transfer():
    # A[0, 1] = 0.3 and A[1, 2] = 0.4 against chance
    assert measures.forward_transfer(A, 0.1) == pytest.approx(0.25)
    assert measures.forward_transfer(A, [9.0, 0.2, 0.5]) == pytest.approx(((0.3 - 0.2) + (0.4 - 0.5)) / 2)


def test_forward_transfer_needs_the_tasks_ahead():
    with pytest.raises(ValueError, match="missing"):
        measures.forward_transfer(PARTIAL, 0.1)


def test_one_task_forgets_nothing():
    assert measures.forgetting([[0.9]]) == 0
    assert measures.backward_transfer([[0.9]]) == 0
    assert measures.forward_transfer([[0.9]], 0.1) == 0


def test_equal_first_and_last_task_is_infinitely_rigid():
    assert measures.memory_rigidity([[0.5, 0.1], [0.2, 0.5]]) == inf


@pytest.mark.parametrize("matrix", [0.5, [0.5, 0.6], np.zeros((0, 3)), np.zeros((3, 2)), np.zeros((2, 2, 2))])
@pytest.mark.parametrize(
    "measure",
    [
        measures.average_accuracy,
        measures.window_accuracy,
        measures.newest_accuracy,
        measures.plasticity,
        measures.forgetting,
        measures.backward_transfer,
        measures.memory_rigidity,
        lambda a: measures.forward_transfer(a, 0.1),
    ],
)
def test_bad_matrices_are_refused(measure, matrix):
    with pytest.raises(ValueError, match=r"got shape \("):
        measure(matrix)


@pytest.mark.parametrize("window", [0, -1])
def test_bad_window_is_refused(window):
    with pytest.raises(ValueError, match=f"got {window}"):
        measures.window_accuracy(A, window)


def test_auroc_by_hand():
    # pairs (inside, outside): 1<2, 1<3, 3>2, 3=3 -> (1 + 1 + 0 + 1/2) / 4
    assert measures.auroc([1, 3], [2, 3]) == pytest.approx(0.625)
    assert measures.auroc([0, 1], [2, 3]) == 1
    assert measures.auroc([2, 3], [0, 1]) == 0
    assert measures.auroc([1, 1], [1]) == 0.5


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=20),
    st.lists(st.integers(0, 5), min_size=1, max_size=20),
)
def test_auroc_agrees_with_scikit_learn(inside, outside):
    truth = [0] * len(inside) + [1] * len(outside)
    assert measures.auroc(inside, outside) == pytest.approx(roc_auc_score(truth, inside + outside))


@pytest.mark.parametrize(("inside", "outside"), [([], [1.0]), ([1.0], []), ([nan], [1.0]), ([1.0], [nan, 2.0])])
def test_auroc_refuses_what_it_cannot_rank(inside, outside):
    with pytest.raises(ValueError, match="AUROC"):
        measures.auroc(inside, outside)


def test_accuracy_by_hand():
    assert measures.accuracy(PROBS, LABELS) == 0.5  # right, right, wrong (2 for 0), wrong (0 for 1)


def test_brier_by_hand():
    # rows: .09+.04+.01, .01+.16+.09, .49+.09+.16, .64+.81+.01
    assert measures.brier_score(PROBS, LABELS) == pytest.approx((0.14 + 0.26 + 0.74 + 1.46) / 4)
    assert measures.brier_score([[1.0, 0.0]], [0]) == 0
    assert measures.brier_score([[1.0, 0.0]], [1]) == 2


def test_brier_agrees_with_scikit_learn():
    p, y = np.random.default_rng(0).dirichlet(np.ones(2), 50), np.random.default_rng(1).integers(0, 2, 50)
    assert measures.brier_score(p, y) == pytest.approx(2 * brier_score_loss(y, p[:, 1]))  # both classes: twice


def test_nll_by_hand():
    wanted = -(log(0.7) + log(0.6) + log(0.3) + log(0.1)) / 4
    assert measures.negative_log_likelihood(PROBS, LABELS) == pytest.approx(wanted)
    assert measures.negative_log_likelihood([[1.0, 0.0]], [1]) == inf


def test_nll_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(5), 60), rng.integers(0, 5, 60)
    assert measures.negative_log_likelihood(p, y) == pytest.approx(log_loss(y, p, labels=range(5)))


def test_calibration_error_by_hand():
    # two bins, confidences .7 .6 .4 .8: (0, .5] holds .4 (wrong); (.5, 1] holds .7 and .6 (right) and .8 (wrong)
    low, high = abs(0.4 - 0), abs(0.7 + 0.6 + 0.8 - 2)
    assert measures.calibration_error(PROBS, LABELS, bins=2) == pytest.approx((low + high) / 4)
    # one bin: mean confidence .625 against accuracy .5
    assert measures.calibration_error(PROBS, LABELS, bins=1) == pytest.approx(0.125)
    # bins of a tenth: every row alone
    assert measures.calibration_error(PROBS, LABELS, bins=10) == pytest.approx((0.3 + 0.4 + 0.4 + 0.8) / 4)


def test_calibration_bins_hold_their_upper_edge():
    # .5 belongs to (0, .5] with the wrong .4, not to (.5, 1] with the right .9
    probs = [[0.5, 0.3, 0.2], [0.4, 0.3, 0.3], [0.9, 0.05, 0.05]]
    wanted = (abs(0.5 - 1 + 0.4) + abs(0.9 - 1)) / 3
    assert measures.calibration_error(probs, [0, 1, 0], bins=2) == pytest.approx(wanted)


def test_certain_and_right_is_calibrated():
    assert measures.calibration_error(np.eye(3), [0, 1, 2]) == 0
    assert measures.calibration_error(np.eye(3), [1, 2, 0]) == 1


@given(st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_calibration_error_is_a_mean_of_gaps(bins, seed):
    rng = np.random.default_rng(seed)
    p, y = rng.dirichlet(np.ones(4), 30), rng.integers(0, 4, 30)
    error = measures.calibration_error(p, y, bins)
    confidence, right = p.max(1), p.argmax(1) == y
    assert abs(confidence.mean() - right.mean()) - 1e-12 <= error <= np.abs(confidence - right).mean() + 1e-12


PROBABILITY_MEASURES = [
    measures.accuracy,
    measures.calibration_error,
    measures.brier_score,
    measures.negative_log_likelihood,
]


@pytest.mark.parametrize("measure", PROBABILITY_MEASURES)
@pytest.mark.parametrize(
    ("probs", "labels"),
    [
        ([0.5, 0.5], [0]),
        ([[0.5, 0.5]], [0, 1]),
        ([[0.5, 0.5]], 0),
        ([[0.5, 0.5]], [[0]]),
        (np.zeros((0, 2)), []),
        ([[0.5, 0.5]], [2]),
        ([[0.5, 0.5]], [-1]),
    ],
)
def test_bad_probabilities_are_refused(measure, probs, labels):
    with pytest.raises(ValueError, match="labels"):
        measure(probs, labels)


@pytest.mark.parametrize("bins", [0, -1])
def test_bad_bins_are_refused(bins):
    with pytest.raises(ValueError, match=f"got {bins}"):
        measures.calibration_error(PROBS, LABELS, bins)


def test_running_window_averages_the_window_along_the_stream():
    a = [[0.9, np.nan, np.nan], [0.5, 0.8, np.nan], [0.1, 0.6, 1.0]]
    assert measures.running_window_accuracy(a, window=2) == pytest.approx((0.65 + 0.8) / 2)
    assert measures.running_window_accuracy(a, window=1) == pytest.approx((0.9 + 0.8 + 1.0) / 3)
    assert measures.running_window_accuracy(a, window=5) == pytest.approx((0.1 + 0.6 + 1.0) / 3)
    with pytest.raises(ValueError, match="got 0"):
        measures.running_window_accuracy(a, window=0)


def test_auroc_by_thresholds_is_blind_between_them():
    inside, outside = [0.01, 0.02, 0.03, 0.6], [0.04, 0.05, 0.06, 0.9]
    assert measures.auroc(inside, outside) == 13 / 16
    # only 0.6 and 0.9 pass 0.5: the rest are equal, so 9 halves, three wins of 0.9 and a half against 0.6
    assert measures.auroc_by_thresholds(inside, outside, [0.5]) == pytest.approx((9 / 2 + 3 + 1 / 2) / 16)
    fine = np.linspace(0, 1, 1_001)
    assert measures.auroc_by_thresholds(inside, outside, fine) == measures.auroc(inside, outside)
    with pytest.raises(ValueError, match="there must be a threshold"):
        measures.auroc_by_thresholds(inside, outside, [])


def test_auroc_by_thresholds_is_the_area_under_straight_lines_through_them():
    rng = np.random.default_rng(0)
    inside, outside = rng.gamma(1.0, 0.3, 500), rng.gamma(2.0, 0.3, 300)
    thresholds = np.linspace(0, 2, 7)
    false, true = ([1.0, *((values > t).mean() for t in thresholds), 0.0] for values in (inside, outside))
    area = -np.trapezoid(true, false)
    assert measures.auroc_by_thresholds(inside, outside, thresholds) == pytest.approx(area)
