"""The paper's numbers, for comparison with ours, by the label of an entry: accuracies as fractions.

Each is written with the digits that it was published with, and is never shown with more.
"""

from collections.abc import Mapping
from typing import Any

from mesu.lab.entry import Entry


class Published(float):
    """A published number, and how many digits it has behind the point: ``Published("0.90")`` has two."""

    digits: int

    def __new__(cls, text: str) -> "Published":
        """Read a number as it is printed."""
        number = super().__new__(cls, text)
        number.digits = len(text.partition(".")[2])
        return number


def published(table: Mapping[str, Mapping[Any, str]]) -> dict[str, dict[Any, Published]]:
    """The numbers of a table of texts."""
    return {label: {name: Published(text) for name, text in row.items()} for label, row in table.items()}


# Fig. 3, 200 tasks, 50 hidden units, five seeds
PERMUTED_MNIST = published(
    {
        "mesu": {
            "last_five_accuracy": "0.9134",
            "newest_accuracy": "0.9468",
            "ood_auroc": "0.94",
            "rigidity": "328.42",
        },
        "ewc-online": {
            "last_five_accuracy": "0.8854",
            "newest_accuracy": "0.9275",
            "ood_auroc": "0.87",
            "rigidity": "49.33",
        },
        "si": {"last_five_accuracy": "0.8696", "newest_accuracy": "0.9109", "ood_auroc": "0.87", "rigidity": "27.17"},
        "foo-vb": {
            "last_five_accuracy": "0.6866",
            "newest_accuracy": "0.6880",
            "ood_auroc": "0.61",
            "rigidity": "3.82",
        },
        "ewc-stream": {
            "last_five_accuracy": "0.6573",
            "newest_accuracy": "0.9330",
            "ood_auroc": "0.90",
            "rigidity": "67.64",
        },
        "sgd": {"last_five_accuracy": "0.5536", "newest_accuracy": "0.9310", "ood_auroc": "0.86", "rigidity": "59.78"},
        # the study of N, width 50
        "mesu-180000": {"last_five_accuracy": "0.869"},
        "mesu-300000": {"last_five_accuracy": "0.913"},
        "mesu-600000": {"last_five_accuracy": "0.895"},
        "mesu-1200000": {"last_five_accuracy": "0.874"},
        "mesu-2400000": {"last_five_accuracy": "0.841"},
        "mesu-inf": {"last_five_accuracy": "0.693"},  # N = 1e15
    }
)

# mean over the tasks 1 to t after learning task t + 1
PERMUTED_MNIST_ALL_TASKS = published(
    {
        "mesu": {9: "0.8148", 49: "0.3193", 99: "0.2119", 199: "0.1519"},
        "foo-vb": {9: "0.8761", 49: "0.5783", 99: "0.4749", 199: "0.4001"},
    }
)

# Fig. 4, MNIST, 1,000 epochs, one run; its AUROC is by 1,000 thresholds
VANISHING = published(
    {
        "mesu-180000": {"published_auroc": "0.997", "layer_std": "0.037", "accuracy": "0.977"},
        "mesu-1e+15": {"published_auroc": "0.727", "layer_std": "0.009"},
        "foo-vb": {"published_auroc": "0.731"},
        "ewc-stream": {"published_auroc": "0.912"},
        "sgd": {"published_auroc": "0.915"},
    }
)

# Supplementary Note 1: Pearson correlation with the true Hessian's diagonal after so many steps
HESSIAN = published(
    {
        "mesu": {1_000: "0.957", 10_000: "0.951", 100_000: "0.985", 1_000_000: "0.989"},
        "foo-vb": {1_000: "0.960", 10_000: "0.968", 100_000: "0.982", 1_000_000: "0.992"},
        "ewc": {1_000: "0.984", 10_000: "0.986", 100_000: "0.988", 1_000_000: "0.940"},
        "si": {1_000: "0.985", 10_000: "0.960", 100_000: "0.901", 1_000_000: "0.797"},
    }
)

# Fig. 2, fifty draws, the paper's own features
ANIMALS = published(
    {
        "mesu-paper": {"all_tasks_accuracy": "0.930", "newest_accuracy": "0.971", "ood_auroc": "0.860"},
        "sgd-0.005": {"all_tasks_accuracy": "0.790", "newest_accuracy": "0.981", "ood_auroc": "0.680"},
    }
)

# Fig. 5, mean over the eleven tasks at the end, one seed
CIFAR = published(
    {
        Entry(learner, "splits", splits).label: {"mean_accuracy": value}
        for learner, values in {
            "mesu": ("0.735", "0.742", "0.718", "0.709", "0.700"),
            "ewc": ("0.719", "0.680", "0.635", "0.560", "0.534"),
            "si": ("0.712", "0.676", "0.615", "0.568", "0.538"),
            "adam": ("0.560", "0.664", "0.684", "0.682", "0.677"),
        }.items()
        for splits, value in zip((1, 2, 4, 8, 16), values, strict=True)
    }
)

PAPER = {
    "cifar": CIFAR,
    "animals": ANIMALS,
    "permuted-mnist": PERMUTED_MNIST,
    "vanishing": VANISHING,
    "hessian": {
        learner: {f"pearson_{steps}": value for steps, value in values.items()} for learner, values in HESSIAN.items()
    },
}

# what the report says beside the paper's numbers
NOTES = {
    "animals": "The paper's features are not public in full: ResNet18's are made anew here, close to them and not the same, "
    "and EfficientNet-Lite0's are another network's.",
}


def paper_number(experiment: str, learner: str, measure: str) -> Published | None:
    """The paper's value of a measure at the end of its full-scale run; None where it gives none."""
    return PAPER.get(experiment, {}).get(learner, {}).get(measure)
