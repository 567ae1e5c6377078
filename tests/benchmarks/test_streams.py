"""The benchmark on streams: its protocol, its streams, and its command."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("river")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # benchmarks are no part of the package

from benchmarks.streams import digits, prequential  # noqa: E402
from benchmarks.streams.__main__ import main  # noqa: E402
from benchmarks.streams.adapters import Running  # noqa: E402
from benchmarks.streams.data import GROUPS, STREAMS, Stream  # noqa: E402

IMAGES, LABELS = digits.all_digits()
COUNT = len(LABELS)


class Spy:
    """Knows each row that it has learned, and nothing else."""

    takes_dicts = True

    def __init__(self, seen_as=lambda y: {y: 1.0}, unseen=None):
        self.seen, self.seen_as, self.unseen = {}, seen_as, {} if unseen is None else unseen

    def predict(self, x):
        return self.seen.get(tuple(x.values()), self.unseen)

    def learn(self, x, y):
        self.seen[tuple(x.values())] = self.seen_as(y)

    def __reduce__(self):  # only its size is asked for
        return (dict, ())


def rows_that_differ(y, changes=()):
    return Stream("made up", "", ("a",), np.arange(float(len(y)))[:, None], y, changes=changes)


def test_every_row_is_predicted_before_it_is_learned():
    outcome = prequential.run(rows_that_differ(["yes", "no"] * 50), Spy())
    assert outcome.blocks.sum() == 0  # a spy that had seen the labels would be right on all rows


def test_every_row_is_learned_before_the_next():
    stream = Stream("made up", "", ("a",), np.zeros((60, 1)), ["same"] * 60)
    assert prequential.run(stream, Spy()).blocks.sum() == 59


def test_errors_of_numbers_are_absolute():
    stream = Stream("made up", "", ("a",), np.arange(40.0)[:, None], [3.0, -5.0] * 20, regression=True)
    outcome = prequential.run(stream, Spy(lambda y: y, unseen=1.0))
    assert outcome.blocks.sum() == 20 * 2 + 20 * 6
    assert np.isnan(outcome.log_loss)


def test_log_loss_is_of_the_true_label_and_bounded():
    y = ["rare"] * 10 + ["never"] * 30
    outcome = prequential.run(rows_that_differ(y), Spy(unseen={"rare": 0.25, "often": 0.75}))
    assert outcome.log_loss == pytest.approx((10 * np.log(4) + 30 * np.log(1000)) / 40)
    assert outcome.blocks.sum() == 0


def test_blocks_begin_anew_with_each_task():
    stream = rows_that_differ(["a"] * 1300, changes=(120, 777))
    edges = stream.edges
    assert {0, 120, 777, 1300} <= set(edges)
    assert edges[1:4] == [50, 120, 170]  # the 20 rows left over go with the block before
    assert min(np.diff(edges)) >= 25
    assert max(np.diff(edges)) < 75
    assert len(prequential.run(stream, Spy()).blocks) == len(edges) - 1
    assert stream.first(500).changes == (120,)


def each_digit_once(X, y):
    """Whether these rows are the digits, in another order, when pixels are left out of account."""
    return sorted(map(unordered, X, y)) == sorted(map(unordered, IMAGES, LABELS))


def unordered(row, label):
    return (*sorted(row), label)


def test_permuted_digits_come_once_a_task_with_pixels_of_their_own():
    X, y, changes = digits.permuted(0, tasks=3)
    assert changes == (COUNT, 2 * COUNT)
    tasks = [(X[i * COUNT : (i + 1) * COUNT], y[i * COUNT : (i + 1) * COUNT]) for i in range(3)]
    assert all(each_digit_once(*task) for task in tasks)
    means = [task.mean(0) for task, _ in tasks]
    np.testing.assert_allclose(means[0], IMAGES.mean(0))  # the first leaves the pixels
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not np.allclose(means[one], means[other])
        np.testing.assert_allclose(np.sort(means[one]), np.sort(means[other]))


def test_recurring_digits_bring_the_same_permutation_back():
    X, y, changes = digits.recurring(1, order="ABCAB")
    assert len(changes) == 4
    means = X.reshape(5, COUNT, 64).mean(1)
    np.testing.assert_allclose(means[3], means[0])
    np.testing.assert_allclose(means[4], means[1])
    assert not np.allclose(means[2], means[0])
    assert not np.allclose(means[2], means[1])
    visits = X.reshape(5, COUNT, 64)
    assert not np.array_equal(visits[0], visits[3])  # in another order
    rows = [sorted(map(tuple, visit)) for visit in (visits[1], visits[4])]
    assert rows[0] == rows[1]
    assert all(each_digit_once(visits[i], y.reshape(5, COUNT)[i]) for i in range(5))


def test_rotated_digits_turn_slowly():
    np.testing.assert_allclose(digits.turned(IMAGES[3], 0), IMAGES[3])
    upside_down = digits.turned(IMAGES[3], 180).reshape(8, 8)
    np.testing.assert_allclose(upside_down, IMAGES[3].reshape(8, 8)[::-1, ::-1], atol=1e-9)
    X, y, changes = digits.rotated(2, passes=2, degrees=180)
    order = np.random.default_rng(2).permutation(COUNT)
    assert changes == ()
    np.testing.assert_array_equal(y[:COUNT], LABELS[order])
    assert sorted(y[COUNT:]) == sorted(LABELS)
    np.testing.assert_allclose(X[0], IMAGES[order[0]])
    middle = COUNT - 1
    np.testing.assert_allclose(X[middle], digits.turned(IMAGES[order[middle]], 180 * middle / (2 * COUNT - 1)))


def test_another_seed_is_another_order_only_for_digits():
    one, other = (STREAMS["recurring"](seed) for seed in (0, 1))
    assert not np.array_equal(one.X[:COUNT], other.X[:COUNT])
    one, other = (STREAMS["phishing"](seed) for seed in (0, 1))
    np.testing.assert_array_equal(one.X, other.X)


def test_a_series_is_predicted_from_numbers_before_it():
    stream = STREAMS["airline"](0)
    last, season = (stream.columns.index(name) for name in ("last", "a season ago"))
    np.testing.assert_array_equal(stream.X[1:, last], stream.y[:-1])
    np.testing.assert_array_equal(stream.X[12:, season], stream.y[:-12])


def test_running_mean_and_spread():
    draw = np.random.default_rng(0).normal(3, 2, (50, 2))
    running, number = Running(), Running()
    for row in draw:
        running.follow(row)
        number.follow(float(row[0]))
    np.testing.assert_allclose(running.scaled(draw[7]), (draw[7] - draw.mean(0)) / draw.std(0))
    assert number.back(number.scaled(1.25)) == pytest.approx(1.25)
    assert number.spread == pytest.approx(draw[:, 0].std())


def test_every_stream_is_in_one_group():
    assert sorted(STREAMS) == sorted(name for names in GROUPS.values() for name in names)


def test_the_command_writes_results_and_figures_and_goes_on_where_it_was(tmp_path, capsys):
    cut = ["--streams", "phishing", "--models", "mesu,linear", "--rows", "200", "--seeds", "1", "--out", str(tmp_path)]
    main(cut)
    first = capsys.readouterr().out
    with (tmp_path / "results.csv").open() as file:
        lines = {line["model"]: line for line in csv.DictReader(file)}
    assert set(lines) == {"mesu", "linear"}
    for line in lines.values():
        right = sum(map(float, line["blocks"].split()))
        assert float(line["score"]) == pytest.approx(right / 200)
        assert 0.6 < float(line["score"]) < 1.0  # 0.5 is a guess
    assert (tmp_path / "phishing.png").stat().st_size < 150_000
    assert "| MESU | " in first
    assert "phishing   mesu" in first
    main(cut)
    again = capsys.readouterr().out
    assert "phishing   mesu" not in again  # nothing was left to do
    assert "| MESU | " in again


def test_a_quick_look_may_not_replace_what_is_published(capsys):
    with pytest.raises(SystemExit) as refused:
        main(["--rows", "200"])
    assert refused.value.code == 2
    assert "--rows would put short runs in the place of whole ones" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "kind"), [("--streams", "stream"), ("--models", "model")])
def test_unknown_names_are_refused_with_a_sentence(option, kind, capsys):
    with pytest.raises(SystemExit) as refused:
        main([option, "nonsense"])
    assert refused.value.code == 2
    assert f"there is no {kind} 'nonsense': choose from" in capsys.readouterr().err
