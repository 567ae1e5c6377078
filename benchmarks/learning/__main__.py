"""Whether the default learns as well as Adam, on networks of every usual kind.

    python -m benchmarks.learning            hours on one core; goes on where it was stopped
    python -m benchmarks.learning --defaults every learner at its default, about half an hour
    python -m benchmarks.learning --quick    the same, one seed

Every learner sees the same examples in the same order: 8,000 (digits: 1,200), three epochs (digits: ten). In the last column
of the table each had two more settings. Accuracy, log loss and calibration error are of predictions averaged over 20 draws, on
2,000 test examples; AUROC tells 1,000 images of another set by total and by epistemic uncertainty. CPU time is training's.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from benchmarks.growing import Growing
from benchmarks.learning.figure import draw
from benchmarks.learning.learners import SETTINGS, Learner, missing
from benchmarks.learning.table import FIELDS, markdown
from benchmarks.learning.work import OUTLIERS, WORK, Work, rows

from mesu.measures import auroc, calibration_error

DOCS = Path(__file__).parents[2] / "docs"


def learned(work: Work, learner: str, setting: float, seed: int) -> dict[str, Any]:
    """Train one network and measure it."""
    own = rows(work.own)
    torch.manual_seed(seed)
    one = Learner(learner, setting, work.build(), seed, len(own.x))
    order, seconds, first = torch.Generator().manual_seed(seed), 0.0, float("nan")
    for epoch in range(work.epochs):
        began = time.process_time()
        for some in torch.randperm(len(own.x), generator=order).split(work.batch):
            one.learn(own.x[some], own.y[some])
        seconds += time.process_time() - began
        if epoch == 0:
            first = float((one.predict(own.x_test).labels == own.y_test).float().mean())
    seen = one.predict(own.x_test)
    probs = seen.probs.movedim(1, -1).flatten(0, -2)  # a text has a prediction at every place
    scores: tuple[float, float] = (float("nan"), float("nan"))
    if work.foreign is not None:
        strange = one.predict(rows(work.foreign).x_test[:OUTLIERS])
        scores = auroc(seen.total, strange.total), auroc(seen.epistemic, strange.epistemic)
    measured = (
        first,
        float((seen.labels == own.y_test).float().mean()),
        float(F.nll_loss(seen.probs.clamp_min(1e-12).log(), own.y_test)),
        calibration_error(probs.numpy(), own.y_test.flatten().numpy()),
        *scores,
        seconds,
    )
    return dict(zip(FIELDS, (work.name, learner, setting, seed, *measured), strict=True))


def planned(quick: bool, seeds: int, defaults: bool = False) -> list[tuple[Work, str, float, int]]:
    """Everything to run: first all defaults, seed by seed, then the other settings."""
    works = [(work, learner, setting) for work in WORK for learner, all_of in SETTINGS.items() for setting in all_of]
    first = [each for each in works if each[2] == SETTINGS[each[1]][0]]
    others = [] if quick or defaults else [each for each in works if each not in first]
    count = 1 if quick else seeds
    return [(*each, seed) for group in (first, others) for seed in range(count) for each in group]


def main() -> None:
    """Run what is missing, write it down as it is found, then print the table and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="every learner at its default, one seed")
    parser.add_argument("--defaults", action="store_true", help="every learner at its default")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=DOCS / "learning.csv", help="table that is read and added to")
    parser.add_argument("--figure", type=Path, default=DOCS / "figures" / "learning.png")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = Growing(given.out, FIELDS)
    done = {(r["work"], r["learner"], float(r["setting"]), int(r["seed"])) for r in found.rows}
    for learner in SETTINGS:
        if reason := missing(learner):
            print(f"{learner} is left out: {reason}")
    for work, learner, setting, seed in planned(given.quick, given.seeds, given.defaults):
        if (work.name, learner, float(setting), seed) in done or missing(learner):
            continue
        found.add(learned(work, learner, setting, seed))
    print(markdown(found.rows))
    draw(found.rows, given.figure)


if __name__ == "__main__":
    main()
