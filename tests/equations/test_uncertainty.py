"""Uncertainty against entropies worked by hand, and AUROC against scikit-learn's."""

from math import inf, log

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from mesu import Prediction, RegressionPrediction
from mesu.measures import auroc

DTYPES = [torch.float32, torch.float64]


def entropy(*probabilities):
    return -sum(p * log(p) for p in probabilities if p > 0)


def scores_of(probabilities, dtype):
    """Scores, before softmax, of probabilities [S, B, C]; adding a number to all scores of a row changes nothing."""
    return (torch.tensor(probabilities, dtype=torch.float64).log() + 3.0).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("draws", "total", "aleatoric"),
    [
        ([[0.5, 0.5], [0.5, 0.5]], log(2), log(2)),  # the draws agree that it is a toss-up: nothing to learn
        ([[0.9, 0.1], [0.1, 0.9]], log(2), entropy(0.9, 0.1)),  # they disagree
        ([[0.9, 0.1], [0.6, 0.4]], entropy(0.75, 0.25), (entropy(0.9, 0.1) + entropy(0.6, 0.4)) / 2),
        ([[0.25] * 4] * 3, log(4), log(4)),
        ([[0.7, 0.2, 0.1]], entropy(0.7, 0.2, 0.1), entropy(0.7, 0.2, 0.1)),  # one draw cannot disagree with itself
        ([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]], entropy(0.5, 0.25, 0.25), log(2) / 2),  # scores of -infinity
    ],
)
def test_entropies_worked_by_hand(draws, total, aleatoric, dtype):
    p = Prediction.from_scores(scores_of([[row] for row in draws], dtype))
    share = 1e-6 if dtype == torch.float32 else 1e-14
    assert p.total.dtype == p.probs.dtype == dtype
    assert p.total.item() == pytest.approx(total, rel=share)
    assert p.aleatoric.item() == pytest.approx(aleatoric, rel=share)
    assert p.epistemic.item() == pytest.approx(total - aleatoric, rel=share, abs=share)
    assert p.probs[0].tolist() == pytest.approx(np.mean(draws, axis=0).tolist(), rel=share)


@pytest.mark.parametrize("dtype", DTYPES)
def test_certain_draws_of_different_classes_are_all_epistemic(dtype):
    # rows: two draws certain of different classes; two certain of the same; three equal scores of any size
    scores = torch.tensor(
        [
            [[1e4, -1e4, -1e4], [1e4, -1e4, -1e4], [1e4, 1e4, 1e4]],
            [[-1e4, 1e4, -1e4], [1e4, -1e4, -1e4], [-1e4, -1e4, -1e4]],
        ],
        dtype=dtype,
    )
    p = Prediction.from_scores(scores)
    expected = torch.tensor([[log(2), 0.0, log(2)], [0.0, 0.0, 0.0], [log(3), log(3), 0.0]], dtype=dtype)
    torch.testing.assert_close(torch.stack([p.total, p.aleatoric, p.epistemic], 1), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(p.probs[0], torch.tensor([0.5, 0.5, 0.0], dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_uncertainty_is_within_its_bounds(dtype, data):
    draws, classes = data.draw(st.integers(1, 5)), data.draw(st.integers(2, 6))
    score = st.one_of(st.floats(-1e4, 1e4, width=32), st.floats(-5, 5, width=32), st.sampled_from([-1e4, 1e4, 0.0]))
    numbers = data.draw(st.lists(score, min_size=draws * classes, max_size=draws * classes))
    p = Prediction.from_scores(torch.tensor(numbers, dtype=dtype).view(draws, 1, classes))
    room = 1e-5 if dtype == torch.float32 else 1e-12
    assert all(torch.isfinite(t).all() for t in (p.probs, p.total, p.aleatoric, p.epistemic))
    assert p.probs.sum().item() == pytest.approx(1.0, rel=room)
    assert 0 <= p.aleatoric.item() <= p.total.item() <= log(classes) + room
    assert p.epistemic.item() >= 0
    assert p.epistemic.item() <= log(draws) + room  # a choice among that many draws
    assert p.epistemic.item() == pytest.approx(p.total.item() - p.aleatoric.item(), abs=room)


@pytest.mark.parametrize("dtype", DTYPES)
def test_draws_that_agree_have_no_epistemic_uncertainty_of_either_sign(dtype):
    scores = torch.randn(1, 500, 7, dtype=dtype).expand(3, -1, -1)
    p = Prediction.from_scores(scores)
    assert (p.epistemic >= 0).all()
    assert (p.epistemic <= 8 * torch.finfo(dtype).eps * p.total).all()


def test_regression_splits_variances():
    # drawn means 1, 2, 6: mean 3, variance (4 + 1 + 9)/3; a second output where the draws agree
    means = torch.tensor([[[1.0, -2.0]], [[2.0, -2.0]], [[6.0, -2.0]]], dtype=torch.float64)
    p = RegressionPrediction.from_means(means, noise_var=0.25)
    assert p.mean.tolist() == [[3.0, -2.0]]
    assert p.epistemic[0].tolist() == pytest.approx([14 / 3, 0.0], abs=1e-15)
    assert p.aleatoric.tolist() == [[0.25, 0.25]]
    assert p.total[0].tolist() == pytest.approx([14 / 3 + 0.25, 0.25])
    assert p.std[0].tolist() == pytest.approx([(14 / 3 + 0.25) ** 0.5, 0.5])


few_values = st.lists(st.integers(0, 5).map(float), min_size=1, max_size=30)  # many ties
any_values = st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=30)


@given(st.one_of(st.tuples(few_values, few_values), st.tuples(any_values, any_values)))
def test_auroc_is_scikit_learns(groups):
    inside, outside = groups
    expected = roc_auc_score([0] * len(inside) + [1] * len(outside), inside + outside)
    assert auroc(inside, outside) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_auroc_worked_by_hand():
    # of six pairs, outside is greater in three and equal in two
    assert auroc([1.0, 2.0, 3.0], [2.0, 3.0]) == pytest.approx((3 + 2 / 2) / 6)
    assert auroc([0.0, 1.0], [inf, 2.0]) == 1.0
    assert auroc([2.0], [1.0]) == 0.0
