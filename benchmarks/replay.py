"""What a buffer of 500 rows does, beside Adam with the same one: classes in turn or blurred, permuted and recurring digits.

    python -m benchmarks.replay                     some minutes of one core; goes on where it was stopped
    python -m benchmarks.replay --seeds 1 --streams "permuted digits"

Every learner is a perceptron of 100 hidden units that goes once over the stream, ten rows an update. With replay, each update
on new rows is followed by four on ten kept rows each. Rows of MNIST are the first 10,000 images, two classes at a time; in
the blurry stream, a tenth of the images of every class come anywhere. The digits are scikit-learn's: three in four are learned,
in five or 15 permutations of their pixels, or in three that come back once (A B C A B C). Tested are the 10,000 test images, or
the other digits in every permutation.
"""

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks.streams.digits import all_digits
from torch import nn

import mesu
from mesu.lab.data import mnist
from mesu.replay import Replay

SIZE, HIDDEN, BATCH, MEMORY, DRAWS, ROWS, LOOK = 500, 100, 10, 10_000, 20, 10_000, 100
FILE = Path(__file__).parents[1] / "docs" / "replay.csv"
FIELDS: tuple[str, ...] = ("stream", "learner", "seed", "end", "log_loss", "along", "cpu_seconds")


class Stream(NamedTuple):
    """Rows in their order, and those to test on."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def classes_in_turn(seed: int, blurred: float = 0.0) -> Stream:
    """MNIST, two classes at a time; this share of all rows comes anywhere."""
    data, draw = mnist(), np.random.default_rng(seed)
    labels = data.y_train[:ROWS]
    place = labels // 2 + draw.random(ROWS)  # in units of a task
    place = np.where(draw.random(ROWS) < blurred, 5 * draw.random(ROWS), place)
    order = np.argsort(place)
    return Stream(data.x_train[:ROWS][order], labels[order], data.x_test, data.y_test)


def digits_in_orders(seed: int, tasks: tuple[int, ...]) -> Stream:
    """scikit-learn's digits; each task has an order of the pixels, and tasks of one number have the same."""
    images, labels = all_digits()
    images, draw = (images / 8 - 1).astype(np.float32), np.random.default_rng(seed)
    pixels = [np.arange(64), *(draw.permutation(64) for _ in range(max(tasks)))]
    shuffled = draw.permutation(len(labels))
    test, train = np.split(shuffled, [len(labels) // 4])
    rows = [draw.permutation(train) for _ in tasks]
    return Stream(
        np.concatenate([images[some][:, pixels[task]] for some, task in zip(rows, tasks, strict=True)]),
        labels[np.concatenate(rows)],
        np.concatenate([images[test][:, pixels[task]] for task in sorted(set(tasks))]),
        np.concatenate([labels[test] for _ in set(tasks)]),
    )


STREAMS: dict[str, Callable[[int], Stream]] = {
    "class-incremental MNIST": classes_in_turn,
    "blurry MNIST": lambda seed: classes_in_turn(seed, blurred=0.1),
    "permuted digits": lambda seed: digits_in_orders(seed, (0, 1, 2, 3, 4)),
    "permuted digits, 15 tasks": lambda seed: digits_in_orders(seed, tuple(range(15))),
    "recurring digits": lambda seed: digits_in_orders(seed, (0, 1, 2, 0, 1, 2)),
}


def mesu_learner(net: nn.Module, seed: int, replay: Replay | None, counted: int = 1) -> mesu.BayesianLearner:
    """The library's default; or each row counted so many times, and the memory too, so that it is of as many rows."""
    posterior = mesu.Bayesian(net, seed=seed)
    rule = mesu.MESU(posterior, memory=counted * MEMORY, lr_std=counted)
    return mesu.BayesianLearner(posterior, rule, batch=BATCH, replay=replay)


def adam(net: nn.Module, seed: int, replay: Replay | None, lr: float = 0.001) -> mesu.WeightLearner:
    """Adam at one learning rate."""
    return mesu.WeightLearner(net, torch.optim.Adam(net.parameters(), lr), batch=BATCH, engine=False, replay=replay)


def kept(seed: int, candidates: int = 4) -> Replay:
    """The buffer that all learners have."""
    return Replay(SIZE, candidates=candidates, seed=seed)


LEARNERS: dict[str, Callable[[nn.Module, int], Any]] = {
    "MESU": lambda net, seed: mesu_learner(net, seed, None),
    "Adam": lambda net, seed: adam(net, seed, None),
    "MESU, replay": lambda net, seed: mesu_learner(net, seed, kept(seed)),
    "MESU, replay as drawn": lambda net, seed: mesu_learner(net, seed, kept(seed, candidates=1)),
    "MESU, replay counted five times": lambda net, seed: mesu_learner(net, seed, kept(seed), counted=5),
    "Adam, replay": lambda net, seed: adam(net, seed, kept(seed)),
    "Adam at 0.003, replay": lambda net, seed: adam(net, seed, kept(seed), lr=0.003),
}


def learned(stream: str, name: str, seed: int) -> dict[str, Any]:
    """Go once over a stream, predicting every 100 rows before they are learned, and test at the end."""
    x, y, x_test, y_test = STREAMS[stream](seed)
    rows = len(x) // BATCH * BATCH
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(x.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))
    learner, right, seconds = LEARNERS[name](net, seed), 0, 0.0
    for at in range(0, rows, LOOK):
        some, theirs = x[at : min(at + LOOK, rows)], y[at : min(at + LOOK, rows)]
        right += int((learner.predict(some, DRAWS).labels.numpy() == theirs).sum())
        began = time.process_time()
        learner.learn(some, theirs)
        seconds += time.process_time() - began
    probs = learner.predict(x_test, DRAWS).probs.numpy()
    end, loss = 100 * (probs.argmax(1) == y_test).mean(), -np.log(probs[np.arange(len(y_test)), y_test] + 1e-9).mean()
    numbers = (end, loss, 100 * right / rows, seconds)
    return dict(zip(FIELDS, (stream, name, seed, *(round(float(number), 4) for number in numbers)), strict=True))


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Mean and standard deviation over the seeds, as Markdown."""
    for stream in STREAMS:
        mine = [row for row in rows if row["stream"] == stream]
        if not mine:
            continue
        yield f"\n{stream}\n\n| learner | all tasks at the end, % | log loss there | along the stream, % | seeds |"
        yield "|---" * 5 + "|"
        for name in LEARNERS:
            own = [row for row in mine if row["learner"] == name]
            if own:
                values = {field: np.array([float(row[field]) for row in own]) for field in FIELDS[3:]}
                spread = f" ± {values['end'].std(ddof=1):.1f}" if len(own) > 1 else ""
                mean = {field: each.mean() for field, each in values.items()}
                yield (
                    f"| {name} | {mean['end']:.1f}{spread} | {mean['log_loss']:.2f} | {mean['along']:.1f} "
                    f"| {len(own)} |"
                )


def main() -> None:
    """Run what is missing, write it down as it is found, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--streams", default="", help="names, divided by semicolons; all of them if empty")
    parser.add_argument("--learners", default="", help="the same")
    parser.add_argument("--out", type=Path, default=FILE, help="table that is read and added to")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    if given.out.exists():
        with given.out.open(newline="") as file:
            rows = list(csv.DictReader(file))
    done = {(row["stream"], row["learner"], int(row["seed"])) for row in rows}
    for seed in range(given.seeds):
        for stream in given.streams.split(";") if given.streams else STREAMS:
            for name in given.learners.split(";") if given.learners else LEARNERS:
                if (stream, name, seed) not in done:
                    rows.append(learned(stream, name, seed))
                    print(rows[-1], flush=True)
                    with given.out.open("w", newline="") as file:
                        writer = csv.DictWriter(file, FIELDS)
                        writer.writeheader()
                        writer.writerows(rows)
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
