"""The scikit-learn estimators: digits, numbers, classes that appear, novelty, and the page about them."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from made_up import clusters, line, same
from sklearn.datasets import load_digits, make_friedman1

import mesu


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:1300], y[:1300], X[1300:], y[1300:]


def test_digits_are_read(digits):
    X, y, fresh, truth = digits
    fitted = mesu.MESUClassifier(random_state=0).fit(X, y)
    assert fitted.score(fresh, truth) > 0.92
    streamed = mesu.MESUClassifier(random_state=0).partial_fit(X, y)
    assert streamed.score(fresh, truth) > 0.85
    # probabilities mean what they say
    probs = fitted.predict_proba(fresh)
    assert abs(probs.max(1).mean() - fitted.score(fresh, truth)) < 0.05


def test_numbers_are_predicted():
    X, y = make_friedman1(1000, noise=1, random_state=0)
    model = mesu.MESURegressor(random_state=0).fit(X[:700], y[:700])
    assert model.score(X[700:], y[700:]) > 0.87  # 0.96 at most: the noise
    mean, std = model.predict(X[700:], return_std=True)
    assert np.std((y[700:] - mean) / std) == pytest.approx(1, abs=0.15)
    uncertainty = model.uncertainty(X[700:])
    np.testing.assert_allclose(std**2, uncertainty.total)
    np.testing.assert_allclose(uncertainty.total, uncertainty.aleatoric + uncertainty.epistemic)


@pytest.mark.parametrize("labels", [[0, 1], [-1.0, 1.0], [False, True], ["a", "b"], [2**40, 3]])
def test_labels_keep_their_kind(labels):
    X, y = clusters(60, classes=2)
    given = np.array(labels)[y]
    model = mesu.MESUClassifier(random_state=0).fit(X, given)
    assert model.predict(X).dtype == given.dtype
    np.testing.assert_array_equal(model.classes_, np.unique(given))
    assert model.score(X, given) > 0.95


def test_fit_starts_anew_and_partial_fit_goes_on():
    X, y = clusters(200)
    once, twice = mesu.MESUClassifier(random_state=1), mesu.MESUClassifier(random_state=1)
    once.fit(X, y)
    twice.partial_fit(X[:50, :3], y[:50]).fit(X, y).fit(X, y)
    assert same(once._online.snapshot, twice._online.snapshot)
    once.partial_fit(X, y)
    assert once._online.snapshot.rows == 400
    assert not same(once._online.snapshot, twice._online.snapshot)
    other = mesu.MESUClassifier(random_state=2).fit(X, y)
    assert not np.array_equal(other._online.snapshot.weights.mean, twice._online.snapshot.weights.mean)


def test_the_stream_is_not_shuffled_and_the_set_is(digits):
    X, y, fresh, truth = digits
    order = np.argsort(y, kind="stable")
    stream = mesu.MESUClassifier(random_state=0).partial_fit(X[order], y[order], classes=range(10))
    assert stream.score(fresh, truth) < 0.5  # one digit after the other, and the last ones are what it thinks of
    sorted_set = mesu.MESUClassifier(random_state=0, epochs=1).fit(X[order], y[order])
    assert sorted_set.score(fresh, truth) > 0.8


def test_strangers_are_novel(digits):
    X, y, fresh, _ = digits
    model = mesu.MESUClassifier(random_state=0).partial_fit(X, y)
    assert model.is_novel(fresh).mean() < 0.05
    noise = np.random.default_rng(0).uniform(0, 16, size=fresh.shape)
    assert mesu.measures.auroc(-model.score_samples(fresh), -model.score_samples(noise)) > 0.85
    curve = mesu.MESURegressor(random_state=0).partial_fit(*line(2000))
    inside, outside = line(500, seed=1)[0], line(500, seed=2)[0] + [20, 0, 0]
    assert curve.is_novel(inside).mean() < 0.05
    assert curve.is_novel(outside).mean() > 0.95


def test_a_single_class_leaves_nothing_to_doubt():
    model = mesu.MESUClassifier(random_state=0).partial_fit(clusters(40)[0], ["cat"] * 40)
    far = np.full((1, 5), 1e6)
    assert model.uncertainty(far) == (0.0, 0.0, 0.0)
    assert not model.is_novel(far).any()


def test_the_share_sets_the_threshold():
    model = mesu.MESUClassifier(random_state=0).partial_fit(*clusters(1500))
    X, _ = clusters(500, seed=5)
    scores, usual = -model.score_samples(X), model._online.snapshot.recent_epistemic
    for share in (0.0, 0.01, 0.3, 1.0):
        np.testing.assert_array_equal(model.is_novel(X, share), scores > np.quantile(usual, 1 - share))
    assert model.is_novel(X, 0.3).sum() > model.is_novel(X, 0.01).sum()
    with pytest.raises(ValueError, match=r"share must be between 0 and 1, got 1\.5"):
        model.is_novel(X, 1.5)


def test_inputs_need_not_be_scaled_unless_told_otherwise():
    X, y = clusters(300)
    wild = X * [1e-6, 1, 1e6, 1, 1e3] + 1e4
    assert mesu.MESUClassifier(random_state=0).partial_fit(wild, y).score(wild, y) > 0.9
    raw = mesu.MESUClassifier(random_state=0, standardise=False).partial_fit(X / 10, y)
    np.testing.assert_array_equal(raw._online.snapshot.inputs_for(X), X.astype(np.float32))
    assert (raw._online.snapshot.inputs.rows == 0).all()


def test_scikit_learn_is_imported_for_those_who_ask():
    program = (
        "import sys, mesu; assert 'sklearn' not in sys.modules; mesu.MESUClassifier; assert 'sklearn' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(AttributeError, match="no attribute 'MESUTransformer'"):
        mesu.MESUTransformer  # noqa: B018


def test_the_programs_of_the_page_run(capsys):
    page = (Path(__file__).parents[2] / "docs" / "estimators.md").read_text()
    names = {}
    for program in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(program, names)
    said = capsys.readouterr().out
    assert said.startswith("['cat' 'dog' 'eel']\n0.5")
    assert "\n".join(said.splitlines()[2:5]) in page  # the report's first lines
