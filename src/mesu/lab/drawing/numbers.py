"""Names of measures and the format of their numbers, in the terminal and on the page."""

from collections.abc import Sequence
from math import isfinite, log10
from typing import NamedTuple

from mesu.lab.paper import Published

MINUS, NOTHING = "\N{MINUS SIGN}", "\N{EN DASH}"


class Measure(NamedTuple):
    """How one measure is shown."""

    title: str
    meaning: str = ""
    percent: bool = False  # the value is a fraction and is shown in per cent
    digits: int = 3
    better: str = ""  # "more" or "less"; empty if learners are not ranked by it


MEASURES = {
    "last_five_accuracy": Measure("last five", "accuracy at the end on the last five tasks", True, 1, "more"),
    "running_five_accuracy": Measure(
        "all along", "accuracy on the last five tasks after each task, mean over the stream", True, 1, "more"
    ),
    "newest_accuracy": Measure("newest", "accuracy at the end on the task just learned", True, 1, "more"),
    "all_tasks_accuracy": Measure("all tasks", "accuracy at the end, mean over all tasks", True, 1, "more"),
    "plasticity": Measure(
        "when learned", "accuracy on each task right after learning it, mean over the stream", True, 1, "more"
    ),
    "forgetting": Measure(
        "forgetting", "best accuracy measured on a task minus its accuracy at the end, mean over tasks", True, 1, "less"
    ),
    "mean_accuracy": Measure("all tasks", "accuracy at the end, mean over all tasks", True, 1, "more"),
    "accuracy": Measure("accuracy", "accuracy at the end", True, 1, "more"),
    "ood_auroc": Measure(
        "OOD AUROC",
        "how well uncertainty separates outliers from the newest data, at the end; 0.5 is chance",
        False,
        3,
        "more",
    ),
    "published_auroc": Measure(
        "AUROC, published",
        "OOD AUROC by 1,000 thresholds from 0 to the largest uncertainty of an outlier, as the paper computes it",
        False,
        3,
        "more",
    ),
    # of tables that were made before there was `published_auroc`
    "coarse_auroc": Measure("AUROC, coarse", "OOD AUROC computed from twenty thresholds", False, 3, "more"),
    "aleatoric_auroc": Measure("aleatoric AUROC", "OOD AUROC by the aleatoric part of the uncertainty", False, 3),
    "published_aleatoric_auroc": Measure(
        "aleatoric AUROC, published", "the same by 1,000 thresholds, as the paper computes AUROC", False, 3
    ),
    "fashion_auroc": Measure(
        "clothes AUROC",
        "how well uncertainty separates Fashion-MNIST, at the end",
        False,
        3,
        "more",
    ),
    "calibration_error": Measure(
        "calibration error", "mean difference between confidence and accuracy, at the end", True, 1, "less"
    ),
    "mean_std": Measure("mean sigma", "mean standard deviation of all weights, at the end", False, 4),
    "layer_std": Measure(
        "mean sigma", "mean standard deviation of the weights of each layer, averaged over the layers", False, 4
    ),
    "rigidity": Measure(
        "rigidity",
        "1 / |first minus last task's accuracy when learned|, from the mean over the seeds",
        False,
        2,
        "more",
    ),
}

WINDOWED = ("last_five_accuracy", "running_five_accuracy")


def known(name: str) -> Measure:
    """How a measure is shown; one that `MEASURES` lacks is shown under its own name."""
    return MEASURES.get(name) or Measure(name.replace("_", " "))


def heading(name: str) -> str:
    """The heading of a measure's column."""
    measure = known(name)
    return f"{measure.title} %" if measure.percent else measure.title


def number(name: str, value: float | None, more: int = 0, sign: bool = False, most: int | None = None) -> str:
    """A value of a measure as text; a dash if it is missing or not finite.

    Args:
        name: The measure.
        value: The value, a fraction if the measure is shown in per cent.
        more: Additional digits.
        sign: Write a plus sign too, for differences.
        most: The most digits behind the point that the value itself has. A published number brings its own.
    """
    if value is None or not isfinite(value):
        return NOTHING
    measure = known(name)
    shown, digits = (100 * value, measure.digits + more) if measure.percent else (value, measure.digits + more)
    if not measure.percent and abs(shown) >= 10:  # three significant digits: 3.82, 49.3, 328
        digits = max(0, digits - int(log10(abs(shown))))
    if isinstance(value, Published):
        most = value.digits
    if most is not None:  # a number is not shown with more digits than it has
        digits = min(digits, max(0, most - 2 * measure.percent))
    return f"{shown:{'+' if sign else ''},.{digits}f}".replace("-", MINUS)


def difference(name: str, ours: float | None, paper: float, more: int = 0) -> str:
    """Ours minus the paper's as text, with no more digits than the paper's number has."""
    gap = None if ours is None or not isfinite(ours) else ours - paper
    return number(name, gap, more, sign=True, most=paper.digits if isinstance(paper, Published) else None)


def spread(name: str, score: dict, more: int = 0) -> str:
    """Standard deviation over the seeds as text; empty for one seed."""
    return "" if score["seeds"] == 1 or score["std"] is None else number(name, score["std"], more)


def mean_and_spread(name: str, score: dict) -> str:
    """Mean and spread as text: 91.5±0.3, or 91.5 for a single seed."""
    mean, std = number(name, score["mean"]), spread(name, score)
    return f"{mean}±{std}" if std else mean


def best(summary: dict, name: str) -> float | None:
    """The best mean of a measure; None with fewer than two learners or if it is not ranked."""
    means = [scores[name]["mean"] for scores in summary.values() if name in scores]
    means = [mean for mean in means if mean is not None and isfinite(mean)]
    if len(means) < 2 or not known(name).better:
        return None
    return max(means) if known(name).better == "more" else min(means)


def names(summary: dict) -> list[str]:
    """All measures of a summary: first those in `MEASURES`, in its order, then the others.

    With five tasks or fewer, "last five" equals "all tasks" and is left out, unless the paper has a number for it.
    """
    present = list(dict.fromkeys(name for scores in summary.values() for name in scores))
    if all(_same(scores, WINDOWED[0], "all_tasks_accuracy") for scores in summary.values()):
        present = [name for name in present if name not in WINDOWED]
    return [name for name in MEASURES if name in present] + [name for name in present if name not in MEASURES]


def _same(scores: dict, one: str, other: str) -> bool:
    both = one in scores and other in scores
    return both and scores[one]["mean"] == scores[other]["mean"] and scores[one]["paper"] is None


def counted(numbers: Sequence[int]) -> str:
    """Numbers as text: 0 to 4, or 0, 2, 5."""
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))


def duration(seconds: float) -> str:
    """A duration as text: 63 s, 12 min 5 s, 1 h 3 min."""
    if not isfinite(seconds):
        return "not recorded"
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"
